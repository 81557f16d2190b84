// Memory that graphs allocate and free, and objects of the program that graphs keep alive.
#include <chrono>
#include <future>
#include <memory>

#include "graph.hpp"

using namespace driver_api;

namespace {

constexpr size_t bytes = 1 << 20;

// Leaves other tests the memory that its graphs have reserved.
class TrimmedGpu : public Gpu {
public:
    TrimmedGpu() = default;
    ~TrimmedGpu() { cu.cuDeviceGraphMemTrim(device); }
    TrimmedGpu(const TrimmedGpu&) = delete;
    TrimmedGpu& operator=(const TrimmedGpu&) = delete;
};

CUDA_MEM_ALLOC_NODE_PARAMS allocation(const Gpu& gpu, size_t size = bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS given{};
    given.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    given.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    given.poolProps.location.id = gpu.device;
    given.bytesize = size;
    return given;
}

cuuint64_t amount(const Gpu& gpu, CUgraphMem_attribute which) {
    cuuint64_t value = ~cuuint64_t{0};
    CU_OK(cu.cuDeviceGetGraphMemAttribute(gpu.device, which, &value));
    return value;
}

}  // namespace

TEST_CASE("a graph allocates, uses and frees memory at each launch", "[graph]") {
    TrimmedGpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    Memory out(std::vector<int>{0});
    auto given = allocation(gpu);
    CUgraphNode alloc = nullptr, free = nullptr;
    CU_OK(cu.cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &given));
    REQUIRE(given.dptr);
    KernelNode<CUdeviceptr, int> store(module.function("store"), given.dptr, 9);
    CUgraphNode stored = store.add(graph, {alloc});
    KernelNode<CUdeviceptr, CUdeviceptr, int> copy(module.function("copy_ints"), given.dptr, out.address, 1);
    CUgraphNode copied = copy.add(graph, {stored});
    CU_OK(cu.cuGraphAddMemFreeNode(&free, graph, &copied, 1, given.dptr));
    CHECK(type_of(alloc) == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    CHECK(type_of(free) == CU_GRAPH_NODE_TYPE_MEM_FREE);
    CUDA_MEM_ALLOC_NODE_PARAMS shown{};
    CUdeviceptr freed = 0;
    CU_OK(cu.cuGraphMemAllocNodeGetParams(alloc, &shown));
    CHECK(shown.dptr == given.dptr);
    CHECK(shown.bytesize == bytes);
    CU_OK(cu.cuGraphMemFreeNodeGetParams(free, &freed));
    CHECK(freed == given.dptr);
    GraphExec exec(graph);
    exec.run(stream);
    exec.run(stream);
    CHECK(out.first<int>() == 9);
}

