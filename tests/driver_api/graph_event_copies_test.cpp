// Copies from and to pinned memory in graphs that record events, or wait for them, in the middle of a launch: what another
// stream does comes before a part of the graph, or behind it.
#include <chrono>
#include <functional>
#include <thread>

#include "graph_host_copies.hpp"

using namespace driver_api;

namespace {

constexpr int copied_words = 1 << 14;  // more than travels inside a record

bool holds_only(const PinnedWords& host, unsigned value) {
    return host.contents() == Words(copied_words, value);
}
bool holds_only(const Memory& memory, unsigned value) {
    return memory.read<unsigned>(copied_words) == Words(copied_words, value);
}

// What each works with.
struct EventCopies {
    Gpu gpu;
    Stream stream{CU_STREAM_NON_BLOCKING}, other{CU_STREAM_NON_BLOCKING};
    Event event{CU_EVENT_DISABLE_TIMING};
    PinnedWords host{copied_words};
    Memory memory{Words(copied_words, 5)};
    unsigned value = 0;
    // Takes a while, so that whoever does not wait for it comes too early.
    std::function<void()> write = [this] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        host.fill(value);
    };
};

}  // namespace

TEST_CASE_METHOD(EventCopies, "a graph copies from pinned memory what it waits for an event for",
                 "[graph][capture][event][pinned]") {
    const bool captured = GENERATE(false, true);
    Graph graph;
    if (captured) {
        begin_capture(stream);
        CU_OK(cu.cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
        CU_OK(cu.cuMemcpyHtoDAsync(memory.address, host.data, host.bytes(), stream));
        auto made = end_capture(stream);
        std::swap(graph.handle, made.handle);
    } else {
        CUgraphNode wait = nullptr;
        CU_OK(cu.cuGraphAddEventWaitNode(&wait, graph, nullptr, 0, event));
        add_copy(graph, {wait}, to_device(memory.address, host.data, host.bytes()));
    }
    GraphExec exec(graph);
    exec.run(stream);
    for (value = 1; value <= 3; ++value) {
        CU_OK(cu.cuLaunchHostFunc(other, call_function, &write));
        CU_OK(cu.cuEventRecord(event, other));
        exec.run(stream);
        CHECK(holds_only(memory, value));
    }
}

TEST_CASE_METHOD(EventCopies,
                 "what a graph has copied to pinned memory is there when the event is that it records then",
                 "[graph][capture][event][pinned]") {
    const bool captured = GENERATE(false, true);
    Graph graph;
    std::function<void()> late = [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
    if (captured) {
        begin_capture(stream);
        CU_OK(cu.cuMemcpyDtoHAsync(host.data, memory.address, host.bytes(), stream));
        CU_OK(cu.cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
        CU_OK(cu.cuLaunchHostFunc(stream, call_function, &late));
        auto made = end_capture(stream);
        std::swap(graph.handle, made.handle);
    } else {
        auto copy = add_copy(graph, {}, to_host(host.data, memory.address, host.bytes()));
        CUgraphNode record = nullptr;
        CU_OK(cu.cuGraphAddEventRecordNode(&record, graph, &copy, 1, event));
        add_function(graph, {record}, late);
    }
    GraphExec exec(graph);
    for (unsigned round = 1; round <= 3; ++round) {
        CU_OK(cu.cuMemsetD32Async(memory.address, round, copied_words, stream));
        CU_OK(cu.cuGraphLaunch(exec, stream));
        CU_OK(cu.cuEventSynchronize(event));
        CHECK(holds_only(host, round));
        CU_OK(cu.cuStreamSynchronize(stream));
    }
}

TEST_CASE_METHOD(EventCopies,
                 "what a graph has copied to memory that is not pinned is there when the event is that it records then",
                 "[graph][capture][event]") {
    const bool captured = GENERATE(false, true);
    Graph graph;
    Words words(copied_words);
    const size_t bytes = copied_words * sizeof(unsigned);
    Memory large(size_t{64} << 20);
    CUgraphNode record = nullptr, fill = nullptr;
    if (captured) {
        begin_capture(stream);
        CU_OK(cu.cuMemcpyDtoHAsync(words.data(), memory.address, bytes, stream));
        CU_OK(cu.cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
        CU_OK(cu.cuMemsetD32Async(large.address, 1, size_t{16} << 20, stream));
        auto made = end_capture(stream);
        std::swap(graph.handle, made.handle);
    } else {
        auto copy = add_copy(graph, {}, to_host(words.data(), memory.address, bytes));
        CU_OK(cu.cuGraphAddEventRecordNode(&record, graph, &copy, 1, event));
        CUDA_MEMSET_NODE_PARAMS much{large.address, 0, 1, 4, size_t{16} << 20, 1};
        CU_OK(cu.cuGraphAddMemsetNode(&fill, graph, &record, 1, &much, gpu.context));
    }
    GraphExec exec(graph);
    CU_OK(cu.cuMemsetD32Async(memory.address, 1, copied_words, stream));
    CU_OK(cu.cuGraphLaunch(exec, stream));
    CU_OK(cu.cuEventSynchronize(event));
    CHECK(words == Words(copied_words, 1));

    // For a thread beside the one that launches, too.
    CU_OK(cu.cuStreamSynchronize(stream));
    Gate gate(stream);
    CU_OK(cu.cuMemsetD32Async(memory.address, 2, copied_words, stream));
    CUresult launched = CUDA_ERROR_UNKNOWN;
    std::thread launching([&] {
        launched = cu.cuCtxSetCurrent(gpu.context);
        if (launched == CUDA_SUCCESS) launched = cu.cuGraphLaunch(exec, stream);
    });
    auto seen = CUDA_SUCCESS;
    for (int tries = 0; tries < 2000 && seen == CUDA_SUCCESS; ++tries) {  // a driver may say so until it is recorded
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        seen = cu.cuEventQuery(event);
    }
    gate.open();
    auto waited = cu.cuEventSynchronize(event);
    const bool there = words == Words(copied_words, 2);
    launching.join();
    CU_OK(waited);
    CU_OK(launched);
    if (seen == CUDA_ERROR_NOT_READY) CHECK(there);
    CU_OK(cu.cuStreamSynchronize(stream));
    if (captured) return;
    Event later{CU_EVENT_DISABLE_TIMING};
    CU_OK(cu.cuGraphExecEventRecordNodeSetEvent(exec, record, later));
    CU_OK(cu.cuMemsetD32Async(memory.address, 3, copied_words, stream));
    CU_OK(cu.cuGraphLaunch(exec, stream));
    CU_OK(cu.cuEventSynchronize(later));
    CHECK(words == Words(copied_words, 3));
}

TEST_CASE_METHOD(EventCopies, "an instance's copy from other pinned memory waits for the graph's event",
                 "[graph][event][pinned]") {
    Graph graph;
    CUgraphNode wait = nullptr;
    const PinnedWords before(copied_words);
    CU_OK(cu.cuGraphAddEventWaitNode(&wait, graph, nullptr, 0, event));
    auto copy = add_copy(graph, {wait}, to_device(memory.address, before.data, before.bytes()));
    GraphExec exec(graph);
    exec.run(stream);
    CHECK(holds_only(memory, 0));
    auto now = to_device(memory.address, host.data, host.bytes());
    CU_OK(cu.cuGraphExecMemcpyNodeSetParams(exec, copy, &now, gpu.context));
    for (value = 1; value <= 3; ++value) {
        CU_OK(cu.cuLaunchHostFunc(other, call_function, &write));
        CU_OK(cu.cuEventRecord(event, other));
        exec.run(stream);
        CHECK(holds_only(memory, value));
    }
}

TEST_CASE_METHOD(EventCopies, "a graph copies from pinned memory what it waits for a word for",
                 "[graph][capture][pinned]") {
    Memory words(Words{0});
    const bool captured = GENERATE(false, true);
    Graph graph;
    if (captured) {
        begin_capture(stream);
        CU_OK(cu.cuStreamWaitValue32(stream, words.address, 1, CU_STREAM_WAIT_VALUE_EQ));
        CU_OK(cu.cuMemcpyHtoDAsync(memory.address, host.data, host.bytes(), stream));
        auto made = end_capture(stream);
        std::swap(graph.handle, made.handle);
    } else {
        CUstreamBatchMemOpParams operation{};
        operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
        operation.waitValue.address = words.address;
        operation.waitValue.value = 1;
        operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
        CUDA_BATCH_MEM_OP_NODE_PARAMS batch{gpu.context, 1, &operation, 0};
        CUgraphNode wait = nullptr;
        CU_OK(cu.cuGraphAddBatchMemOpNode(&wait, graph, nullptr, 0, &batch));
        add_copy(graph, {wait}, to_device(memory.address, host.data, host.bytes()));
    }
    GraphExec exec(graph);
    for (value = 1; value <= 3; ++value) {
        CU_OK(cu.cuMemsetD32Async(words.address, 0, 1, other));
        CU_OK(cu.cuStreamSynchronize(other));
        CU_OK(cu.cuLaunchHostFunc(other, call_function, &write));
        CU_OK(cu.cuStreamWriteValue32(other, words.address, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
        exec.run(stream);
        CHECK(holds_only(memory, value));
    }
}
