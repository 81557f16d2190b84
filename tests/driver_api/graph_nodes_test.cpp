// Graphs built node by node: every type of node, its parameters read back and changed.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "graph.hpp"

using namespace driver_api;

namespace {

CUDA_MEMCPY3D line(CUmemorytype to_type, CUdeviceptr to, CUmemorytype from_type, CUdeviceptr from, size_t bytes) {
    CUDA_MEMCPY3D copy{};
    copy.dstMemoryType = to_type;
    copy.srcMemoryType = from_type;
    if (to_type == CU_MEMORYTYPE_HOST)
        copy.dstHost = reinterpret_cast<void*>(to);
    else
        copy.dstDevice = to;
    if (from_type == CU_MEMORYTYPE_HOST)
        copy.srcHost = reinterpret_cast<const void*>(from);
    else
        copy.srcDevice = from;
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy;
}

void count_call(void* calls) {
    ++*static_cast<int*>(calls);
}

}  // namespace

TEST_CASE("a graph of kernels, copies and fills computes", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    std::vector<int> in{1, 2, 3, 4}, out(4, 0);
    size_t bytes = in.size() * sizeof(int);
    Memory values(bytes), sums(bytes);
    CUgraphNode upload = nullptr, clear = nullptr, download = nullptr;
    auto to_device = line(CU_MEMORYTYPE_DEVICE, values.address, CU_MEMORYTYPE_HOST, address_of(in.data()), bytes);
    auto to_host = line(CU_MEMORYTYPE_HOST, address_of(out.data()), CU_MEMORYTYPE_DEVICE, sums.address, bytes);
    CUDA_MEMSET_NODE_PARAMS fill{sums.address, 0, 7, 4, 2, 1};
    CU_OK(cu.cuGraphAddMemcpyNode(&upload, graph, nullptr, 0, &to_device, gpu.context));
    CU_OK(cu.cuGraphAddMemsetNode(&clear, graph, nullptr, 0, &fill, gpu.context));
    KernelNode<CUdeviceptr, int, int> add(module.function("add"), values.address, 4, 10);
    KernelNode<CUdeviceptr, CUdeviceptr, int> copy(module.function("copy_ints"), values.address, sums.address + 8, 2);
    CUgraphNode added = add.add(graph, {upload}), copied = copy.add(graph, {added, clear});
    CU_OK(cu.cuGraphAddMemcpyNode(&download, graph, &copied, 1, &to_host, gpu.context));
    CHECK(graph.nodes() == std::vector<CUgraphNode>{upload, clear, added, copied, download});
    CHECK(graph.edges() == 4);
    GraphExec exec(graph);
    exec.run(stream);
    CHECK(out == std::vector<int>{7, 7, 11, 12});
    in = {5, 6, 7, 8};
    exec.run(stream);
    CHECK(out == std::vector<int>{7, 7, 15, 16});
}

TEST_CASE("a kernel node's parameters are copied, shown and changed", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    Memory value(sizeof(int));
    CUgraphNode node = nullptr;
    {
        KernelNode<CUdeviceptr, int> store(module.function("store"), value.address, 5);
        node = store.add(graph);
    }
    CUDA_KERNEL_NODE_PARAMS shown{};
    CU_OK(cu.cuGraphKernelNodeGetParams(node, &shown));
    CHECK(shown.func == module.function("store"));
    CHECK(shown.gridDimX == 1);
    REQUIRE(shown.kernelParams);
    CHECK(*static_cast<CUdeviceptr*>(shown.kernelParams[0]) == value.address);
    CHECK(*static_cast<int*>(shown.kernelParams[1]) == 5);
    CHECK(shown.extra == nullptr);
    GraphExec(graph).run(stream);
    CHECK(value.first<int>() == 5);
    int other = 6;
    std::array<void*, 2> pointers{&value.address, &other};
    shown.kernelParams = pointers.data();
    CU_OK(cu.cuGraphKernelNodeSetParams(node, &shown));
    GraphExec(graph).run(stream);
    CHECK(value.first<int>() == 6);
    struct {
        CUdeviceptr out;
        int value;
    } buffer{value.address, 8};
    size_t size = offsetof(decltype(buffer), value) + sizeof buffer.value;  // what the kernel takes and no more
    std::array<void*, 5> extra{CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                               CU_LAUNCH_PARAM_END};
    shown.extra = extra.data();
    CU_CHECK(cu.cuGraphKernelNodeSetParams(node, &shown), CUDA_ERROR_INVALID_VALUE);  // both forms at once
    shown.kernelParams = nullptr;
    CU_OK(cu.cuGraphKernelNodeSetParams(node, &shown));
    CU_OK(cu.cuGraphKernelNodeGetParams(node, &shown));
    CHECK((shown.kernelParams == nullptr) != (shown.extra == nullptr));
    GraphExec(graph).run(stream);
    CHECK(value.first<int>() == 8);
}

