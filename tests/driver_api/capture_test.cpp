// Stream capture: what is captured, and that it is done when the graph runs and not before.
#include <cstring>

#include "graph.hpp"

using namespace driver_api;

TEST_CASE("a captured kernel runs when the graph is launched, as often as it is", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory values(std::vector<int>{1, 2, 3});
    begin_capture(stream);
    CHECK(capture_status(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CU_OK(launch(module.function("add"), stream, values.address, 3, 10));
    Graph graph = end_capture(stream);
    CHECK(capture_status(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(values.read<int>(3) == std::vector<int>{1, 2, 3});
    GraphExec exec(graph);
    exec.run(stream);
    CHECK(values.read<int>(3) == std::vector<int>{11, 12, 13});
    exec.run(stream);
    CHECK(values.read<int>(3) == std::vector<int>{21, 22, 23});
}

TEST_CASE("captured copies read the host's memory at every launch", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(sizeof(int));
    int *in = nullptr, *out = nullptr;
    CU_OK(cu.cuMemAllocHost(reinterpret_cast<void**>(&in), sizeof(int)));
    CU_OK(cu.cuMemAllocHost(reinterpret_cast<void**>(&out), sizeof(int)));
    begin_capture(stream);
    CU_OK(cu.cuMemcpyHtoDAsync(value.address, in, sizeof(int), stream));
    CU_OK(launch(module.function("add"), stream, value.address, 1, 5));
    CU_OK(cu.cuMemcpyDtoHAsync(out, value.address, sizeof(int), stream));
    Graph graph = end_capture(stream);
    GraphExec exec(graph);
    for (int number : {1, 100}) {
        *in = number;
        exec.run(stream);
        CHECK(*out == number + 5);
    }
    CU_OK(cu.cuMemFreeHost(in));
    CU_OK(cu.cuMemFreeHost(out));
}

TEST_CASE("copies of ordinary host memory are captured, too", "[graph][capture]") {
    Gpu gpu;
    Stream stream;
    std::vector<int> in(100, 1), out(100, 0);
    Memory there(in.size() * sizeof(int)), here(in.size() * sizeof(int));
    begin_capture(stream);
    CU_OK(cu.cuMemcpyHtoDAsync(there.address, in.data(), in.size() * sizeof(int), stream));
    CU_OK(cu.cuMemcpyDtoDAsync(here.address, there.address, in.size() * sizeof(int), stream));
    CU_OK(cu.cuMemcpyDtoHAsync(out.data(), here.address, out.size() * sizeof(int), stream));
    Graph graph = end_capture(stream);
    GraphExec exec(graph);
    for (int number : {4, 9}) {
        std::fill(in.begin(), in.end(), number);
        exec.run(stream);
        CHECK(out == in);
    }
}

TEST_CASE("2D and 3D copies and fills are captured", "[graph][capture]") {
    Gpu gpu;
    Stream stream;
    Memory from(16 * 8), to(16 * 8);
    begin_capture(stream);
    CU_OK(cu.cuMemsetD8Async(to.address, 0, 16 * 8, stream));
    CU_OK(cu.cuMemsetD2D8Async(from.address, 16, 7, 4, 8, stream));
    CU_OK(cu.cuMemsetD16Async(from.address + 16, 0x0302, 1, stream));
    CUDA_MEMCPY2D flat{};
    flat.srcMemoryType = flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    flat.srcDevice = from.address;
    flat.dstDevice = to.address;
    flat.srcPitch = flat.dstPitch = 16;
    flat.WidthInBytes = 4;
    flat.Height = 4;
    CU_OK(cu.cuMemcpy2DAsync(&flat, stream));
    CUDA_MEMCPY3D deep{};
    deep.srcMemoryType = deep.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    deep.srcDevice = from.address;
    deep.dstDevice = to.address;
    deep.srcPitch = deep.dstPitch = 16;
    deep.srcHeight = deep.dstHeight = 2;
    deep.srcZ = deep.dstZ = 2;
    deep.WidthInBytes = 4;
    deep.Height = 2;
    deep.Depth = 2;
    CU_OK(cu.cuMemcpy3DAsync(&deep, stream));
    Graph graph = end_capture(stream);
    REQUIRE(graph.nodes().size() == 5);
    GraphExec(graph).run(stream);
    auto bytes = to.read<unsigned char>(16 * 8);
    std::vector<unsigned char> expected(16 * 8, 0);
    for (size_t y = 0; y < 8; ++y) std::memset(expected.data() + 16 * y, 7, 4);
    expected[16] = 2, expected[17] = 3;
    CHECK(bytes == expected);
}

TEST_CASE("captured host functions are called at every launch", "[graph][capture]") {
    Gpu gpu;
    Stream stream;
    int calls = 0;
    begin_capture(stream);
    CU_OK(cu.cuLaunchHostFunc(
        stream, [](void* count) { ++*static_cast<int*>(count); }, &calls));
    Graph graph = end_capture(stream);
    GraphExec exec(graph);
    CHECK(calls == 0);
    exec.run(stream);
    exec.run(stream);
    CHECK(calls == 2);
}

TEST_CASE("captured writes and waits of words become one node each", "[graph][capture]") {
    Gpu gpu;
    Stream stream;
    Memory word(std::vector<unsigned>{0});
    begin_capture(stream);
    CU_OK(cu.cuStreamWriteValue32(stream, word.address, 7, 0));
    CU_OK(cu.cuStreamWaitValue32(stream, word.address, 7, CU_STREAM_WAIT_VALUE_EQ));
    Graph graph = end_capture(stream);
    auto nodes = graph.nodes();
    REQUIRE(nodes.size() == 2);
    CHECK(type_of(nodes[0]) == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
    GraphExec(graph).run(stream);
    CHECK(word.first<unsigned>() == 7);
}

TEST_CASE("kernel parameters are those of the capture", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(sizeof(int));
    int number = 3;
    void* parameters[] = {&value.address, &number};
    begin_capture(stream);
    CU_OK(cu.cuLaunchKernel(module.function("store"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
    number = 4;
    Graph graph = end_capture(stream);
    GraphExec(graph).run(stream);
    CHECK(value.first<int>() == 3);
}

TEST_CASE("the nodes of a stream come after each other", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0});
    begin_capture(stream);
    for (int i = 0; i < 20; ++i) CU_OK(launch(module.function("advance"), stream, value.address, i, i + 1));
    Graph graph = end_capture(stream);
    auto nodes = graph.nodes();
    REQUIRE(nodes.size() == 20);
    CHECK(graph.edges() == 19);
    for (size_t i = 1; i < nodes.size(); ++i)
        CHECK(dependencies_of(nodes[i]) == std::vector<CUgraphNode>{nodes[i - 1]});
    GraphExec(graph).run(stream);
    CHECK(value.first<int>() == 20);
}

TEST_CASE("a capture forks into other streams and joins them again", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream first, second, third;
    Event forked, second_done, third_done;
    Memory values(std::vector<int>{0, 0, 0, 0});
    auto at = [&](size_t index) { return values.address + index * sizeof(int); };
    begin_capture(first);
    CU_OK(launch(module.function("store"), first, at(0), 1));
    CU_OK(cu.cuEventRecord(forked, first));
    CU_OK(cu.cuStreamWaitEvent(second, forked, 0));
    CU_OK(cu.cuStreamWaitEvent(third, forked, 0));
    CHECK(capture_status(second) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CU_OK(launch(module.function("copy_ints"), second, at(0), at(1), 1));
    CU_OK(launch(module.function("copy_ints"), third, at(0), at(2), 1));
    CU_OK(cu.cuEventRecord(second_done, second));
    CU_OK(cu.cuEventRecord(third_done, third));
    CU_OK(cu.cuStreamWaitEvent(first, second_done, 0));
    CU_OK(cu.cuStreamWaitEvent(first, third_done, 0));
    CU_OK(launch(module.function("add"), first, at(1), 2, 5));
    Graph graph = end_capture(first);
    CHECK(capture_status(second) == CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(capture_status(third) == CU_STREAM_CAPTURE_STATUS_NONE);
    auto nodes = graph.nodes();
    REQUIRE(nodes.size() == 4);
    CHECK(dependencies_of(nodes[1]) == std::vector<CUgraphNode>{nodes[0]});
    CHECK(dependencies_of(nodes[2]) == std::vector<CUgraphNode>{nodes[0]});
    auto last = dependencies_of(nodes[3]);
    CHECK(std::vector<CUgraphNode>(last.begin(), last.end()).size() == 3);
    GraphExec(graph).run(first);
    CHECK(values.read<int>(4) == std::vector<int>{1, 6, 6, 0});
}

TEST_CASE("a captured launch that may overlap depends on the one before by its trigger", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0});
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
    begin_capture(stream);
    for (int i = 0; i < 2; ++i) {
        int to = i + 1;
        void* parameters[] = {&value.address, &i, &to};
        CU_OK(cu.cuLaunchKernelEx(&config, module.function("advance"), parameters, nullptr));
    }
    Graph graph = end_capture(stream);
    CUgraphNode from = nullptr, to = nullptr;
    CUgraphEdgeData data{};
    size_t count = 1;
    CU_CHECK(cu.cuGraphGetEdges(graph, &from, &to, nullptr, &count), CUDA_ERROR_LOSSY_QUERY);
    CU_OK(cu.cuGraphGetEdges(graph, &from, &to, &data, &count));
    CHECK(data.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
    CHECK(data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
    GraphExec(graph).run(stream);
    CHECK(value.first<int>() == 2);
}

TEST_CASE("events of an earlier capture are forgotten when they are recorded again", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream, other;
    Event event;
    Memory value(std::vector<int>{0});
    begin_capture(stream);
    CU_OK(launch(module.function("store"), stream, value.address, 1));
    CU_OK(cu.cuEventRecord(event, stream));
    Graph graph = end_capture(stream);
    CU_CHECK(cu.cuEventQuery(event), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuEventSynchronize(event), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuEventRecord(event, stream));
    CU_OK(cu.cuStreamWaitEvent(other, event, 0));
    CU_OK(cu.cuEventSynchronize(event));
}

TEST_CASE("a graph may be captured from the default stream of a thread", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Memory value(std::vector<int>{0});
    begin_capture(CU_STREAM_PER_THREAD);
    CU_OK(launch(module.function("store"), CU_STREAM_PER_THREAD, value.address, 8));
    Graph graph = end_capture(CU_STREAM_PER_THREAD);
    GraphExec(graph).run(CU_STREAM_PER_THREAD);
    CHECK(value.first<int>() == 8);
}

TEST_CASE("nothing captured is an empty graph, which runs", "[graph][capture]") {
    Gpu gpu;
    Stream stream;
    begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    Graph graph = end_capture(stream);
    CHECK(graph.nodes().empty());
    GraphExec(graph).run(stream);
}

TEST_CASE("what is captured can be asked for and its order changed", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0, 0});
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    cuuint64_t first_id = 0, second_id = 0;
    CUgraph graph = nullptr;
    const CUgraphNode* nodes = nullptr;
    const CUgraphEdgeData* data = nullptr;
    size_t count = 99;
    CU_OK(cu.cuStreamGetCaptureInfo(stream, &status, &first_id, &graph, &nodes, &data, &count));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    CU_CHECK(cu.cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
             CUDA_ERROR_ILLEGAL_STATE);
    begin_capture(stream);
    CU_OK(launch(module.function("store"), stream, value.address, 1));
    CU_OK(cu.cuStreamGetCaptureInfo(stream, &status, &first_id, &graph, &nodes, &data, &count));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    REQUIRE(count == 1);
    CHECK(type_of(nodes[0]) == CU_GRAPH_NODE_TYPE_KERNEL);
    CUgraphNode root = nodes[0], empty = nullptr;
    CU_OK(cu.cuGraphAddEmptyNode(&empty, graph, &root, 1));
    CU_OK(cu.cuStreamUpdateCaptureDependencies(stream, &empty, nullptr, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    CU_OK(launch(module.function("store"), stream, value.address + 4, 1));
    CU_OK(cu.cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count));
    REQUIRE(count == 1);
    CHECK(dependencies_of(nodes[0]) == std::vector<CUgraphNode>{root, empty});
    CU_OK(cu.cuStreamUpdateCaptureDependencies(stream, &empty, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    CU_OK(cu.cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count));
    REQUIRE(count == 1);
    CHECK(nodes[0] == empty);
    CU_CHECK(cu.cuStreamUpdateCaptureDependencies(stream, &empty, nullptr, 1, 7), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuStreamGetCaptureInfo(stream, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphDestroy(graph), CUDA_ERROR_ILLEGAL_STATE);  // the capture's as long as it goes on
    Graph ended = end_capture(stream);
    CHECK(ended.handle == graph);
    begin_capture(stream);
    CU_OK(cu.cuStreamGetCaptureInfo(stream, &status, &second_id, nullptr, nullptr, nullptr, nullptr));
    Graph again = end_capture(stream);
    CHECK(second_id != first_id);
}

TEST_CASE("what has joined a capture may be left out of its order", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream, other;
    Event forked, done;
    Memory values(std::vector<int>{0, 0});
    begin_capture(stream);
    CU_OK(cu.cuEventRecord(forked, stream));
    CU_OK(cu.cuStreamWaitEvent(other, forked, 0));
    CU_OK(launch(module.function("store"), other, values.address, 3));
    CU_OK(cu.cuEventRecord(done, other));
    CU_OK(cu.cuStreamWaitEvent(stream, done, 0));
    CU_OK(cu.cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    CU_OK(launch(module.function("store"), stream, values.address + sizeof(int), 4));
    Graph graph = end_capture(stream);
    CHECK(graph.nodes().size() == 2);
    CHECK(graph.edges() == 0);
    GraphExec(graph).run(stream);
    CHECK(values.read<int>(2) == std::vector<int>{3, 4});
}

TEST_CASE("a stream can be captured into a graph that exists", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0});
    Graph graph;
    CUgraphNode root = nullptr;
    CU_OK(cu.cuGraphAddEmptyNode(&root, graph, nullptr, 0));
    CU_OK(cu.cuStreamBeginCaptureToGraph(stream, graph, &root, nullptr, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_OK(launch(module.function("store"), stream, value.address, 3));
    CUgraph ended = nullptr;
    CU_OK(cu.cuStreamEndCapture(stream, &ended));
    CHECK(ended == graph.handle);
    REQUIRE(graph.nodes().size() == 2);
    CHECK(dependencies_of(graph.nodes()[1]) == std::vector<CUgraphNode>{root});
    GraphExec(graph).run(stream);
    CHECK(value.first<int>() == 3);
    CUgraphNode last = graph.nodes()[1];
    CU_OK(cu.cuStreamBeginCaptureToGraph(stream, graph, &last, nullptr, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_OK(launch(module.function("store"), stream, value.address, 4));
    CU_OK(cu.cuStreamEndCapture(stream, nullptr));  // the graph is known
    GraphExec(graph).run(stream);
    CHECK(value.first<int>() == 4);
    CUgraphNode stranger = nullptr;
    Graph other;
    CU_OK(cu.cuGraphAddEmptyNode(&stranger, other, nullptr, 0));
    CU_CHECK(cu.cuStreamBeginCaptureToGraph(stream, graph, &stranger, nullptr, 1, CU_STREAM_CAPTURE_MODE_GLOBAL),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuStreamBeginCaptureToGraph(stream, nullptr, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_GLOBAL),
             CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a graph cannot be launched in a captured stream", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0});
    begin_capture(stream);
    CU_OK(launch(module.function("add"), stream, value.address, 1, 1));
    Graph inner = end_capture(stream);
    GraphExec inner_exec(inner);
    begin_capture(stream);
    CU_CHECK(cu.cuGraphLaunch(inner_exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph outer = nullptr;
    CU_CHECK(cu.cuStreamEndCapture(stream, &outer), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    inner_exec.run(stream);
    CHECK(value.first<int>() == 1);
}

TEST_CASE("external events are recorded and waited for when the graph runs", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream, other;
    Event before, after;
    Memory values(std::vector<int>{0, 0});
    begin_capture(stream);
    CU_OK(cu.cuStreamWaitEvent(stream, before, CU_EVENT_WAIT_EXTERNAL));
    CU_OK(launch(module.function("copy_ints"), stream, values.address, values.address + 4, 1));
    CU_OK(cu.cuEventRecordWithFlags(after, stream, CU_EVENT_RECORD_EXTERNAL));
    Graph graph = end_capture(stream);
    auto nodes = graph.nodes();
    REQUIRE(nodes.size() == 3);
    CHECK(type_of(nodes[0]) == CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    CHECK(type_of(nodes[2]) == CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    CU_CHECK(cu.cuEventQuery(after), CUDA_SUCCESS);  // it was not recorded
    GraphExec exec(graph);
    {
        Gate gate(other);
        CU_OK(launch(module.function("store"), other, values.address, 6));
        CU_OK(cu.cuEventRecord(before, other));
        CU_OK(cu.cuGraphLaunch(exec, stream));
        CU_CHECK(cu.cuEventQuery(after), CUDA_ERROR_NOT_READY);
    }
    CU_OK(cu.cuEventSynchronize(after));
    CHECK(values.read<int>(2)[1] == 6);
}

// The streams have worked on it before, and only another one has been waited for.
TEST_CASE("the program touches mapped memory while streams that have used it are captured", "[capture][pinned]") {
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING), joining(CU_STREAM_NON_BLOCKING), waited(CU_STREAM_NON_BLOCKING);
    Event reached(CU_EVENT_DISABLE_TIMING);
    int* mapped = nullptr;
    CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&mapped), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    *mapped = 0;
    Memory value(std::vector<int>{1});
    const Module module;
    const auto add = module.function("add");
    auto chain = [&](CUstream before, CUstream after) {
        CU_OK(cu.cuEventRecord(reached, before));
        CU_OK(cu.cuStreamWaitEvent(after, reached, 0));
    };
    CU_OK(cu.cuCtxSynchronize());
    for (int round = 1; round <= 5; ++round) {
        CU_OK(launch(add, stream, mapped, 1, 1));
        chain(stream, joining);
        CU_OK(launch(add, joining, mapped, 1, 1));
        chain(joining, waited);
        CU_OK(cu.cuStreamSynchronize(waited));
        begin_capture(stream);
        CHECK(*mapped == 2 * round);
        CU_OK(launch(add, stream, value.address, 1, 1));
        chain(stream, joining);
        CHECK(*mapped == 2 * round);
        CU_OK(launch(add, joining, value.address, 1, 1));
        CHECK(capture_status(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
        chain(joining, stream);
        auto graph = end_capture(stream);
        GraphExec(graph).run(stream);
        CHECK(value.first<int>() == 1 + 2 * round);
    }
    CU_OK(cu.cuMemFreeHost(mapped));
}
