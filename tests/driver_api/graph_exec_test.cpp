// Instances of graphs: launches, their order and lifetime, and what can be changed in them.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "graph.hpp"

using namespace driver_api;

namespace {

using Store = KernelNode<CUdeviceptr, int>;
using Advance = KernelNode<CUdeviceptr, int, int>;

CUgraphExecUpdateResult updated(CUgraphExec exec, CUgraph graph, CUgraphNode* node = nullptr,
                                CUgraphNode* from = nullptr) {
    CUgraphExecUpdateResultInfo report{};
    CUresult code = cu.cuGraphExecUpdate(exec, graph, &report);
    CHECK(name_of(code) ==
          (report.result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"));
    if (node) *node = report.errorNode;
    if (from) *from = report.errorFromNode;
    return report.result;
}

}  // namespace

TEST_CASE("an instance is launched after the work of its stream and before what follows", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    Memory value(std::vector<int>{0});
    Advance(module.function("advance"), value.address, 1, 2).add(graph);
    GraphExec exec(graph);
    Gate gate(stream);
    CU_OK(launch(module.function("advance"), stream, value.address, 0, 1));
    CU_OK(cu.cuGraphLaunch(exec, stream));
    CU_OK(launch(module.function("advance"), stream, value.address, 2, 3));
    CU_CHECK(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    gate.open();
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(value.first<int>() == 3);
}

TEST_CASE("two launches of an instance do not overlap, whatever their streams", "[graph]") {
    Gpu gpu;
    Stream first(CU_STREAM_NON_BLOCKING), second(CU_STREAM_NON_BLOCKING);
    Graph graph;
    struct {
        std::atomic<int> running{0}, most{0}, calls{0};
    } seen;
    using Seen = decltype(seen);
    CUDA_HOST_NODE_PARAMS host{[](void* data) {
                                   auto& s = *static_cast<Seen*>(data);
                                   if (int now = ++s.running; now > s.most) s.most = now;
                                   std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                   --s.running, ++s.calls;
                               },
                               &seen};
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphAddHostNode(&node, graph, nullptr, 0, &host));
    GraphExec exec(graph);
    for (int i = 0; i < 4; ++i) {
        CU_OK(cu.cuGraphLaunch(exec, first));
        CU_OK(cu.cuGraphLaunch(exec, second));
    }
    CU_OK(cu.cuStreamSynchronize(first));
    CU_OK(cu.cuStreamSynchronize(second));
    CHECK(seen.calls == 8);
    CHECK(seen.most == 1);
}

TEST_CASE("threads capture, launch and destroy graphs side by side", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Graph shared_graph;
    Memory shared(std::vector<int>{0});
    KernelNode<CUdeviceptr, int, int>(module.function("add"), shared.address, 1, 1).add(shared_graph);
    GraphExec shared_exec(shared_graph);
    CUfunction add = module.function("add");
    constexpr int rounds = 10, launches = 3;
    std::atomic<int> failures{0};
    std::vector<std::unique_ptr<Memory>> values;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) values.push_back(std::make_unique<Memory>(std::vector<int>{0}));
    for (auto& value : values)
        threads.emplace_back([&, address = value->address] {
            auto done = [&](CUresult result) { failures += result != CUDA_SUCCESS; };
            CUstream stream = nullptr;
            done(cu.cuCtxSetCurrent(gpu.context));
            done(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            for (int round = 0; round < rounds; ++round) {
                CUgraph graph = nullptr;
                CUgraphExec exec = nullptr;
                done(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
                done(launch(add, stream, address, 1, 1));
                done(launch(add, stream, address, 1, 1));
                done(cu.cuStreamEndCapture(stream, &graph));
                done(cu.cuGraphInstantiate(&exec, graph, 0));
                done(cu.cuGraphDestroy(graph));
                for (int i = 0; i < launches; ++i) {
                    done(cu.cuGraphLaunch(exec, stream));
                    done(cu.cuGraphLaunch(shared_exec, stream));
                }
                done(cu.cuGraphExecDestroy(exec));
            }
            done(cu.cuStreamSynchronize(stream));
            done(cu.cuStreamDestroy(stream));
        });
    for (auto& thread : threads) thread.join();
    CHECK(failures == 0);
    for (auto& value : values) CHECK(value->first<int>() == 2 * launches * rounds);
    CHECK(shared.first<int>() == 4 * launches * rounds);  // one launch at a time
}

TEST_CASE("an instance, its graph and its module may go while it runs", "[graph]") {
    Gpu gpu;
    Stream stream;
    Memory value(std::vector<int>{0});
    {
        Module module;
        Graph graph;
        CUgraphNode first = Advance(module.function("advance"), value.address, 0, 1).add(graph);
        Advance(module.function("advance"), value.address, 1, 2).add(graph, {first});
        GraphExec exec(graph);
        exec.run(stream);  // it is loaded then, which may wait for all that is under way
        CU_OK(cu.cuMemsetD32(value.address, 0, 1));
        CU_OK(cu.cuCtxSynchronize());
        Gate gate(stream);
        CU_OK(cu.cuGraphLaunch(exec, stream));
        CU_OK(cu.cuGraphExecDestroy(exec));
        exec.handle = nullptr;
        gate.open();
        CU_OK(cu.cuStreamSynchronize(stream));
    }
    CHECK(value.first<int>() == 2);
}

TEST_CASE("a launch under way keeps the parameters that it began with", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    Memory values(std::vector<int>{0, 0});
    CUgraphNode node = Store(module.function("store"), values.address, 5).add(graph);
    GraphExec exec(graph);
    {
        Gate gate(stream);
        CU_OK(cu.cuGraphLaunch(exec, stream));
        Store other(module.function("store"), values.address + 4, 6);
        CU_OK(cu.cuGraphExecKernelNodeSetParams(exec, node, &other.parameters));
    }
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(values.read<int>(2) == std::vector<int>{5, 0});
    exec.run(stream);
    CHECK(values.read<int>(2) == std::vector<int>{5, 6});
    GraphExec fresh(graph);  // the graph's node is as it was
    CU_OK(cu.cuMemsetD32(values.address, 0, 2));
    fresh.run(stream);
    CHECK(values.read<int>(2) == std::vector<int>{5, 0});
}

TEST_CASE("instances of all flags", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    Memory value(sizeof(int));
    Store(module.function("store"), value.address, 5).add(graph);
    cuuint64_t flags = 99;
    GraphExec exec(graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
    CU_OK(cu.cuGraphExecGetFlags(exec, &flags));
    CHECK(flags == 0);  // this one is not told
    CUgraphExec other = nullptr;
    CU_CHECK(cu.cuGraphInstantiate(&other, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphInstantiate(&other, graph, 1 << 20), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(
        cu.cuGraphInstantiate(
            &other, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH),
        CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphInstantiate(nullptr, graph, 0), CUDA_ERROR_INVALID_VALUE);
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
    parameters.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    parameters.hUploadStream = stream;
    CU_OK(cu.cuGraphInstantiateWithParams(&other, graph, &parameters));
    CHECK(parameters.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
    CU_OK(cu.cuGraphExecGetFlags(other, &flags));
    CHECK(flags == 0);
    CU_OK(cu.cuGraphUpload(other, stream));
    CU_OK(cu.cuGraphLaunch(other, stream));
    CU_OK(cu.cuGraphExecDestroy(other));
    CHECK(value.first<int>() == 5);
    parameters.flags = 0;
    parameters.hUploadStream = reinterpret_cast<CUstream>(0x5a5a5a50);  // is not looked at
    CU_OK(cu.cuGraphInstantiateWithParams(&other, graph, &parameters));
    CHECK(parameters.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
    CU_OK(cu.cuGraphExecDestroy(other));
    CU_CHECK(cu.cuGraphInstantiateWithParams(&other, nullptr, &parameters), CUDA_ERROR_INVALID_VALUE);
    CHECK(parameters.result_out == CUDA_GRAPH_INSTANTIATE_ERROR);
}

TEST_CASE("nodes of an instance are switched off and on", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    Memory value(std::vector<int>{0});
    CUgraphNode first = Advance(module.function("advance"), value.address, 0, 1).add(graph),
                second = Advance(module.function("advance"), value.address, 0, 7).add(graph, {first}),
                empty = add_empty_node(graph, {second});
    GraphExec exec(graph);
    unsigned enabled = 9;
    CU_OK(cu.cuGraphNodeGetEnabled(exec, first, &enabled));
    CHECK(enabled == 1);
    CU_OK(cu.cuGraphNodeSetEnabled(exec, first, 0));
    CU_OK(cu.cuGraphNodeGetEnabled(exec, first, &enabled));
    CHECK(enabled == 0);
    exec.run(stream);
    CHECK(value.first<int>() == 7);
    CU_OK(cu.cuGraphNodeSetEnabled(exec, first, 1));
    CU_OK(cu.cuMemsetD32(value.address, 0, 1));
    exec.run(stream);
    CHECK(value.first<int>() == 1);
    CU_CHECK(cu.cuGraphNodeSetEnabled(exec, empty, 0), CUDA_ERROR_INVALID_VALUE);  // kernels, copies and fills only
    CU_CHECK(cu.cuGraphNodeSetEnabled(exec, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuGraphDestroyNode(first));
    CU_CHECK(cu.cuGraphNodeSetEnabled(exec, first, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an instance takes over the parameters of a graph that is like its own", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0});
    auto capture = [&](int start) {
        begin_capture(stream);
        CU_OK(cu.cuMemsetD32Async(value.address, unsigned(start), 1, stream));
        CU_OK(launch(module.function("add"), stream, value.address, 1, start));
        return end_capture(stream);
    };
    Graph graph = capture(1), same = capture(10);
    GraphExec exec(graph);
    CHECK(updated(exec, same) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    exec.run(stream);
    CHECK(value.first<int>() == 20);
    // By the original's node still.
    KernelNode<CUdeviceptr, int, int> add(module.function("add"), value.address, 1, 5);
    CU_OK(cu.cuGraphExecKernelNodeSetParams(exec, graph.nodes()[1], &add.parameters));
    exec.run(stream);
    CHECK(value.first<int>() == 15);
}

TEST_CASE("an update from a graph of another shape fails, says where and changes nothing", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0});
    CUgraphNode error = nullptr, from = nullptr;
    Graph graph;
    Store five(module.function("store"), value.address, 5), six(module.function("store"), value.address, 6);
    CUgraphNode first = five.add(graph);
    CUgraphNode last = add_empty_node(graph, {first});
    (void)last;
    GraphExec exec(graph);
    SECTION("another number of nodes") {
        Graph other;
        six.add(other);
        CHECK(updated(exec, other, &error) == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
        CHECK(error == nullptr);
    }
    SECTION("other edges") {
        Graph other;
        six.add(other);
        add_empty_node(other);
        CHECK(updated(exec, other, &error) == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
        CHECK(error != nullptr);
    }
    SECTION("another type of node") {
        Graph other;
        CUgraphNode node = add_empty_node(other);
        add_empty_node(other, {node});
        CHECK(updated(exec, other, &error) == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
        CHECK(error == node);
    }
    SECTION("a kernel that has become cooperative") {
        Graph other;
        CUgraphNode node = six.add(other);
        add_empty_node(other, {node});
        CUkernelNodeAttrValue attribute{};
        attribute.cooperative = 1;
        CU_OK(cu.cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &attribute));
        CHECK(updated(exec, other, &error, &from) == CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED);
        CHECK(error == node);
        CHECK(from == nullptr);
    }
    exec.run(stream);
    CHECK(value.first<int>() == 5);
    CUgraphExecUpdateResultInfo report{};
    CU_CHECK(cu.cuGraphExecUpdate(exec, nullptr, &report), CUDA_ERROR_INVALID_VALUE);
    CHECK(report.result == CU_GRAPH_EXEC_UPDATE_ERROR);
    CU_CHECK(cu.cuGraphExecUpdate(nullptr, graph, &report), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an update pairs nodes by their edges, not by when they were made", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0});
    Graph graph, other;
    Advance a(module.function("advance"), value.address, 0, 1), b(module.function("advance"), value.address, 1, 2),
        c(module.function("advance"), value.address, 0, 10), d(module.function("advance"), value.address, 10, 20);
    CUgraphNode first = a.add(graph);
    b.add(graph, {first});
    GraphExec exec(graph);
    CUgraphNode later = d.add(other), earlier = c.add(other);  // the last one first
    CU_OK(cu.cuGraphAddDependencies(other, &earlier, &later, nullptr, 1));
    CHECK(updated(exec, other) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    exec.run(stream);
    CHECK(value.first<int>() == 20);
}

TEST_CASE("copies, fills, host functions and events of an instance are changed", "[graph]") {
    Gpu gpu;
    Stream stream;
    Graph graph;
    Memory from(std::vector<int>{1, 2}), to(std::vector<int>{0, 0}), filled(16);
    int calls = 0, other_calls = 0;
    auto count = [](void* data) { ++*static_cast<int*>(data); };
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from.address;
    copy.dstDevice = to.address;
    copy.WidthInBytes = 4;
    copy.Height = copy.Depth = 1;
    CUDA_MEMSET_NODE_PARAMS fill{filled.address, 0, 1, 1, 16, 1};
    CUDA_HOST_NODE_PARAMS host{count, &calls};
    Event first, second;
    CUgraphNode copied = nullptr, set = nullptr, called = nullptr, recorded = nullptr;
    CU_OK(cu.cuGraphAddMemcpyNode(&copied, graph, nullptr, 0, &copy, gpu.context));
    CU_OK(cu.cuGraphAddMemsetNode(&set, graph, nullptr, 0, &fill, gpu.context));
    CU_OK(cu.cuGraphAddHostNode(&called, graph, nullptr, 0, &host));
    CU_OK(cu.cuGraphAddEventRecordNode(&recorded, graph, nullptr, 0, first));
    GraphExec exec(graph);
    copy.srcDevice = from.address + 4;
    copy.dstDevice = to.address + 4;
    CU_OK(cu.cuGraphExecMemcpyNodeSetParams(exec, copied, &copy, gpu.context));
    auto unified = copy;  // the same memory, but named as another type
    unified.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    CU_CHECK(cu.cuGraphExecMemcpyNodeSetParams(exec, copied, &unified, gpu.context), CUDA_ERROR_INVALID_VALUE);
    fill.value = 3;
    CU_OK(cu.cuGraphExecMemsetNodeSetParams(exec, set, &fill, gpu.context));
    host.userData = &other_calls;
    CU_OK(cu.cuGraphExecHostNodeSetParams(exec, called, &host));
    CU_OK(cu.cuGraphExecEventRecordNodeSetEvent(exec, recorded, second));
    CU_CHECK(cu.cuGraphExecEventWaitNodeSetEvent(exec, recorded, second), CUDA_ERROR_INVALID_VALUE);  // another type
    exec.run(stream);
    CHECK(to.read<int>(2) == std::vector<int>{0, 2});
    CHECK(filled.first<unsigned char>() == 3);
    CHECK(calls == 0);
    CHECK(other_calls == 1);
    float time_ms = 0;
    CU_CHECK(cu.cuEventElapsedTime(&time_ms, second, second), CUDA_SUCCESS);
    CU_CHECK(cu.cuEventElapsedTime(&time_ms, first, first), CUDA_ERROR_INVALID_HANDLE);  // never recorded
    copy.Height = 2;
    CU_CHECK(cu.cuGraphExecMemcpyNodeSetParams(exec, copied, &copy, gpu.context), CUDA_ERROR_INVALID_VALUE);
    fill.height = 2;
    fill.width = 4;
    fill.pitch = 8;
    CU_CHECK(cu.cuGraphExecMemsetNodeSetParams(exec, set, &fill, gpu.context), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a child of an instance is changed as a whole", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0});
    Graph child, like_it, unlike, parent;
    CUgraphNode inner = Store(module.function("store"), value.address, 1).add(child), node = nullptr;
    Store(module.function("store"), value.address, 2).add(like_it);
    add_empty_node(unlike);
    CU_OK(cu.cuGraphAddChildGraphNode(&node, parent, nullptr, 0, child));
    GraphExec exec(parent);
    CU_OK(cu.cuGraphExecChildGraphNodeSetParams(exec, node, like_it));
    exec.run(stream);
    CHECK(value.first<int>() == 2);
    CU_CHECK(cu.cuGraphExecChildGraphNodeSetParams(exec, node, unlike), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CUgraph embedded = nullptr;
    CUgraphNode found = nullptr;
    CU_OK(cu.cuGraphChildGraphNodeGetGraph(node, &embedded));
    CU_OK(cu.cuGraphNodeFindInClone(&found, inner, embedded));
    Store three(module.function("store"), value.address, 3);
    CU_OK(cu.cuGraphExecKernelNodeSetParams(exec, found, &three.parameters));  // a node within
    exec.run(stream);
    CHECK(value.first<int>() == 3);
}

FRESH_PROCESS_TEST_CASE("a kernel that faults in a graph fails the context and stops the graph", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    int calls = 0;
    CUDA_HOST_NODE_PARAMS host{[](void* data) { ++*static_cast<int*>(data); }, &calls};
    CUgraphNode bad = KernelNode<CUdeviceptr, int>(module.function("store"), 0x10, 1).add(graph), node = nullptr;
    CU_OK(cu.cuGraphAddHostNode(&node, graph, &bad, 1, &host));
    GraphExec exec(graph);
    CU_OK(cu.cuGraphLaunch(exec, stream));
    CU_CHECK(cu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(calls == 0);
    CU_CHECK(cu.cuGraphLaunch(exec, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

FRESH_PROCESS_TEST_CASE("a copy in a graph of memory that is gone fails the context", "[local][graph]") {
    Gpu gpu;
    Stream stream;
    CUgraphExec exec = nullptr;
    {
        Memory from(1 << 20), to(1 << 20);
        Graph graph;
        CUgraphNode node = nullptr;
        CUDA_MEMCPY3D copy{};
        copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = from.address;
        copy.dstDevice = to.address;
        copy.WidthInBytes = 1 << 20;
        copy.Height = copy.Depth = 1;
        CU_OK(cu.cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, gpu.context));
        CU_OK(cu.cuGraphInstantiate(&exec, graph, 0));
    }
    CU_OK(cu.cuGraphLaunch(exec, stream));
    CU_CHECK(cu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("windows of access policy that make no sense are refused", "[graph]") {
    Gpu gpu;
    Module module;
    Graph graph;
    Memory value(sizeof(int));
    CUgraphNode node = Store(module.function("store"), value.address, 5).add(graph);
    int most = 0;
    CU_OK(cu.cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, gpu.device));
    CUkernelNodeAttrValue good{};
    good.accessPolicyWindow.base_ptr = reinterpret_cast<void*>(value.address);
    good.accessPolicyWindow.num_bytes = sizeof(int);
    good.accessPolicyWindow.hitRatio = 0.5F;
    good.accessPolicyWindow.hitProp = CU_ACCESS_PROPERTY_PERSISTING;
    good.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_STREAMING;
    auto set = [&](const CUkernelNodeAttrValue& wanted) {
        return cu.cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &wanted);
    };
    CU_OK(set(good));
    auto bad = good;
    bad.accessPolicyWindow.hitRatio = 1.5F;
    CU_CHECK(set(bad), CUDA_ERROR_INVALID_VALUE);
    bad.accessPolicyWindow.hitRatio = -0.5F;
    CU_CHECK(set(bad), CUDA_ERROR_INVALID_VALUE);
    bad = good;
    bad.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_PERSISTING;
    CU_CHECK(set(bad), CUDA_ERROR_INVALID_VALUE);
    bad = good;
    bad.accessPolicyWindow.num_bytes = static_cast<size_t>(most) + 1;
    CU_CHECK(set(bad), CUDA_ERROR_INVALID_VALUE);
    CUkernelNodeAttrValue got{};
    CU_OK(cu.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &got));
    CHECK(got.accessPolicyWindow.hitRatio == 0.5F);
    CHECK(got.accessPolicyWindow.num_bytes == sizeof(int));
    Stream stream;
    CU_OK(cu.cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &good));
    CU_CHECK(cu.cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &bad), CUDA_ERROR_INVALID_VALUE);
}
