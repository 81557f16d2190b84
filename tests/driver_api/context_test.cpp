// Contexts of a program's own, and each thread's stack of them.
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "gpu.hpp"

using namespace driver_api;

namespace {
CUcontext current_context() {
    CUcontext current = reinterpret_cast<CUcontext>(1);
    CU_OK(cu.cuCtxGetCurrent(&current));
    return current;
}

// A context that is created current, as cuCtxCreate does.
CUcontext create_context(unsigned flags = 0) {
    CUcontext context = nullptr;
    CU_OK(cu.cuInit(0));
    CU_OK(cu.context_create(&context, flags, 0));
    return context;
}
}  // namespace

TEST_CASE("a new context becomes current and popping brings back the one before", "[context]") {
    CUcontext first = create_context(), second = create_context(), popped = nullptr;
    CHECK(first != second);
    CHECK(current_context() == second);
    CU_OK(cu.cuCtxPopCurrent(&popped));
    CHECK(popped == second);
    CHECK(current_context() == first);
    CU_OK(cu.cuCtxPushCurrent(second));
    CHECK(current_context() == second);
    CU_OK(cu.cuCtxDestroy(second));  // destroying the current one pops it
    CHECK(current_context() == first);
    CU_OK(cu.cuCtxDestroy(first));
    CHECK(current_context() == nullptr);
}