TEST_CASE("memory that a graph leaves is there until it is freed", "[graph]") {
    TrimmedGpu gpu;
    Module module;
    Stream stream;
    CUdeviceptr address = 0;
    {
        Graph graph;
        auto given = allocation(gpu);
        CUgraphNode alloc = nullptr;
        CU_OK(cu.cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &given));
        address = given.dptr;
        KernelNode<CUdeviceptr, int> store(module.function("store"), address, 9);
        store.add(graph, {alloc});
        CU_CHECK(cu.cuMemFree(address), CUDA_ERROR_INVALID_VALUE);  // nothing has allocated it
        GraphExec exec(graph);
        exec.run(stream);
        CU_CHECK(cu.cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);  // not freed
        CU_OK(cu.cuMemFreeAsync(address, stream));
        CU_CHECK(cu.cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE);
        exec.run(stream);
        CU_OK(cu.cuMemFree(address));
        exec.run(stream);
    }
    int value = 0;  // graph and instance are gone
    CU_OK(cu.cuMemcpyDtoH(&value, address, sizeof value));
    CHECK(value == 9);
    CU_OK(cu.cuMemFreeAsync(address, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_CHECK(cu.cuMemcpyDtoH(&value, address, sizeof value), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an instance can free what its last launch has left", "[graph]") {
    TrimmedGpu gpu;
    Stream stream;
    Graph graph;
    auto given = allocation(gpu);
    CUgraphNode alloc = nullptr;
    CU_OK(cu.cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &given));
    GraphExec exec(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    for (int i = 0; i < 3; ++i) exec.run(stream);
    CU_OK(cu.cuMemFree(given.dptr));
    CU_CHECK(cu.cuMemFree(given.dptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("another graph can free what a graph has left", "[graph]") {
    TrimmedGpu gpu;
    Stream stream;
    Graph graph, other;
    auto given = allocation(gpu);
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &given));
    CU_OK(cu.cuGraphAddMemFreeNode(&node, other, nullptr, 0, given.dptr));
    CU_CHECK(cu.cuGraphAddMemFreeNode(&node, graph, nullptr, 0, given.dptr), CUDA_ERROR_INVALID_VALUE);
    GraphExec allocates(graph), frees(other);
    CU_CHECK(cu.cuGraphLaunch(frees, stream), CUDA_ERROR_INVALID_VALUE);  // nothing to free yet
    for (int i = 0; i < 2; ++i) {
        allocates.run(stream);
        frees.run(stream);
    }
}

TEST_CASE("graphs that come and go can free what a graph that has gone leaves again and again", "[graph]") {
    TrimmedGpu gpu;
    Stream stream;
    CUgraphNode node = nullptr;
    auto given = allocation(gpu);
    std::unique_ptr<GraphExec> allocates;
    {
        Graph graph;
        CU_OK(cu.cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &given));
        allocates = std::make_unique<GraphExec>(graph);
    }
    for (int i = 0; i < 5; ++i) {  // each may be where the first one was in the driver's memory
        allocates->run(stream);
        Graph other;
        CU_OK(cu.cuGraphAddMemFreeNode(&node, other, nullptr, 0, given.dptr));
        GraphExec(other).run(stream);
    }
}

TEST_CASE("allocations of captured streams are nodes", "[graph][capture]") {
    TrimmedGpu gpu;
    Module module;
    Stream stream;
    Memory out(std::vector<int>{0});
    CUdeviceptr address = 0, outside = 0;
    CU_OK(cu.cuMemAllocAsync(&outside, 64, stream));
    begin_capture(stream);
    CU_OK(cu.cuMemAllocAsync(&address, bytes, stream));
    CU_OK(cu.cuMemsetD32Async(address, 4, bytes / 4, stream));
    CU_OK(launch(module.function("copy_ints"), stream, address, out.address, 1));
    CU_OK(cu.cuMemFreeAsync(address, stream));
    CU_CHECK(cu.cuMemFreeAsync(outside, stream), CUDA_ERROR_INVALID_VALUE);  // no graph's
    Graph graph = end_capture(stream);
    auto nodes = graph.nodes();
    REQUIRE(nodes.size() == 4);
    CHECK(type_of(nodes[0]) == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    CHECK(type_of(nodes[3]) == CU_GRAPH_NODE_TYPE_MEM_FREE);
    GraphExec exec(graph);
    exec.run(stream);
    exec.run(stream);
    CHECK(out.first<int>() == 4);
    CU_OK(cu.cuMemFreeAsync(outside, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
}

TEST_CASE("graphs with memory have rules of their own", "[graph]") {
    TrimmedGpu gpu;
    Stream stream;
    Graph graph, parent;
    auto given = allocation(gpu);
    CUgraphNode alloc = nullptr, free = nullptr, node = nullptr;
    CUgraph copy = nullptr;
    CUgraphExec second = nullptr;
    CU_OK(cu.cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &given));
    CU_OK(cu.cuGraphAddMemFreeNode(&free, graph, &alloc, 1, given.dptr));
    CU_CHECK(cu.cuGraphAddMemFreeNode(&node, graph, &alloc, 1, given.dptr), CUDA_ERROR_INVALID_VALUE);  // twice
    CU_CHECK(cu.cuGraphAddMemFreeNode(&node, parent, nullptr, 0, given.dptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddMemFreeNode(&node, graph, &alloc, 1, 0x1000), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphDestroyNode(free), CUDA_ERROR_NOT_SUPPORTED);
    CU_CHECK(cu.cuGraphRemoveDependencies(graph, &alloc, &free, nullptr, 1), CUDA_ERROR_NOT_SUPPORTED);
    CU_CHECK(cu.cuGraphClone(&copy, graph), CUDA_ERROR_NOT_SUPPORTED);
    CU_CHECK(cu.cuGraphAddChildGraphNode(&node, parent, nullptr, 0, graph), CUDA_ERROR_NOT_SUPPORTED);
    {
        GraphExec only(graph);
        CU_CHECK(cu.cuGraphInstantiate(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    }
    GraphExec now(graph);
    given = allocation(gpu, 0);
    CU_CHECK(cu.cuGraphAddMemAllocNode(&node, parent, nullptr, 0, &given), CUDA_ERROR_INVALID_VALUE);
    given = allocation(gpu, size_t{1} << 50);
    CU_CHECK(cu.cuGraphAddMemAllocNode(&node, parent, nullptr, 0, &given), CUDA_ERROR_OUT_OF_MEMORY);
    given = allocation(gpu);
    given.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CU_CHECK(cu.cuGraphAddMemAllocNode(&node, parent, nullptr, 0, &given), CUDA_ERROR_NOT_SUPPORTED);
    CU_CHECK(cu.cuGraphAddMemAllocNode(&node, parent, nullptr, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("memory of graphs is reserved at a launch and kept until it is trimmed", "[graph]") {
    TrimmedGpu gpu;
    Stream stream;
    CU_OK(cu.cuDeviceGraphMemTrim(gpu.device));
    auto reserved = [&] { return amount(gpu, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT); };
    auto used = [&] { return amount(gpu, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT); };
    cuuint64_t before = reserved(), taken = 0;
    size_t free_before = 0, free_with = 0, total = 0;
    CU_OK(cu.cuMemGetInfo(&free_before, &total));
    for (int i = 0; i < 2; ++i) {
        Graph graph;
        auto given = allocation(gpu);
        CUgraphNode alloc = nullptr, free = nullptr;
        CU_OK(cu.cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &given));
        CU_OK(cu.cuGraphAddMemFreeNode(&free, graph, &alloc, 1, given.dptr));
        CHECK(reserved() == before + (i == 0 ? 0 : taken));
        GraphExec exec(graph);
        exec.run(stream);
        if (i == 0) taken = reserved() - before;
        CHECK(taken >= bytes);  // a driver may take it in larger pieces
        CU_OK(cu.cuMemGetInfo(&free_with, &total));
        CHECK(free_with + bytes <= free_before);
        CHECK(reserved() == before + taken);  // the second graph takes what the first has left
        CHECK(used() >= bytes);
    }
    CHECK(reserved() == before + taken);
    CU_OK(cu.cuDeviceGraphMemTrim(gpu.device));
    CHECK(reserved() == before);
    CHECK(amount(gpu, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) >= before + bytes);
    cuuint64_t zero = 0, one = 1;
    CU_OK(cu.cuDeviceSetGraphMemAttribute(gpu.device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
    CHECK(amount(gpu, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == before);
    CU_CHECK(cu.cuDeviceSetGraphMemAttribute(gpu.device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDeviceSetGraphMemAttribute(gpu.device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero),
             CUDA_ERROR_INVALID_VALUE);
    void* nowhere = reinterpret_cast<void*>(~uintptr_t{0});  // nobody reads it
    CU_CHECK(cu.cuDeviceSetGraphMemAttribute(gpu.device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, nowhere),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDeviceGraphMemTrim(99), CUDA_ERROR_INVALID_DEVICE);
}

// As NVIDIA's driver does, and its graph memory footprint sample shows.
TEST_CASE("launches of several graphs in one stream reserve memory once", "[graph]") {
    TrimmedGpu gpu;
    Stream stream, other;
    std::vector<std::unique_ptr<Graph>> graphs;
    std::vector<std::unique_ptr<GraphExec>> execs;
    for (int i = 0; i < 3; ++i) {
        graphs.push_back(std::make_unique<Graph>());
        auto given = allocation(gpu);
        CUgraphNode alloc = nullptr, free = nullptr;
        CU_OK(cu.cuGraphAddMemAllocNode(&alloc, *graphs.back(), nullptr, 0, &given));
        CU_OK(cu.cuGraphAddMemFreeNode(&free, *graphs.back(), &alloc, 1, given.dptr));
        execs.push_back(std::make_unique<GraphExec>(*graphs.back()));
    }
    CU_OK(cu.cuDeviceGraphMemTrim(gpu.device));
    cuuint64_t before = amount(gpu, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    auto reserved = [&] { return amount(gpu, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) - before; };
    cuuint64_t once = 0;
    {
        Gate gate(stream);
        CU_OK(cu.cuGraphLaunch(*execs[0], stream));
        once = reserved();
        CHECK(once >= bytes);  // a driver may take it in larger pieces
        CU_OK(cu.cuGraphLaunch(*execs[1], stream));
        CHECK(reserved() == once);
        CU_OK(cu.cuGraphLaunch(*execs[2], other));  // may run at the same time
        CHECK(reserved() == 2 * once);
        gate.open();
        CU_OK(cu.cuStreamSynchronize(stream));
        CU_OK(cu.cuStreamSynchronize(other));
    }
    CU_OK(cu.cuGraphLaunch(*execs[0], other));  // what is over is as good as another's
    CHECK(reserved() == 2 * once);
    CU_OK(cu.cuStreamSynchronize(other));
}

TEST_CASE("memory that graphs keep is there for an allocation that needs it", "[graph][full]") {
    TrimmedGpu gpu;
    Stream stream;
    size_t free_bytes = 0, total = 0;
    CU_OK(cu.cuDeviceGraphMemTrim(gpu.device));
    CU_OK(cu.cuMemGetInfo(&free_bytes, &total));
    size_t most = free_bytes / 4 * 3;
    {
        Graph graph;
        auto given = allocation(gpu, most);
        CUgraphNode alloc = nullptr, free = nullptr;
        CU_OK(cu.cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &given));
        CU_OK(cu.cuGraphAddMemFreeNode(&free, graph, &alloc, 1, given.dptr));
        GraphExec(graph).run(stream);
    }
    CUdeviceptr address = 0;
    CU_OK(cu.cuMemAlloc(&address, most));
    CU_OK(cu.cuMemFree(address));
}

TEST_CASE("memory that was just freed is there for a launch that needs it", "[graph][full]") {
    TrimmedGpu gpu;
    Stream stream;
    size_t free_bytes = 0, total = 0;
    CU_OK(cu.cuMemGetInfo(&free_bytes, &total));
    Graph graph;
    auto given = allocation(gpu, total / 2);
    CUgraphNode alloc = nullptr, free = nullptr;
    CU_OK(cu.cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &given));
    CU_OK(cu.cuGraphAddMemFreeNode(&free, graph, &alloc, 1, given.dptr));
    GraphExec exec(graph);
    std::vector<CUdeviceptr> hogs;
    for (CUdeviceptr hog = 0; cu.cuMemAlloc(&hog, total / 16) == CUDA_SUCCESS;) {
        hogs.push_back(hog);
        CU_OK(cu.cuMemsetD8Async(hog, 1, 512, stream));
    }
    CU_CHECK(cu.cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    for (auto hog : hogs) CU_OK(cu.cuMemFree(hog));
    exec.run(stream);
}

TEST_CASE("a launch whose memory is not there fails", "[graph][full]") {
    TrimmedGpu gpu;
    Stream stream;
    Graph graph;
    size_t free_bytes = 0, total = 0;
    CU_OK(cu.cuMemGetInfo(&free_bytes, &total));
    auto given = allocation(gpu, total / 2);
    CUgraphNode alloc = nullptr;
    CU_OK(cu.cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &given));
    GraphExec exec(graph);
    CUdeviceptr hog = 0;
    CU_OK(cu.cuMemAlloc(&hog, total / 4 * 3));
    CU_CHECK(cu.cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CU_OK(cu.cuMemFree(hog));
    exec.run(stream);
    CU_OK(cu.cuMemFree(given.dptr));
}

// ---- user objects

namespace {

// Destroyed on some thread of the driver's.
struct Kept {
    std::promise<void> gone;
    std::future<void> future = gone.get_future();

    CUuserObject object(unsigned references = 1) {
        CUuserObject made = nullptr;
        CU_OK(cu.cuUserObjectCreate(
            &made, this, [](void* self) { static_cast<Kept*>(self)->gone.set_value(); }, references,
            CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
        return made;
    }
    bool alive() const { return future.wait_for(std::chrono::seconds(0)) == std::future_status::timeout; }
    void wait() { future.wait(); }
};

}  // namespace

TEST_CASE("a user object is destroyed with its last reference", "[graph]") {
    Gpu gpu;
    Kept kept;
    CUuserObject object = kept.object(2);
    CU_OK(cu.cuUserObjectRetain(object, 3));
    CU_OK(cu.cuUserObjectRelease(object, 4));
    CHECK(kept.alive());
    CU_OK(cu.cuUserObjectRelease(object, 1));
    kept.wait();
}

TEST_CASE("user objects and what keeps them need no context", "[graph]") {
    CU_OK(cu.cuInit(0));
    CU_OK(cu.cuCtxSetCurrent(nullptr));
    Kept kept;
    CUuserObject object = kept.object();
    Graph graph;
    CU_OK(cu.cuGraphRetainUserObject(graph, object, 1, 0));
    CU_OK(cu.cuUserObjectRetain(object, 1));
    CU_OK(cu.cuUserObjectRelease(object, 2));
    CHECK(kept.alive());
    CU_OK(cu.cuGraphReleaseUserObject(graph, object, 1));
    kept.wait();
}

TEST_CASE("graphs, clones and instances keep user objects", "[graph]") {
    Gpu gpu;
    Kept kept;
    CUuserObject object = kept.object();
    CUgraph graph = nullptr, copy = nullptr;
    CUgraphExec exec = nullptr;
    CU_OK(cu.cuGraphCreate(&graph, 0));
    CU_OK(cu.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CU_OK(cu.cuGraphClone(&copy, graph));
    CU_OK(cu.cuGraphInstantiate(&exec, graph, 0));
    CU_OK(cu.cuGraphDestroy(graph));
    CHECK(kept.alive());
    CU_OK(cu.cuGraphReleaseUserObject(copy, object, 1));
    CHECK(kept.alive());
    CU_OK(cu.cuGraphExecDestroy(exec));
    kept.wait();
    CU_OK(cu.cuGraphDestroy(copy));
}

TEST_CASE("an updated instance keeps the user objects of its new graph, and no longer the old one's", "[graph]") {
    Gpu gpu;
    const bool inside = GENERATE(false, true);
    Kept old, fresh;
    CUgraphExec exec = nullptr;
    for (auto* kept : {&old, &fresh}) {
        Graph graph, outer;
        add_empty_node(graph);
        CU_OK(cu.cuGraphRetainUserObject(graph, kept->object(), 1, CU_GRAPH_USER_OBJECT_MOVE));
        CUgraphNode node = nullptr;
        if (inside) CU_OK(cu.cuGraphAddChildGraphNode(&node, outer, nullptr, 0, graph));
        CUgraph whole = inside ? outer : graph;
        CUgraphExecUpdateResultInfo report{};
        CU_OK(exec ? cu.cuGraphExecUpdate(exec, whole, &report) : cu.cuGraphInstantiate(&exec, whole, 0));
    }
    old.wait();
    CHECK(fresh.alive());
    CU_OK(cu.cuGraphExecDestroy(exec));
    fresh.wait();
}

TEST_CASE("a launch keeps user objects until it is done", "[graph]") {
    Gpu gpu;
    Stream stream;
    Kept kept;
    CUuserObject object = kept.object();
    {
        Gate gate(stream);
        {
            Graph graph;
            CU_OK(cu.cuGraphRetainUserObject(graph, object, 1, 0));
            CU_OK(cu.cuUserObjectRelease(object, 1));
            GraphExec exec(graph);
            CU_OK(cu.cuGraphLaunch(exec, stream));
        }
        CHECK(kept.alive());
    }
    kept.wait();
    CU_OK(cu.cuStreamSynchronize(stream));
}

TEST_CASE("more references given back than there are are none", "[graph]") {
    Gpu gpu;
    Kept kept;
    CUuserObject object = kept.object();
    Graph graph;
    CU_OK(cu.cuGraphRetainUserObject(graph, object, 1, 0));
    CU_OK(cu.cuGraphReleaseUserObject(graph, object, 5));  // the program's own is still there
    CHECK(kept.alive());
    CU_OK(cu.cuUserObjectRelease(object, 1));
    kept.wait();
    CU_OK(cu.cuUserObjectRelease(object, 1));
}

TEST_CASE("user objects that make no sense are refused", "[graph]") {
    Gpu gpu;
    Graph graph;
    Kept kept;
    CUuserObject object = nullptr, fine = kept.object();
    auto nothing = [](void*) {};
    constexpr unsigned flags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
    CU_CHECK(cu.cuUserObjectCreate(&object, nullptr, nullptr, 1, flags), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuUserObjectCreate(&object, nullptr, nothing, 0, flags), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuUserObjectCreate(&object, nullptr, nothing, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuUserObjectCreate(nullptr, nullptr, nothing, 1, flags), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuUserObjectRetain(fine, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuUserObjectRetain(fine, 1u << 31), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuUserObjectRetain(nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphRetainUserObject(nullptr, fine, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphRetainUserObject(graph, fine, 1, 8), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuUserObjectRelease(fine, 1));
    kept.wait();
}
