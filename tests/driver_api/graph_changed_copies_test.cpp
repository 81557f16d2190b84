// Copies from and to the program's memory in graphs and instances that change: what is gone, disabled or replaced leaves the
// program's memory alone. And on a GPU that is full: a GPU elsewhere needs memory of its own for them.
#include <algorithm>
#include <functional>

#include "graph_host_copies.hpp"

using namespace driver_api;

TEST_CASE("a function sees what a function before it has changed", "[graph]") {
    Gpu gpu;
    Stream stream;
    Memory memory(Words{1, 2, 3, 4});
    Words host(4);
    std::function<void()> twice = [&] {
        for (auto& one : host) one *= 2;
    };
    Graph graph;
    auto fetched = add_copy(graph, {}, to_host(host.data(), memory.address, 4 * word));
    auto first = add_function(graph, {fetched}, twice);
    add_function(graph, {first}, twice);
    GraphExec exec(graph);
    for (int i = 0; i < 2; ++i) {
        exec.run(stream);
        CHECK(host == Words{4, 8, 12, 16});
    }
}

TEST_CASE("functions beside each other behind a copy leave what the other has changed", "[graph]") {
    Gpu gpu;
    Stream stream;
    Memory memory(Words{1, 2, 3, 4}), other(4 * word);
    Words host(4);
    std::function<void()> first = [&] { host[0] = 10 * host[0], host[1] = 10 * host[1]; };
    std::function<void()> second = [&] { host[2] = 10 * host[2], host[3] = 10 * host[3]; };
    Graph graph;
    auto fetched = add_copy(graph, {}, to_host(host.data(), memory.address, 4 * word));
    auto one = add_function(graph, {fetched}, first), two = add_function(graph, {fetched}, second);
    if (GENERATE(false, true)) add_copy(graph, {one, two}, to_device(other.address, host.data(), 4 * word));
    GraphExec exec(graph);
    for (int i = 0; i < 3; ++i) {
        exec.run(stream);
        CHECK(host == Words{10, 20, 30, 40});
    }
}

TEST_CASE("of two copies to the same memory a function behind each sees its own", "[graph]") {
    Gpu gpu;
    Stream stream;
    Memory memory(Words{1, 2}), other(Words{3, 4});
    Words host(2), seen;
    std::function<void()> first = [&] { seen.insert(seen.end(), host.begin(), host.end()), host = {0, 0}; };
    std::function<void()> second = first;
    Graph graph;
    auto one = add_copy(graph, {}, to_host(host.data(), memory.address, 2 * word));
    auto looked = add_function(graph, {one}, first);
    auto two = add_copy(graph, {looked}, to_host(host.data(), other.address, 2 * word));
    add_function(graph, {two}, second);
    GraphExec exec(graph);
    for (int i = 0; i < 3; ++i) {
        seen.clear();
        exec.run(stream);
        CHECK(seen == Words{1, 2, 3, 4});
    }
}

TEST_CASE("a node that is disabled or destroyed copies nothing to the host", "[graph]") {
    Gpu gpu;
    Stream stream;
    Memory memory(Words{1, 2, 3, 4});
    Words host(4, 9), other(4, 9), seen;
    std::function<void()> look = [&] { seen = host; };
    Graph graph;
    auto fetched = add_copy(graph, {}, to_host(host.data(), memory.address, 4 * word));
    auto also = add_copy(graph, {fetched}, to_host(other.data(), memory.address, 4 * word));

    SECTION("destroyed") {
        CU_OK(cu.cuGraphDestroyNode(fetched));
        GraphExec(graph).run(stream);
        CHECK(host == Words(4, 9));
        CHECK(other == Words{1, 2, 3, 4});
    }
    SECTION("disabled, and enabled again") {
        GraphExec exec(graph);
        CU_OK(cu.cuGraphNodeSetEnabled(exec, fetched, 0));
        exec.run(stream);
        CHECK(host == Words(4, 9));
        CHECK(other == Words{1, 2, 3, 4});
        CU_OK(cu.cuGraphNodeSetEnabled(exec, fetched, 1));
        exec.run(stream);
        CHECK(host == Words{1, 2, 3, 4});
    }
    SECTION("a node of a clone says nothing of this instance") {
        GraphExec exec(graph);
        CUgraph copy = nullptr;
        CUgraphNode stranger = nullptr;
        CU_OK(cu.cuGraphClone(&copy, graph));
        Graph clone(copy);
        CU_OK(cu.cuGraphNodeFindInClone(&stranger, fetched, clone));
        CU_CHECK(cu.cuGraphNodeSetEnabled(exec, stranger, 0), CUDA_ERROR_INVALID_VALUE);
        auto late = add_copy(graph, {also}, to_host(host.data(), memory.address, 4 * word));
        CU_CHECK(cu.cuGraphNodeSetEnabled(exec, late, 0), CUDA_ERROR_INVALID_VALUE);
        exec.run(stream);
        CHECK(host == Words{1, 2, 3, 4});
        CHECK(other == Words{1, 2, 3, 4});
    }
    SECTION("disabled before a function") {
        add_function(graph, {also}, look);
        GraphExec exec(graph), unchanged(graph);
        CU_OK(cu.cuGraphNodeSetEnabled(exec, fetched, 0));
        exec.run(stream);
        CHECK(seen == Words(4, 9));
        CHECK(host == Words(4, 9));
        unchanged.run(stream);
        CHECK(seen == Words{1, 2, 3, 4});
        std::fill(host.begin(), host.end(), 8);  // not another Words: the graph knows its place
        CU_OK(cu.cuGraphNodeSetEnabled(exec, fetched, 1));
        exec.run(stream);
        CHECK(seen == Words{1, 2, 3, 4});
    }
    SECTION("a function that is destroyed is not called, nor waited for") {
        auto looked = add_function(graph, {also}, look);
        CU_OK(cu.cuGraphDestroyNode(looked));
        GraphExec(graph).run(stream);
        CHECK(seen.empty());
        CHECK(host == Words{1, 2, 3, 4});
    }
}