TEST_CASE("an empty stack of contexts cannot be popped", "[context]") {
    CU_OK(cu.cuInit(0));
    REQUIRE(current_context() == nullptr);
    CUcontext popped = nullptr;
    CU_CHECK(cu.cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("setting the current context replaces the top of the stack", "[context]") {
    CUcontext first = create_context(), second = create_context(), popped = nullptr;
    CU_OK(cu.cuCtxPopCurrent(&popped));
    CU_OK(cu.cuCtxSetCurrent(second));  // instead of first
    CHECK(current_context() == second);
    CU_OK(cu.cuCtxSetCurrent(nullptr));  // pops
    CHECK(current_context() == nullptr);
    CU_OK(cu.cuCtxDestroy(first));
    CU_OK(cu.cuCtxDestroy(second));
}

TEST_CASE("work without a current context is refused", "[context]") {
    CU_OK(cu.cuInit(0));
    REQUIRE(current_context() == nullptr);
    CUdeviceptr address = 0;
    CUmodule module = nullptr;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CUdevice device = 0;
    size_t free_bytes = 0, total = 0;
    CU_CHECK(cu.cuMemAlloc(&address, 16), CUDA_ERROR_INVALID_CONTEXT);
    CU_CHECK(cu.cuModuleLoadData(&module, ptx_image().data), CUDA_ERROR_INVALID_CONTEXT);
    CU_CHECK(cu.cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
    CU_CHECK(cu.cuEventCreate(&event, 0), CUDA_ERROR_INVALID_CONTEXT);
    CU_CHECK(cu.cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    CU_CHECK(cu.cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    CU_CHECK(cu.cuMemGetInfo(&free_bytes, &total), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("graphs need no current context", "[context][graphs]") {
    Gpu gpu;
    Module module;
    Memory memory(std::vector<int>{1});
    CUgraph graph = nullptr;
    CUgraphNode first = nullptr, second = nullptr;
    CUgraphExec exec = nullptr;
    size_t count = 0;
    CU_OK(cu.cuCtxSetCurrent(nullptr));
    CU_OK(cu.cuGraphCreate(&graph, 0));
    CU_OK(cu.cuGraphAddEmptyNode(&first, graph, nullptr, 0));
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = memory.address;
    fill.value = 5;
    fill.elementSize = 4;
    fill.width = fill.height = 1;
    CU_OK(cu.cuGraphAddMemsetNode(&second, graph, &first, 1, &fill, gpu.context));
    CU_OK(cu.cuGraphGetNodes(graph, nullptr, &count));
    CHECK(count == 2);
    CU_OK(cu.cuGraphInstantiate(&exec, graph, 0));
    CU_OK(cu.cuCtxSetCurrent(gpu.context));
    CU_OK(cu.cuGraphLaunch(exec, nullptr));
    CHECK(memory.first<int>() == 5);
    CU_OK(cu.cuCtxSetCurrent(nullptr));
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
    CU_OK(cu.cuCtxSetCurrent(gpu.context));
}

TEST_CASE("every thread has a stack of its own", "[context]") {
    CUcontext context = create_context(), seen = context;
    CUresult popped = CUDA_SUCCESS;
    std::thread([&] {
        cu.cuCtxGetCurrent(&seen);
        CUcontext none = nullptr;
        popped = cu.cuCtxPopCurrent(&none);
    }).join();
    CHECK(seen == nullptr);
    CHECK(popped == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(current_context() == context);
    CU_OK(cu.cuCtxDestroy(context));
}

TEST_CASE("a context can be current to several threads", "[context]") {
    CUcontext context = create_context();
    Memory memory(std::vector<int>{1});
    CUresult result = CUDA_ERROR_UNKNOWN;
    int seen = 0;
    std::thread([&] {
        result = cu.cuCtxPushCurrent(context);
        if (result == CUDA_SUCCESS) result = cu.cuMemcpyDtoH(&seen, memory.address, sizeof(seen));
    }).join();
    CHECK(result == CUDA_SUCCESS);
    CHECK(seen == 1);
    CU_OK(cu.cuCtxDestroy(context));
}

TEST_CASE("a context knows its device, flags, version and id", "[context]") {
    CUcontext first = create_context(CU_CTX_SCHED_BLOCKING_SYNC), second = create_context();
    CU_OK(cu.cuCtxSetCurrent(first));
    CUdevice device = -1;
    CU_OK(cu.cuCtxGetDevice(&device));
    CHECK(device == 0);
    unsigned flags = 0, version = 0;
    CU_OK(cu.cuCtxGetFlags(&flags));
    CHECK((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
    CU_OK(cu.cuCtxGetApiVersion(first, &version));
    CHECK(version >= 3010);
    unsigned long long id = 0, other_id = 0, current_id = 0;
    CU_OK(cu.cuCtxGetId(first, &id));
    CU_OK(cu.cuCtxGetId(second, &other_id));
    CU_OK(cu.cuCtxGetId(nullptr, &current_id));
    CHECK(id != other_id);
    CHECK(current_id == id);
    CU_OK(cu.cuCtxDestroy(second));
    CU_OK(cu.cuCtxDestroy(first));
}

TEST_CASE("contexts with impossible flags or devices are refused", "[context]") {
    CU_OK(cu.cuInit(0));
    CUcontext context = nullptr;
    CU_CHECK(cu.context_create(&context, 0xffffff, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.context_create(&context, 0, 1000), CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.context_create(nullptr, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("limits of a context can be read and set", "[context]") {
    Gpu gpu;
    size_t bytes = 0;
    CU_OK(cu.cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE));
    CHECK(bytes >= 512);
    CU_OK(cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192));
    CU_OK(cu.cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE));
    CHECK(bytes >= 8192);
    CU_CHECK(cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, size_t{1} << 40), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuCtxGetLimit(&bytes, CU_LIMIT_PRINTF_FIFO_SIZE));
    CHECK(bytes >= 4096);
    CU_OK(cu.cuCtxGetLimit(&bytes, CU_LIMIT_MALLOC_HEAP_SIZE));
    CHECK(bytes >= 1 << 20);
    CU_OK(cu.cuCtxGetLimit(&bytes, CU_LIMIT_CIG_ENABLED));  // cublasLtCreate fails where this does
    CHECK(bytes == 0);
    CU_OK(cu.cuCtxGetLimit(&bytes, CU_LIMIT_SHMEM_SIZE));
    CHECK(bytes > 48 << 10);
    CU_CHECK(cu.cuCtxGetLimit(&bytes, static_cast<CUlimit>(1000)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuCtxSetLimit(static_cast<CUlimit>(1000), 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("kernels' malloc takes from a heap as large as its limit says, which then cannot be set", "[context]") {
    Gpu gpu;
    const unsigned mib = 1 << 20;
    auto refused_of = [&](size_t heap_bytes, int threads) {
        CUcontext context = create_context();
        int refused = 0;
        {
            Module module;
            Memory count(std::vector<int>{0});
            CU_OK(cu.cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap_bytes));
            CU_OK(launch_shaped(module.function("take_from_heap"), 1, threads, 0, nullptr, count.address, mib));
            CU_OK(cu.cuCtxSynchronize());
            refused = count.first<int>();
            CU_CHECK(cu.cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap_bytes), CUDA_ERROR_INVALID_VALUE);
            CU_OK(cu.cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 2 * mib));
        }
        CU_OK(cu.cuCtxDestroy(context));
        return refused;
    };
    CHECK(refused_of(size_t{128} * mib, 100) == 0);
    int refused = refused_of(size_t{16} * mib, 32);
    CHECK(refused >= 16);
    CHECK(refused < 32);
    CHECK(refused_of(size_t{128} * mib, 100) == 0);  // each context has its own
}

TEST_CASE("kernels make arrays of objects in their heap", "[context]") {
    Gpu gpu;
    Module module;
    Memory sum(std::vector<int>{0});
    CU_OK(launch_shaped(module.function("make_objects"), 1, 40, 0, nullptr, sum.address, 7));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(sum.first<int>() == 40 * 7);
}

TEST_CASE("an array of nothing in the heap has a place", "[context]") {
    Gpu gpu;
    Module module;
    Memory places(std::vector<int>{0});
    CU_OK(launch_shaped(module.function("make_nothing"), 1, 1, 0, nullptr, places.address));
    CHECK(places.first<int>() == 2);
}

TEST_CASE("printf's buffer keeps its size once a kernel that prints was launched", "[context]") {
    Gpu gpu;
    Module module;
    CU_OK(cu.cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 2 << 20));
    CU_OK(launch(module.function("say"), nullptr, 1));
    CU_CHECK(cu.cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 4 << 20), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuCtxSynchronize());
}

TEST_CASE("the cache preference is a hint that is accepted", "[context]") {
    Gpu gpu;
    CU_OK(cu.cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
    CUfunc_cache config = CU_FUNC_CACHE_PREFER_NONE;
    CU_OK(cu.cuCtxGetCacheConfig(&config));
    CHECK((config == CU_FUNC_CACHE_PREFER_L1 || config == CU_FUNC_CACHE_PREFER_NONE));
}

TEST_CASE("destroying a context frees its memory", "[context]") {
    Gpu gpu;
    size_t before = 0, during = 0, after = 0, total = 0;
    const size_t bytes = size_t{256} << 20;
    CU_OK(cu.cuMemGetInfo(&before, &total));
    CUcontext context = create_context();
    CUdeviceptr abandoned = 0;
    CU_OK(cu.cuMemAlloc(&abandoned, bytes));
    CU_OK(cu.cuMemGetInfo(&during, &total));
    CHECK(before - during >= bytes);
    CU_OK(cu.cuCtxDestroy(context));
    CU_OK(cu.cuMemGetInfo(&after, &total));
    CHECK(after + bytes > before);
}

TEST_CASE("a context that everybody has detached is destroyed", "[context]") {
    Gpu gpu;
    for (int made = 0; made < 300; ++made) {  // more than there can be at once
        CUcontext context = create_context(), attached = nullptr, popped = nullptr;
        CUdeviceptr abandoned = 0;
        CU_OK(cu.cuMemAlloc(&abandoned, 64 << 20));
        if (made % 2 == 1) {
            CU_OK(cu.cuCtxAttach(&attached, 0));
            CHECK(attached == context);
            CU_OK(cu.cuCtxDetach(context));
            CU_OK(cu.cuCtxSynchronize());
        }
        CU_OK(cu.cuCtxDetach(context));
        CU_CHECK(cu.cuCtxPushCurrent(context), CUDA_ERROR_INVALID_CONTEXT);
        CU_CHECK(cu.cuCtxDetach(context), CUDA_ERROR_INVALID_CONTEXT);
        CU_OK(cu.cuCtxPopCurrent(&popped));
        CHECK(popped != context);
        CU_OK(cu.cuCtxPushCurrent(popped));
    }
}

TEST_CASE("a primary context lives on when somebody detaches it", "[context]") {
    Gpu gpu;
    CUcontext current = nullptr;
    CU_OK(cu.cuCtxGetCurrent(&current));
    CU_OK(cu.cuCtxDetach(current));
    CU_OK(cu.cuCtxSynchronize());
}

TEST_CASE("handles of a destroyed context are refused", "[context]") {
    CUcontext context = create_context();
    CU_OK(cu.cuCtxDestroy(context));
    CU_CHECK_EITHER(cu.cuCtxDestroy(context), CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CU_CHECK_EITHER(cu.cuCtxPushCurrent(context), CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CU_CHECK_EITHER(cu.cuCtxDestroy(nullptr), CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("memory that a context has registered is the program's again when the context ends", "[context]") {
    Gpu gpu;
    std::vector<int> values(10'000, 1);
    const size_t bytes = values.size() * sizeof(int);
    for (unsigned flags : {CU_MEMHOSTREGISTER_DEVICEMAP, 0}) {
        CUcontext context = nullptr;
        CU_OK(cu.cuCtxCreate(&context, nullptr, 0, gpu.device));
        CU_OK(cu.cuMemHostRegister(values.data(), bytes, flags));
        CUdeviceptr device = 0;
        if (flags != 0 && cu.cuMemHostGetDevicePointer(&device, values.data(), 0) == CUDA_SUCCESS) {
            CU_OK(cu.cuMemsetD32(device, 7, values.size()));
            CU_OK(cu.cuCtxSynchronize());
        }
        CU_OK(cu.cuCtxDestroy(context));
        if (device != 0) CHECK(values == std::vector<int>(values.size(), 7));
    }
    CU_OK(cu.cuCtxSetCurrent(gpu.context));
    CU_OK(cu.cuMemHostRegister(values.data(), bytes, 0));
    CU_OK(cu.cuMemHostUnregister(values.data()));
}

TEST_CASE("what a context has pinned is not pinned when it has ended", "[context]") {
    Gpu gpu;
    CUcontext context = nullptr;
    CU_OK(cu.cuCtxCreate(&context, nullptr, 0, gpu.device));
    void *pinned = nullptr, *mapped = nullptr;
    CU_OK(cu.cuMemHostAlloc(&pinned, 1 << 20, 0));
    CU_OK(cu.cuMemHostAlloc(&mapped, 1 << 20, CU_MEMHOSTALLOC_DEVICEMAP));
    CU_OK(cu.cuCtxDestroy(context));
    CU_OK(cu.cuCtxSetCurrent(gpu.context));
    for (void* memory : {pinned, mapped}) {
        unsigned type = 0;
        CU_CHECK(
            cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(memory)),
            CUDA_ERROR_INVALID_VALUE);
    }
}

namespace {
CUcontext destroyed_last = nullptr;

void destroy_last() {
    alarm(60);
    auto result = cu.cuCtxDestroy(destroyed_last);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED) _exit(1);
}
}  // namespace

FRESH_PROCESS_TEST_CASE("a context can be destroyed when the driver's own destructors have run", "[context]") {
    mallopt(M_PERTURB, 0xA5);            // what was freed is told from what was not
    REQUIRE(atexit(destroy_last) == 0);  // before the driver asks for any of its own, so it runs after those
    destroyed_last = create_context();
    Module module;
    Memory memory(sizeof(int));
    run_once(module.function("store"), memory.address, 1);
}
