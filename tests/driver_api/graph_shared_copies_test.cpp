// Graphs that copy from and to pinned memory which a kernel is given as well, outside the graph or in it: addresses are
// unified. A GPU elsewhere has such memory itself from then on.
#include <algorithm>
#include <functional>

#include "graph_host_copies.hpp"

using namespace driver_api;

namespace {

constexpr int many = 1 << 14;  // more than travels inside a record

bool all(const PinnedWords& host, unsigned value) {
    return host.contents() == Words(many, value);
}
bool all(const Memory& memory, unsigned value) {
    return memory.read<unsigned>(many) == Words(many, value);
}

// What each works with.
struct SharedCopies {
    Gpu gpu;
    Stream stream;
    PinnedWords host{many};
    Memory memory{Words(many, 5)}, other{host.bytes()};
    const Module module;
    const CUfunction add = module.function("add");
};

}  // namespace

TEST_CASE_METHOD(SharedCopies, "a graph copies from and to pinned memory that a kernel gets later",
                 "[graph][capture][pinned]") {
    const bool captured = GENERATE(false, true), to_host_first = GENERATE(false, true);
    Graph graph;
    if (captured) begin_capture(stream);
    if (captured && to_host_first)
        CU_OK(cu.cuMemcpyDtoHAsync(host.data, memory.address, host.bytes(), stream));
    else if (captured)
        CU_OK(cu.cuMemcpyHtoDAsync(memory.address, host.data, host.bytes(), stream));
    else
        add_copy(graph, {},
                 to_host_first ? to_host(host.data, memory.address, host.bytes())
                               : to_device(memory.address, host.data, host.bytes()));
    if (captured) {
        auto made = end_capture(stream);
        std::swap(graph.handle, made.handle);
    }
    GraphExec exec(graph);
    exec.run(stream);
    for (unsigned round = 1; round <= 3; ++round) {
        CU_OK(cu.cuMemsetD32(memory.address, 10 * round, many));
        host.fill(20 * round);
        CU_OK(launch(add, stream, host.data, many, 1));
        CU_OK(cu.cuGraphLaunch(exec, stream));
        CU_OK(launch(add, stream, host.data, many, 2));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(all(host, to_host_first ? 10 * round + 2 : 20 * round + 3));
        CHECK(all(memory, to_host_first ? 10 * round : 20 * round + 1));
    }
}

TEST_CASE_METHOD(SharedCopies, "a kernel changes pinned memory between a graph's copies", "[graph][capture][pinned]") {
    const bool back = GENERATE(false, true);
    begin_capture(stream);
    CU_OK(cu.cuMemcpyDtoHAsync(host.data, memory.address, host.bytes(), stream));
    CU_OK(launch(add, stream, host.data, many, 1));
    if (back) CU_OK(cu.cuMemcpyHtoDAsync(other.address, host.data, host.bytes(), stream));
    auto graph = end_capture(stream);
    GraphExec exec(graph);
    for (unsigned round = 1; round <= 3; ++round) {
        CU_OK(cu.cuMemsetD32(memory.address, 10 * round, many));
        exec.run(stream);
        CHECK(all(host, 10 * round + 1));
        if (back) CHECK(all(other, 10 * round + 1));
    }
}

TEST_CASE_METHOD(SharedCopies, "a graph's function works on pinned memory that a kernel gets later",
                 "[graph][pinned]") {
    std::function<void()> twice = [&] {
        for (int i = 0; i < many; ++i) host.data[i] *= 2;
    };
    Graph graph;
    auto fetched = add_copy(graph, {}, to_host(host.data, memory.address, host.bytes()));
    auto changed = add_function(graph, {fetched}, twice);
    add_copy(graph, {changed}, to_device(other.address, host.data, host.bytes()));
    GraphExec exec(graph);
    exec.run(stream);
    for (unsigned round = 1; round <= 3; ++round) {
        CU_OK(cu.cuMemsetD32(memory.address, 10 * round, many));
        CU_OK(launch(add, stream, host.data, many, 1));
        exec.run(stream);
        CHECK(all(other, 20 * round));
        CHECK(all(host, 20 * round));
    }
}

TEST_CASE_METHOD(SharedCopies, "a graph's function works on pinned memory after copies of overlapping parts of it",
                 "[graph][pinned]") {
    const int count = GENERATE(10, many);  // less than a page, and more
    std::function<void()> twice = [&] {
        for (int i = 0; i < count; ++i) host.data[i] *= 2;
    };
    const size_t bytes = count * word;
    Graph graph;
    auto fetched = add_copy(graph, {}, to_host(host.data, memory.address, bytes));
    auto brought = add_copy(graph, {fetched}, to_device(other.address, host.data + 1, bytes - word));
    add_function(graph, {brought}, twice);
    GraphExec exec(graph);
    for (unsigned round = 1; round <= 3; ++round) {
        CU_OK(cu.cuMemsetD32(memory.address, 10 * round, many));
        exec.run(stream);
        CHECK(Words(host.data, host.data + count) == Words(count, 20 * round));
        CHECK(other.read<unsigned>(count - 1) == Words(count - 1, 10 * round));
    }
}

// A GPU elsewhere may refuse this.
TEST_CASE_METHOD(SharedCopies,
                 "an instance's kernel that is given the memory of a copy before it changes that, or is refused",
                 "[graph][pinned]") {
    CU_OK(cu.cuMemsetD32(other.address, 1, many));
    Graph graph;
    auto fetched = add_copy(graph, {}, to_host(host.data, memory.address, host.bytes()));
    KernelNode before(add, other.address, many, 1);
    KernelNode now(add, reinterpret_cast<CUdeviceptr>(host.data), many, 1);
    auto node = before.add(graph, {fetched});
    GraphExec exec(graph);
    const auto result = cu.cuGraphExecKernelNodeSetParams(exec, node, &now.parameters);
    if (result != CUDA_ERROR_NOT_SUPPORTED) CU_OK(result);
    exec.run(stream);
    CHECK(all(host, result == CUDA_SUCCESS ? 6 : 5));
    CHECK(all(other, result == CUDA_SUCCESS ? 1 : 2));
}