TEST_CASE("copies of graphs inside a graph change with it", "[graph]") {
    Gpu gpu;
    Stream stream;
    Memory memory(Words{1, 2, 3, 4});
    Words host(4, 9), other(4, 9);
    Graph inside, graph;
    add_copy(inside, {}, to_host(host.data(), memory.address, 4 * word));
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphAddChildGraphNode(&node, graph, nullptr, 0, inside));
    CUgraph child = nullptr;
    CU_OK(cu.cuGraphChildGraphNodeGetGraph(node, &child));
    CUgraphNode copy = nullptr;
    size_t one = 1;
    CU_OK(cu.cuGraphGetNodes(child, &copy, &one));

    SECTION("its node") {
        auto changed = to_host(other.data(), memory.address, 4 * word);
        CU_OK(cu.cuGraphMemcpyNodeSetParams(copy, &changed));
        GraphExec(graph).run(stream);
        CHECK(host == Words(4, 9));
        CHECK(other == Words{1, 2, 3, 4});
    }
    SECTION("a further node") {
        add_copy(child, {copy}, to_host(other.data(), memory.address, 4 * word));
        GraphExec(graph).run(stream);
        CHECK(host == Words{1, 2, 3, 4});
        CHECK(other == Words{1, 2, 3, 4});
    }
    SECTION("its node goes") {
        CU_OK(cu.cuGraphDestroyNode(copy));
        GraphExec(graph).run(stream);
        CHECK(host == Words(4, 9));
    }
    SECTION("an instance gets another, twice") {
        GraphExec exec(graph);
        exec.run(stream);
        CHECK(host == Words{1, 2, 3, 4});
        Words third(4, 9);
        for (auto* to : {&other, &third}) {
            Graph replacement;
            add_copy(replacement, {}, to_host(to->data(), memory.address, 4 * word));
            CU_OK(cu.cuGraphExecChildGraphNodeSetParams(exec, node, replacement));
            for (auto* words : {&host, &other, &third}) std::fill(words->begin(), words->end(), 9);
            exec.run(stream);
            CHECK(*to == Words{1, 2, 3, 4});
            CHECK(host == Words(4, 9));
            if (to == &third) CHECK(other == Words(4, 9));
        }
    }
}

FRESH_PROCESS_TEST_CASE("a graph's copies from and to the host on a full GPU happen or are out of memory",
                        "[graph][capture][full]") {
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING);
    const size_t bytes = size_t{64} << 20;
    std::vector<unsigned char> host(bytes, 7);
    Memory memory(bytes);
    CU_OK(cu.cuStreamSynchronize(nullptr));  // it is cleared there, and the other stream does not wait for that
    std::vector<CUdeviceptr> taken;
    auto fill = [&] {
        for (size_t size = size_t{1} << 38; size >= bytes / 4; size /= 2)
            for (CUdeviceptr address = 0; cu.cuMemAlloc(&address, size) == CUDA_SUCCESS;) taken.push_back(address);
    };
    auto empty = [&] {
        for (auto address : taken) CU_OK(cu.cuMemFree(address));
        taken.clear();
    };
    auto check = [&](CUgraph graph) {
        CUgraphExec exec = nullptr;
        auto result = cu.cuGraphInstantiate(&exec, graph, 0);
        CU_CHECK_EITHER(result, CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY);
        if (result != CUDA_SUCCESS) return false;
        std::fill(host.begin(), host.end(), 7);
        CU_OK(cu.cuMemsetD8(memory.address, 3, bytes));
        CU_OK(cu.cuStreamSynchronize(nullptr));
        CU_OK(cu.cuGraphLaunch(exec, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(memory.read<unsigned char>(bytes) == std::vector<unsigned char>(bytes, 7));
        CU_OK(cu.cuGraphExecDestroy(exec));
        return true;
    };

    SECTION("captured") {
        fill();
        begin_capture(stream);
        auto result = cu.cuMemcpyHtoDAsync(memory.address, host.data(), bytes, stream);
        CU_CHECK_EITHER(result, CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY);
        auto graph = end_capture(stream);
        CHECK(graph.nodes().size() == (result == CUDA_SUCCESS ? 1 : 0));
        if (result == CUDA_SUCCESS) CHECK(check(graph));
        empty();
    }
    SECTION("as nodes, of which one changes a part of what the other brings") {
        Graph graph;
        auto fetched = add_copy(graph, {}, to_host(host.data() + 1, memory.address, bytes - word));
        auto filled = fetched;
        CUDA_MEMSET_NODE_PARAMS seven{};
        seven.dst = memory.address, seven.value = 7, seven.elementSize = 1, seven.width = bytes, seven.height = 1;
        CU_OK(cu.cuGraphAddMemsetNode(&filled, graph, nullptr, 0, &seven, gpu.context));
        CU_OK(cu.cuGraphAddDependencies(graph, &filled, &fetched, nullptr, 1));
        add_copy(graph, {fetched}, to_device(memory.address, host.data(), bytes));
        fill();
        check(graph);
        empty();
        CHECK(check(graph));
    }
    CU_OK(cu.cuMemcpyHtoDAsync(memory.address, host.data(), bytes, stream));  // the stream is as good as before
    CU_OK(cu.cuStreamSynchronize(stream));
}