TEST_CASE("a copy's, a fill's, a host function's and an event's parameters are shown and changed", "[graph]") {
    Gpu gpu;
    Stream stream;
    Graph graph;
    std::vector<int> in{3}, other_in{4};
    Memory value(sizeof(int)), filled(16);
    CUgraphNode node = nullptr;
    auto copy = line(CU_MEMORYTYPE_DEVICE, value.address, CU_MEMORYTYPE_HOST, address_of(in.data()), sizeof(int));
    CU_OK(cu.cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, gpu.context));
    CUDA_MEMCPY3D shown_copy{};
    CU_OK(cu.cuGraphMemcpyNodeGetParams(node, &shown_copy));
    CHECK(shown_copy.srcHost == in.data());
    CHECK(shown_copy.dstDevice == value.address);
    shown_copy.srcHost = other_in.data();
    CU_OK(cu.cuGraphMemcpyNodeSetParams(node, &shown_copy));
    CUDA_MEMSET_NODE_PARAMS fill{filled.address, 0, 1, 1, 16, 1};
    CU_OK(cu.cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, gpu.context));
    CU_OK(cu.cuGraphMemsetNodeGetParams(node, &fill));
    CHECK(fill.width == 16);
    fill.value = 2;
    CU_OK(cu.cuGraphMemsetNodeSetParams(node, &fill));
    int calls = 0, other_calls = 0;
    CUDA_HOST_NODE_PARAMS host{count_call, &calls};
    CU_OK(cu.cuGraphAddHostNode(&node, graph, nullptr, 0, &host));
    CU_OK(cu.cuGraphHostNodeGetParams(node, &host));
    CHECK(host.fn == count_call);
    CHECK(host.userData == &calls);
    host.userData = &other_calls;
    CU_OK(cu.cuGraphHostNodeSetParams(node, &host));
    Event first, second;
    CUgraphNode record = nullptr, wait = nullptr;
    CUevent event = nullptr;
    CU_OK(cu.cuGraphAddEventRecordNode(&record, graph, &node, 1, first));
    CU_OK(cu.cuGraphEventRecordNodeGetEvent(record, &event));
    CHECK(event == first.handle);
    CU_OK(cu.cuGraphEventRecordNodeSetEvent(record, second));
    CU_OK(cu.cuGraphAddEventWaitNode(&wait, graph, &record, 1, first));
    CU_OK(cu.cuGraphEventWaitNodeSetEvent(wait, second));
    CU_OK(cu.cuGraphEventWaitNodeGetEvent(wait, &event));
    CHECK(event == second.handle);
    GraphExec(graph).run(stream);
    CHECK(value.first<int>() == 4);
    CHECK(filled.read<unsigned char>(16) == std::vector<unsigned char>(16, 2));
    CHECK(calls == 0);
    CHECK(other_calls == 1);
    CU_CHECK(cu.cuEventQuery(second), CUDA_SUCCESS);
}

TEST_CASE("a node that fills more than what is allocated is refused", "[graph]") {
    Gpu gpu;
    Memory memory(1024);
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
    CU_OK(cu.cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = memory.address, fill.elementSize = 4, fill.width = 256, fill.height = 1;
    CU_OK(cu.cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, gpu.context));
    CU_OK(cu.cuGraphInstantiate(&exec, graph, 0));
    auto check_refused = [&] {
        CUgraphNode other = nullptr;
        CU_CHECK(cu.cuGraphAddMemsetNode(&other, graph, nullptr, 0, &fill, gpu.context), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuGraphMemsetNodeSetParams(node, &fill), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuGraphExecMemsetNodeSetParams(exec, node, &fill, gpu.context), CUDA_ERROR_INVALID_VALUE);
    };
    fill.width = 512;  // a row that is too long
    check_refused();
    fill.width = 2, fill.height = 3, fill.pitch = 1024;  // rows too far apart
    check_refused();
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
}

