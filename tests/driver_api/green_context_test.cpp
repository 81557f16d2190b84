// Green contexts: parts of a GPU's multiprocessors, split off, described, and worked in.
#include <atomic>
#include <thread>
#include <utility>

#include "gpu.hpp"

using namespace driver_api;

namespace {

CUdevResource all_of(CUdevice device) {
    CUdevResource all{};
    CU_OK(cu.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    return all;
}

struct Split {
    std::vector<CUdevResource> groups;
    CUdevResource remaining{};
};
Split split(const CUdevResource& input, unsigned groups, unsigned least) {
    Split made{std::vector<CUdevResource>(groups)};
    CU_OK(cu.cuDevSmResourceSplitByCount(made.groups.data(), &groups, &input, &made.remaining, 0, least));
    made.groups.resize(groups);
    return made;
}

CUdevResourceDesc describe(std::vector<CUdevResource> resources) {
    CUdevResourceDesc description = nullptr;
    CU_OK(cu.cuDevResourceGenerateDesc(&description, resources.data(), static_cast<unsigned>(resources.size())));
    REQUIRE(description != nullptr);
    return description;
}

// A green context with one group of a device's multiprocessors.
class Green {
public:
    explicit Green(CUdevice device, unsigned multiprocessors = 8) {
        auto description = describe({split(all_of(device), 1, multiprocessors).groups[0]});
        CU_OK(cu.cuGreenCtxCreate(&handle, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
        CU_OK(cu.cuCtxFromGreenCtx(&converted, handle));
    }
    ~Green() {
        if (handle) (void)cu.cuGreenCtxDestroy(handle);
    }
    Green(const Green&) = delete;
    Green& operator=(const Green&) = delete;
    void destroy() { CU_OK(cu.cuGreenCtxDestroy(std::exchange(handle, nullptr))); }
    CUstream stream(int priority = 0) const {
        CUstream made = nullptr;
        CU_OK(cu.cuGreenCtxStreamCreate(&made, handle, CU_STREAM_NON_BLOCKING, priority));
        return made;
    }

    CUgreenCtx handle = nullptr;
    CUcontext converted = nullptr;
};

CUgreenCtx green_of(CUstream stream) {
    auto green = reinterpret_cast<CUgreenCtx>(1);
    CU_OK(cu.cuStreamGetGreenCtx(stream, &green));
    return green;
}

}  // namespace

TEST_CASE("a device's multiprocessors are split into equal groups and a rest", "[green]") {
    Gpu gpu;
    auto count = static_cast<unsigned>(gpu.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    auto all = all_of(gpu.device);
    CHECK(all.type == CU_DEV_RESOURCE_TYPE_SM);
    CHECK(all.sm.smCount == count);
    CHECK(all.sm.minSmPartitionSize > 0);
    unsigned step = all.sm.smCoscheduledAlignment;
    REQUIRE(step > 0);
    unsigned least = all.sm.minSmPartitionSize;

    unsigned possible = 0;
    CU_OK(cu.cuDevSmResourceSplitByCount(nullptr, &possible, &all, nullptr, 0, least));
    CHECK(possible >= 1);
    CHECK(possible <= count / least);  // fewer where a part of the GPU has too few for a group
    auto two = split(all, 2, least + 1);
    REQUIRE(two.groups.size() == 2);
    CHECK(two.groups[0].sm.smCount == two.groups[1].sm.smCount);
    CHECK(two.groups[0].sm.smCount > least);
    CHECK(two.groups[0].sm.smCount % step == 0);
    CHECK(two.remaining.sm.smCount == count - 2 * two.groups[0].sm.smCount);
    CHECK(split(all, 1000, least).groups.size() == possible);  // no more than there are
    CHECK(split(all, 1, 0).groups[0].sm.smCount >= 1);

    // Without a rest.
    unsigned groups = 1;
    CUdevResource one{};
    CU_OK(cu.cuDevSmResourceSplitByCount(&one, &groups, &all, nullptr, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING,
                                         2));
    CHECK(one.sm.smCount >= 2);
    CHECK(one.sm.smCount <= least);
}

TEST_CASE("what cannot be split or described is refused", "[green]") {
    Gpu gpu;
    auto all = all_of(gpu.device);
    auto least = all.sm.minSmPartitionSize;
    CUdevResource out{};
    unsigned groups = 1;
    CU_CHECK(cu.cuDeviceGetDevResource(gpu.device, nullptr, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDeviceGetDevResource(99, &out, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.cuDeviceGetDevResource(gpu.device, &out, CU_DEV_RESOURCE_TYPE_INVALID),
             CUDA_ERROR_INVALID_RESOURCE_TYPE);
    CU_CHECK(cu.cuCtxGetDevResource(nullptr, &out, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_CONTEXT);
    CU_CHECK(cu.cuGreenCtxGetDevResource(nullptr, &out, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_CONTEXT);

    CU_CHECK(cu.cuDevSmResourceSplitByCount(&out, nullptr, &all, nullptr, 0, least), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDevSmResourceSplitByCount(&out, &groups, nullptr, nullptr, 0, least), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK_EITHER(cu.cuDevSmResourceSplitByCount(&out, &groups, &all, nullptr, 0, all.sm.smCount + 1),
                    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    CUdevResource none{};
    CU_CHECK(cu.cuDevSmResourceSplitByCount(&out, &groups, &none, nullptr, 0, least), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    auto half = split(all, 1, least);  // a group cannot be split again
    CU_CHECK(cu.cuDevSmResourceSplitByCount(&out, &groups, half.groups.data(), nullptr, 0, least),
             CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);

    CUdevResourceDesc description = nullptr;
    CU_CHECK(cu.cuDevResourceGenerateDesc(nullptr, &all, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDevResourceGenerateDesc(&description, &all, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDevResourceGenerateDesc(&description, &none, 1), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    CHECK(description == nullptr);
    describe({half.groups[0], split(all, 1, least).groups[0]});  // of two splits
    if (all.sm.smCount >= 2 * least) describe(split(all, 2, least).groups);
}

TEST_CASE("made-up resources and descriptions are refused", "[green]") {
    Gpu gpu;
    CUdevResource made_up{}, out{};
    made_up.type = CU_DEV_RESOURCE_TYPE_SM;
    made_up.sm.smCount = 8;
    unsigned groups = 1;
    CU_CHECK(cu.cuDevSmResourceSplitByCount(&out, &groups, &made_up, nullptr, 0, 8),
             CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    CUdevResourceDesc description = nullptr;
    CU_CHECK(cu.cuDevResourceGenerateDesc(&description, &made_up, 1), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    CUgreenCtx green = nullptr;
    for (auto bad : {CUdevResourceDesc{}, reinterpret_cast<CUdevResourceDesc>(gpu.context)})
        CU_CHECK(cu.cuGreenCtxCreate(&green, bad, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_INVALID_VALUE);
    description = describe({all_of(gpu.device)});
    CU_CHECK(cu.cuGreenCtxCreate(nullptr, description, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGreenCtxCreate(&green, description, gpu.device, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGreenCtxCreate(&green, description, 99, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_INVALID_DEVICE);
    CHECK(green == nullptr);
    CU_CHECK(cu.cuGreenCtxDestroy(nullptr), CUDA_ERROR_INVALID_CONTEXT);
    CU_CHECK(cu.cuGreenCtxDestroy(reinterpret_cast<CUgreenCtx>(gpu.context)), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("one device's multiprocessors make no green context of another's", "[green]") {
    Gpu gpu;
    int count = 0;
    CU_OK(cu.cuDeviceGetCount(&count));
    if (count < 2) return;
    CUgreenCtx green = nullptr;
    auto description = describe({all_of(1)});
    CU_CHECK_EITHER(cu.cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_INVALID_VALUE,
                    CUDA_ERROR_INVALID_DEVICE);
    CUdevResource of_both[] = {split(all_of(0), 1, 8).groups[0], split(all_of(1), 1, 8).groups[0]};
    CU_CHECK(cu.cuDevResourceGenerateDesc(&description, of_both, 2), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
}

TEST_CASE("a green context says what it has and has an id of its own", "[green]") {
    Gpu gpu;
    Green green(gpu.device), other(gpu.device, 16);
    CUdevResource had{};
    CU_OK(cu.cuGreenCtxGetDevResource(green.handle, &had, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(had.sm.smCount == 8);
    CU_OK(cu.cuCtxGetDevResource(other.converted, &had, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(had.sm.smCount == 16);
    CHECK(split(had, 2, 8).groups.size() == 2);  // what a green context has can be split again
    CU_CHECK(cu.cuGreenCtxGetDevResource(green.handle, &had, CU_DEV_RESOURCE_TYPE_INVALID),
             CUDA_ERROR_INVALID_RESOURCE_TYPE);
    CU_CHECK(cu.cuGreenCtxGetDevResource(green.handle, nullptr, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuCtxGetDevResource(gpu.context, &had, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(had.sm.smCount == static_cast<unsigned>(gpu.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)));

    unsigned long long id = 0, other_id = 0, of_current = 0;
    CU_OK(cu.cuGreenCtxGetId(green.handle, &id));
    CU_OK(cu.cuGreenCtxGetId(other.handle, &other_id));
    CHECK(id != other_id);
    CU_CHECK(cu.cuGreenCtxGetId(nullptr, &of_current), CUDA_ERROR_INVALID_CONTEXT);
    CU_CHECK(cu.cuGreenCtxGetId(green.handle, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuCtxPushCurrent(green.converted));
    CU_OK(cu.cuGreenCtxGetId(nullptr, &of_current));
    CHECK(of_current == id);
    CU_OK(cu.cuCtxPopCurrent(nullptr));
}

TEST_CASE("a converted green context is a context with the primary one's memory", "[green]") {
    Gpu gpu;
    Green green(gpu.device);
    CHECK(green.converted != nullptr);
    Memory before(1024);
    CU_CHECK(cu.cuCtxSetCurrent(reinterpret_cast<CUcontext>(green.handle)), CUDA_ERROR_INVALID_CONTEXT);
    CU_OK(cu.cuCtxPushCurrent(green.converted));
    CUcontext current = nullptr;
    CUdevice device = -1;
    CU_OK(cu.cuCtxGetCurrent(&current));
    CHECK(current == green.converted);
    CU_OK(cu.cuCtxGetDevice(&device));
    CHECK(device == gpu.device);
    CU_CHECK(cu.cuCtxDestroy(green.converted), CUDA_ERROR_INVALID_CONTEXT);

    CUdeviceptr during = 0;
    CU_OK(cu.cuMemAlloc(&during, 1024));
    CU_OK(cu.cuMemsetD32(before.address, 7, 256));
    CU_OK(cu.cuMemcpyDtoD(during, before.address, 1024));
    CU_OK(cu.cuCtxSynchronize());
    CU_OK(cu.cuCtxPopCurrent(&current));
    CHECK(current == green.converted);
    green.destroy();
    std::vector<unsigned> read(256);
    CU_OK(cu.cuMemcpyDtoH(read.data(), during, 1024));  // it is the primary context's
    CHECK(read == std::vector<unsigned>(256, 7));
    CU_OK(cu.cuMemFree(during));
}

TEST_CASE("streams know their green context", "[green]") {
    Gpu gpu;
    Green green(gpu.device);
    CUstream stream = green.stream(-1000), made_inside = nullptr, blocking = nullptr;
    CHECK(green_of(stream) == green.handle);
    CHECK(green_of(nullptr) == nullptr);
    CUcontext context = nullptr;
    CUgreenCtx of_stream = nullptr;
    CU_OK(cu.cuStreamGetCtx(stream, &context));
    CHECK(context == green.converted);
    CU_OK(cu.cuStreamGetCtx_v2(stream, &context, &of_stream));
    CHECK(context == gpu.context);
    CHECK(of_stream == green.handle);
    unsigned flags = 0;
    int priority = 0, least = 0, greatest = 0;
    CU_OK(cu.cuStreamGetFlags(stream, &flags));
    CHECK(flags == CU_STREAM_NON_BLOCKING);
    CU_OK(cu.cuStreamGetPriority(stream, &priority));
    CU_OK(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(priority == greatest);  // a wish for more is one for the most

    CUstream none = nullptr;
    CU_CHECK(cu.cuGreenCtxStreamCreate(&none, green.handle, CU_STREAM_DEFAULT, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGreenCtxStreamCreate(nullptr, green.handle, CU_STREAM_NON_BLOCKING, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGreenCtxStreamCreate(&none, nullptr, CU_STREAM_NON_BLOCKING, 0), CUDA_ERROR_INVALID_CONTEXT);

    CU_OK(cu.cuCtxPushCurrent(green.converted));
    CHECK(green_of(nullptr) == green.handle);
    CHECK(green_of(CU_STREAM_LEGACY) == green.handle);
    CU_CHECK(cu.cuStreamGetGreenCtx(CU_STREAM_PER_THREAD, &of_stream), CUDA_ERROR_INVALID_HANDLE);
    CU_OK(cu.cuStreamCreate(&made_inside, CU_STREAM_NON_BLOCKING));
    CU_OK(cu.cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CU_OK(cu.cuCtxPopCurrent(nullptr));
    CHECK(green_of(made_inside) == green.handle);
    CHECK(green_of(blocking) == green.handle);
    for (CUstream one : {stream, made_inside, blocking}) CU_OK(cu.cuStreamDestroy(one));
}

TEST_CASE("kernels run in a green context's streams, and its null stream waits for the blocking ones", "[green]") {
    Gpu gpu;
    Module module;
    Green green(gpu.device);
    Memory data(std::vector<int>(1000, 1));
    auto add = [&](CUstream stream, int times) {
        for (int i = 0; i < times; ++i) launch_shaped(module.function("add"), 4, 256, 0, stream, data.address, 1000, 1);
    };
    CUstream stream = green.stream();
    add(stream, 3);
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(data.first<int>() == 4);

    CU_OK(cu.cuCtxPushCurrent(green.converted));
    CUstream blocking = nullptr;
    CU_OK(cu.cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    add(blocking, 5);
    add(nullptr, 1);
    int first = 0;
    CU_OK(cu.cuMemcpyDtoH(&first, data.address, sizeof first));
    CHECK(first == 10);
    CU_OK(cu.cuStreamDestroy(blocking));
    CU_OK(cu.cuCtxPopCurrent(nullptr));
    CU_OK(cu.cuStreamDestroy(stream));
}

TEST_CASE("an event records all work of a green context, and one can be waited for", "[green]") {
    Gpu gpu;
    Green green(gpu.device), other(gpu.device);
    CUstream first = green.stream(), second = other.stream();
    CUevent event = nullptr;
    CU_OK(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    {
        Memory scratch(64);
        CU_OK(cu.cuCtxSynchronize());  // what Memory fills itself with does not hold up such streams
        Gate gate(first);
        CU_OK(cu.cuGreenCtxRecordEvent(green.handle, event));
        CU_CHECK(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
        CU_OK(cu.cuGreenCtxWaitEvent(other.handle, event));
        CU_OK(cu.cuMemsetD32Async(scratch.address, 1, 16, second));
        CU_CHECK(cu.cuStreamQuery(second), CUDA_ERROR_NOT_READY);
        gate.open();
        CU_OK(cu.cuStreamSynchronize(second));
        CU_CHECK(cu.cuEventQuery(event), CUDA_SUCCESS);
    }
    CU_OK(cu.cuCtxRecordEvent(green.converted, event));
    CU_OK(cu.cuCtxWaitEvent(other.converted, event));
    CU_OK(cu.cuEventSynchronize(event));
    CU_CHECK(cu.cuGreenCtxRecordEvent(nullptr, event), CUDA_ERROR_INVALID_CONTEXT);
    CU_CHECK(cu.cuGreenCtxRecordEvent(green.handle, nullptr), CUDA_ERROR_INVALID_HANDLE);
    CU_CHECK(cu.cuGreenCtxWaitEvent(nullptr, event), CUDA_ERROR_INVALID_CONTEXT);
    CU_CHECK(cu.cuGreenCtxWaitEvent(green.handle, nullptr), CUDA_ERROR_INVALID_HANDLE);
    CU_OK(cu.cuStreamDestroy(first));
    CU_OK(cu.cuStreamDestroy(second));
    CU_OK(cu.cuEventDestroy(event));
}

TEST_CASE("what belongs to a destroyed green context is good for nothing", "[green]") {
    Gpu gpu;
    Green green(gpu.device);
    auto [handle, converted] = std::pair(green.handle, green.converted);
    CUstream left = green.stream();
    CU_OK(cu.cuCtxPushCurrent(converted));
    green.destroy();

    CUdeviceptr memory = 0;
    CU_CHECK(cu.cuMemAlloc(&memory, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CU_OK(cu.cuCtxPopCurrent(nullptr));
    CU_CHECK(cu.cuCtxPushCurrent(converted), CUDA_ERROR_INVALID_CONTEXT);
    CU_CHECK(cu.cuStreamSynchronize(left), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CU_CHECK(cu.cuStreamQuery(left), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CU_CHECK(cu.cuStreamDestroy(left), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CUcontext context = nullptr;
    CUdevResource had{};
    CUevent event = nullptr;
    CU_OK(cu.cuEventCreate(&event, 0));
    auto gone = [](CUresult result) {
        return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT;
    };
    CHECK(gone(cu.cuGreenCtxDestroy(handle)));
    CHECK(gone(cu.cuCtxFromGreenCtx(&context, handle)));
    CHECK(gone(cu.cuGreenCtxGetDevResource(handle, &had, CU_DEV_RESOURCE_TYPE_SM)));
    CHECK(gone(cu.cuGreenCtxRecordEvent(handle, event)));
    CHECK(gone(cu.cuGreenCtxStreamCreate(&left, handle, CU_STREAM_NON_BLOCKING, 0)));
    CU_OK(cu.cuEventDestroy(event));
    CU_OK(cu.cuCtxSynchronize());  // nothing is left behind
}

TEST_CASE("a green context holds the primary one", "[green]") {
    CU_OK(cu.cuInit(0));
    Green green(0);
    unsigned flags = 0;
    int active = 0;
    CU_OK(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active == 1);
    CU_OK(cu.cuCtxPushCurrent(green.converted));
    CUdeviceptr memory = 0;
    CU_OK(cu.cuMemAlloc(&memory, 4096));
    CU_OK(cu.cuMemFree(memory));
    CU_OK(cu.cuCtxPopCurrent(nullptr));
    green.destroy();
    CU_OK(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active == 0);
}

TEST_CASE("resetting the primary context ends its green ones", "[green]") {
    CU_OK(cu.cuInit(0));
    Green green(0);
    CUstream left = green.stream();
    CU_OK(cu.cuDevicePrimaryCtxReset(0));
    CHECK(cu.cuStreamQuery(left) != CUDA_SUCCESS);
    CHECK(cu.cuGreenCtxDestroy(std::exchange(green.handle, nullptr)) != CUDA_SUCCESS);
    Gpu gpu;  // a new beginning
    Memory memory(std::vector<int>{5});
    CHECK(memory.first<int>() == 5);
}

// In a thread of its own, which may not use Catch: how many rounds went as they should.
static int rounds_in(CUcontext converted, CUstream stream, unsigned seed) {
    CUdeviceptr memory = 0;
    if (cu.cuCtxSetCurrent(converted) != CUDA_SUCCESS || cu.cuMemAlloc(&memory, 4096) != CUDA_SUCCESS) return 0;
    int good = 0;
    for (unsigned round = 0; round < 20; ++round) {
        unsigned read = 0;
        bool done = cu.cuMemsetD32Async(memory, seed + round, 1024, stream) == CUDA_SUCCESS &&
                    cu.cuStreamSynchronize(stream) == CUDA_SUCCESS &&
                    cu.cuMemcpyDtoH(&read, memory, sizeof read) == CUDA_SUCCESS;
        if (done && read == seed + round) ++good;
    }
    (void)cu.cuMemFree(memory);
    return good;
}

TEST_CASE("threads work in green contexts of their own", "[green]") {
    Gpu gpu;
    std::vector<std::unique_ptr<Green>> greens;
    std::vector<std::thread> threads;
    std::atomic<int> good{0};
    for (unsigned i = 0; i < 4; ++i) {
        greens.push_back(std::make_unique<Green>(gpu.device));
        CUstream stream = greens.back()->stream();
        threads.emplace_back([&good, converted = greens.back()->converted, stream, i] {
            good += rounds_in(converted, stream, i * 100);
            (void)cu.cuStreamDestroy(stream);
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(good == 80);
}