TEST_CASE("a fill's memory may be pinned, and no kernel's before", "[graph][pinned]") {
    Gpu gpu;
    Stream stream;
    Graph graph;
    const size_t count = 16;
    unsigned char* host = nullptr;
    CU_OK(cu.cuMemAllocHost(reinterpret_cast<void**>(&host), count));
    std::vector<unsigned char> ordinary(count), other(4096);
    CU_OK(cu.cuMemHostRegister(other.data(), other.size(), 0));
    CUgraphNode node = nullptr, general = nullptr;
    CUDA_MEMSET_NODE_PARAMS fill{address_of(ordinary.data()), 0, 1, 1, count, 1};
    CU_CHECK(cu.cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, gpu.context), CUDA_ERROR_INVALID_VALUE);
    fill.dst = address_of(host);
    CU_OK(cu.cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, gpu.context));
    CUDA_MEMSET_NODE_PARAMS shown{};
    CU_OK(cu.cuGraphMemsetNodeGetParams(node, &shown));
    CHECK(shown.dst == fill.dst);
    GraphExec exec(graph);
    exec.run(stream);
    CHECK(std::count(host, host + count, 1) == count);
    fill.value = 2, fill.dst += 8, fill.width = 8;
    CU_OK(cu.cuGraphExecMemsetNodeSetParams(exec, node, &fill, gpu.context));
    exec.run(stream);
    CHECK(std::count(host + 8, host + count, 2) == 8);
    CHECK(host[7] == 1);
    fill.value = 3, fill.dst = address_of(other.data() + 100);
    CU_OK(cu.cuGraphMemsetNodeSetParams(node, &fill));
    CU_OK(cu.cuGraphMemsetNodeGetParams(node, &shown));
    CHECK(shown.dst == fill.dst);
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_MEMSET;
    params.memset.dst = address_of(host), params.memset.value = 4, params.memset.elementSize = 1;
    params.memset.width = 4, params.memset.height = 1, params.memset.ctx = gpu.context;
    CU_OK(cu.cuGraphAddNode(&general, graph, nullptr, nullptr, 0, &params));
    GraphExec(graph).run(stream);
    CHECK(std::count(host, host + 4, 4) == 4);
    CHECK(std::count(other.begin(), other.end(), 3) == 8);
    CHECK(other[100] == 3);
    CU_OK(cu.cuMemHostUnregister(other.data()));
    CU_OK(cu.cuMemFreeHost(host));
}

TEST_CASE("a fill of rows and of wide elements", "[graph]") {
    Gpu gpu;
    Stream stream;
    Graph graph;
    Memory rows(std::vector<unsigned short>(32, 0));
    CUgraphNode node = nullptr;
    CUDA_MEMSET_NODE_PARAMS fill{rows.address, 16, 0x1234, 2, 3, 4};
    CU_OK(cu.cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, gpu.context));
    GraphExec(graph).run(stream);
    auto got = rows.read<unsigned short>(32);
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == (i % 8 < 3 ? 0x1234 : 0));
}

TEST_CASE("batches of words are nodes", "[graph]") {
    Gpu gpu;
    Stream stream;
    Graph graph;
    Memory words(std::vector<unsigned>{0, 0});
    std::array<CUstreamBatchMemOpParams, 2> ops{};
    ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[0].writeValue.address = words.address;
    ops[0].writeValue.value = 3;
    ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    ops[1].waitValue.address = words.address;
    ops[1].waitValue.value = 3;
    ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch{gpu.context, 2, ops.data(), 0};
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &batch));
    CUDA_BATCH_MEM_OP_NODE_PARAMS shown{};
    CU_OK(cu.cuGraphBatchMemOpNodeGetParams(node, &shown));
    REQUIRE(shown.count == 2);
    CHECK(shown.paramArray[1].waitValue.value == 3);
    GraphExec exec(graph);
    exec.run(stream);
    CHECK(words.read<unsigned>(2) == std::vector<unsigned>{3, 0});
    ops[0].writeValue.value = ops[1].waitValue.value = 4;
    CU_OK(cu.cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch));
    exec.run(stream);
    CHECK(words.read<unsigned>(2) == std::vector<unsigned>{4, 0});
    batch.count = 1;
    CU_CHECK(cu.cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuGraphBatchMemOpNodeSetParams(node, &batch));
    batch.count = 0;
    CU_OK(cu.cuGraphBatchMemOpNodeSetParams(node, &batch));
}

TEST_CASE("a child graph is copied into its node and runs in its place", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0});
    Graph parent;
    CUgraphNode child_node = nullptr, inner_node = nullptr;
    auto advance = [&](int from) {
        return KernelNode<CUdeviceptr, int, int>(module.function("advance"), value.address, from, from + 1);
    };
    CUgraphNode first = advance(0).add(parent);
    {
        Graph child;
        inner_node = advance(1).add(child);
        advance(2).add(child, {inner_node});
        CU_OK(cu.cuGraphAddChildGraphNode(&child_node, parent, &first, 1, child));
        CUgraph embedded = nullptr;
        CUgraphNode found = nullptr;
        CU_OK(cu.cuGraphChildGraphNodeGetGraph(child_node, &embedded));
        CHECK(embedded != child.handle);
        CU_OK(cu.cuGraphNodeFindInClone(&found, inner_node, embedded));
        CHECK(type_of(found) == CU_GRAPH_NODE_TYPE_KERNEL);
        CU_CHECK(cu.cuGraphDestroy(embedded), CUDA_ERROR_INVALID_VALUE);  // the node's
    }
    advance(3).add(parent, {child_node});
    GraphExec(parent).run(stream);
    CHECK(value.first<int>() == 4);
}

TEST_CASE("a child graph's node gets a copy of another graph", "[graph]") {
    Gpu gpu;
    Stream stream;
    int calls[2] = {}, given_value = 7;
    Memory memory(sizeof(int));
    Graph parent, graphs[2];
    for (int i = 0; i < 2; ++i) {
        CUDA_HOST_NODE_PARAMS host{count_call, &calls[i]};
        CUgraphNode node = nullptr;
        CU_OK(cu.cuGraphAddHostNode(&node, graphs[i], nullptr, 0, &host));
    }
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = &given_value;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE, copy.dstDevice = memory.address;
    copy.WidthInBytes = sizeof(int), copy.Height = copy.Depth = 1;
    CUgraphNode brought = nullptr, child = nullptr, root = nullptr;
    CU_OK(cu.cuGraphAddMemcpyNode(&brought, graphs[1], nullptr, 0, &copy, gpu.context));
    CU_OK(cu.cuGraphAddChildGraphNode(&child, parent, nullptr, 0, graphs[0]));
    CUgraph before = nullptr, after = nullptr;
    size_t count = 1;
    CU_OK(cu.cuGraphChildGraphNodeGetGraph(child, &before));
    CU_OK(cu.cuGraphGetNodes(before, &root, &count));
    GraphExec first(parent);
    CUgraphNodeParams given{};
    given.type = CU_GRAPH_NODE_TYPE_GRAPH;
    given.graph.graph = graphs[1];
    for (int times = 0; times < 2; ++times) CU_OK(cu.cuGraphNodeSetParams(child, &given));
    CU_OK(cu.cuGraphChildGraphNodeGetGraph(child, &after));
    CHECK(after != before);
    CHECK(after != graphs[1].handle);
    CU_OK(cu.cuGraphGetNodes(after, nullptr, &count));
    CHECK(count == 2);
    GraphExec second(parent);
    first.run(stream);
    CHECK((calls[0] == 1 && calls[1] == 0));
    given_value = 8;
    second.run(stream);
    CHECK((calls[0] == 1 && calls[1] == 1));
    CHECK(memory.first<int>() == 8);
    CU_OK(cu.cuGraphDestroyNode(child));
}

TEST_CASE("a child graph can be moved into its parent", "[graph]") {
    Gpu gpu;
    Stream stream;
    Graph parent, child;
    int calls = 0;
    CUDA_HOST_NODE_PARAMS host{count_call, &calls};
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphAddHostNode(&node, child, nullptr, 0, &host));
    CUgraphNodeParams given{};
    given.type = CU_GRAPH_NODE_TYPE_GRAPH;
    given.graph.graph = child;
    given.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    CU_OK(cu.cuGraphAddNode(&node, parent, nullptr, nullptr, 0, &given));
    CU_CHECK(cu.cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE);
    CUgraphExec exec = nullptr;
    CU_CHECK(cu.cuGraphInstantiate(&exec, child, 0), CUDA_ERROR_NOT_SUPPORTED);
    CU_CHECK(cu.cuGraphAddNode(&node, parent, nullptr, nullptr, 0, &given), CUDA_ERROR_NOT_SUPPORTED);
    GraphExec(parent).run(stream);
    CHECK(calls == 1);
    child.handle = nullptr;
}

TEST_CASE("nodes are added and changed by the general function", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    Memory value(std::vector<int>{0});
    KernelNode<CUdeviceptr, int> store(module.function("store"), value.address, 5);
    CUgraphNodeParams given{};
    given.type = CU_GRAPH_NODE_TYPE_KERNEL;
    given.kernel.func = store.parameters.func;
    given.kernel.gridDimX = given.kernel.gridDimY = given.kernel.gridDimZ = 1;
    given.kernel.blockDimX = given.kernel.blockDimY = given.kernel.blockDimZ = 1;
    given.kernel.kernelParams = store.parameters.kernelParams;
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &given));
    GraphExec exec(graph);
    exec.run(stream);
    CHECK(value.first<int>() == 5);
    KernelNode<CUdeviceptr, int> other(module.function("store"), value.address, 6);
    given.kernel.kernelParams = other.parameters.kernelParams;
    CU_OK(cu.cuGraphExecNodeSetParams(exec, node, &given));
    exec.run(stream);
    CHECK(value.first<int>() == 6);
    CU_OK(cu.cuGraphNodeSetParams(node, &given));
    CUgraphNodeParams empty{};
    empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
    CU_CHECK(cu.cuGraphNodeSetParams(node, &empty), CUDA_ERROR_INVALID_VALUE);  // another type
    CU_CHECK(cu.cuGraphExecNodeSetParams(exec, node, &empty), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddNode(&node, graph, nullptr, nullptr, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    empty.type = static_cast<CUgraphNodeType>(77);
    CU_CHECK(cu.cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &empty), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("external semaphores are refused", "[graph]") {
    Gpu gpu;
    Graph graph;
    CUgraphNode node = nullptr;
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS signal{};
    CUDA_EXT_SEM_WAIT_NODE_PARAMS wait{};
    CU_CHECK(cu.cuGraphAddExternalSemaphoresSignalNode(&node, graph, nullptr, 0, &signal), CUDA_ERROR_NOT_SUPPORTED);
    CU_CHECK(cu.cuGraphAddExternalSemaphoresWaitNode(&node, graph, nullptr, 0, &wait), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphNodeParams given{};
    given.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
    CU_CHECK(cu.cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &given), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("kernel nodes keep attributes", "[graph]") {
    Gpu gpu;
    Module module;
    Graph graph;
    Memory value(sizeof(int));
    KernelNode<CUdeviceptr, int> store(module.function("store"), value.address, 5);
    CUgraphNode first = store.add(graph), second = store.add(graph), empty = add_empty_node(graph);
    CUkernelNodeAttrValue attribute{}, got{};
    attribute.priority = -2;
    CU_OK(cu.cuGraphKernelNodeSetAttribute(first, CU_LAUNCH_ATTRIBUTE_PRIORITY, &attribute));
    attribute.cooperative = 1;
    CU_OK(cu.cuGraphKernelNodeSetAttribute(first, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &attribute));
    CU_OK(cu.cuGraphKernelNodeCopyAttributes(second, first));
    CU_OK(cu.cuGraphKernelNodeGetAttribute(second, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got));
    CHECK(got.priority == -2);
    CU_OK(cu.cuGraphKernelNodeGetAttribute(second, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &got));
    CHECK(got.cooperative == 1);
    CU_OK(cu.cuGraphKernelNodeSetParams(second, &store.parameters));  // does not touch them
    CU_OK(cu.cuGraphKernelNodeGetAttribute(second, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got));
    CHECK(got.priority == -2);
    CU_CHECK(cu.cuGraphKernelNodeGetAttribute(empty, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphKernelNodeGetAttribute(first, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got),
             CUDA_ERROR_INVALID_VALUE);  // of streams only
}

TEST_CASE("a graph can be written down for Graphviz", "[graph]") {
    Gpu gpu;
    Module module;
    Graph graph;
    Memory value(sizeof(int));
    KernelNode<CUdeviceptr, int> store(module.function("store"), value.address, 5);
    CUgraphNode first = store.add(graph);
    store.add(graph, {first});
    std::string path = "/tmp/graph_XXXXXX";
    int file = mkstemp(path.data());
    REQUIRE(file >= 0);
    close(file);
    auto written = [&](unsigned flags) {
        CU_OK(cu.cuGraphDebugDotPrint(graph, path.c_str(), flags));
        std::stringstream text;
        text << std::ifstream(path).rdbuf();
        std::remove(path.c_str());
        return text.str();
    };
    std::string brief = written(0), all = written(CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE);
    CHECK(brief.find("digraph") != std::string::npos);
    CHECK(brief.find("store") != std::string::npos);
    CHECK(brief.find("->") != std::string::npos);
    CHECK(all.size() > brief.size());
    CU_CHECK(cu.cuGraphDebugDotPrint(graph, "/nowhere/at/all", 0), CUDA_ERROR_OPERATING_SYSTEM);
    CU_CHECK(cu.cuGraphDebugDotPrint(graph, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("nodes with parameters that are none are refused", "[graph]") {
    Gpu gpu;
    Module module;
    Graph graph;
    Memory value(sizeof(int));
    CUgraphNode node = nullptr;
    KernelNode<CUdeviceptr, int> store(module.function("store"), value.address, 5);
    auto kernel = store.parameters;
    CU_CHECK(cu.cuGraphAddKernelNode(&node, graph, nullptr, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddKernelNode(nullptr, graph, nullptr, 0, &kernel), CUDA_ERROR_INVALID_VALUE);
    kernel.blockDimX = 0;
    CU_CHECK(cu.cuGraphAddKernelNode(&node, graph, nullptr, 0, &kernel), CUDA_ERROR_INVALID_VALUE);
    kernel.blockDimX = 4096;
    CU_CHECK(cu.cuGraphAddKernelNode(&node, graph, nullptr, 0, &kernel), CUDA_ERROR_INVALID_VALUE);
    kernel = store.parameters;
    kernel.func = reinterpret_cast<CUfunction>(0x1234560);
    CU_CHECK(cu.cuGraphAddKernelNode(&node, graph, nullptr, 0, &kernel), CUDA_ERROR_INVALID_VALUE);
    auto copy = line(CU_MEMORYTYPE_DEVICE, value.address, CU_MEMORYTYPE_DEVICE, 0x10, 4);
    CU_CHECK(cu.cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, gpu.context), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddMemcpyNode(&node, graph, nullptr, 0, nullptr, gpu.context), CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMSET_NODE_PARAMS fill{value.address, 0, 0, 3, 1, 1};
    CU_CHECK(cu.cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, gpu.context), CUDA_ERROR_INVALID_VALUE);
    CUDA_HOST_NODE_PARAMS host{};
    CU_CHECK(cu.cuGraphAddHostNode(&node, graph, nullptr, 0, &host), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddEventRecordNode(&node, graph, nullptr, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddChildGraphNode(&node, graph, nullptr, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    CHECK(graph.nodes().empty());
    CUgraphNode empty = add_empty_node(graph);
    CUDA_KERNEL_NODE_PARAMS shown{};
    CU_CHECK(cu.cuGraphKernelNodeGetParams(empty, &shown), CUDA_ERROR_INVALID_VALUE);
}
