// The primary context: counted, shared by everybody in the process, and what the runtime uses.
#include <thread>

#include "gpu.hpp"

using namespace driver_api;

namespace {
struct State {
    unsigned flags = 99;
    int active = 99;
};
State state_of(CUdevice device) {
    State state;
    CU_OK(cu.cuDevicePrimaryCtxGetState(device, &state.flags, &state.active));
    return state;
}
// The device's, which has been retained twice.
void takes_two_releases() {
    CHECK(state_of(0).active == 1);
    CU_OK(cu.cuDevicePrimaryCtxRelease(0));
    CHECK(state_of(0).active == 1);
    CU_OK(cu.cuDevicePrimaryCtxRelease(0));
    CHECK(state_of(0).active == 0);
    CU_CHECK(cu.cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}
}  // namespace

FRESH_PROCESS_TEST_CASE("a primary context is active from the first retain to the last release", "[primary context]") {
    CU_OK(cu.cuInit(0));
    CHECK(state_of(0).active == 0);
    CHECK(state_of(0).flags == 0);
    CUcontext first = nullptr, second = nullptr;
    CU_OK(cu.cuDevicePrimaryCtxRetain(&first, 0));
    CU_OK(cu.cuDevicePrimaryCtxRetain(&second, 0));
    CHECK(first == second);
    takes_two_releases();
}

FRESH_PROCESS_TEST_CASE("retaining a primary context does not make it current", "[primary context]") {
    CU_OK(cu.cuInit(0));
    CUcontext context = nullptr, current = nullptr;
    CU_OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    CU_OK(cu.cuCtxGetCurrent(&current));
    CHECK(current == nullptr);
    CU_OK(cu.cuDevicePrimaryCtxRelease(0));
}

FRESH_PROCESS_TEST_CASE("flags set before the first retain are the context's flags", "[primary context]") {
    CU_OK(cu.cuInit(0));
    CU_CHECK(cu.cuDevicePrimaryCtxSetFlags(0, 0xffffff), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_YIELD));
    CHECK(state_of(0).flags == CU_CTX_SCHED_YIELD);
    CHECK(state_of(0).active == 0);
    Gpu gpu;
    unsigned flags = 0;
    CU_OK(cu.cuCtxGetFlags(&flags));
    CHECK((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD);
}

FRESH_PROCESS_TEST_CASE("a reset destroys the primary context and a retain brings a new one", "[primary context]") {
    CU_OK(cu.cuInit(0));
    {
        Gpu gpu;
        CUdeviceptr lost = 0;
        CU_OK(cu.cuMemAlloc(&lost, 1 << 20));
        CU_OK(cu.cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
        CU_OK(cu.cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
        CU_OK(cu.cuDevicePrimaryCtxReset(0));
        CHECK(state_of(0).active == 0);
        CHECK(state_of(0).flags == 0);
    }
    Gpu gpu;
    CUfunc_cache cache = CU_FUNC_CACHE_PREFER_EQUAL;
    CU_OK(cu.cuCtxGetCacheConfig(&cache));
    CHECK(cache == CU_FUNC_CACHE_PREFER_NONE);
    CHECK(state_of(0).active == 1);
    Memory memory(std::vector<int>{8});
    CHECK(memory.first<int>() == 8);
}

FRESH_PROCESS_TEST_CASE("a reset releases nothing: who has retained the primary context still releases it",
                        "[primary context]") {
    CU_OK(cu.cuInit(0));
    CUcontext context = nullptr;
    for (int i = 0; i < 2; ++i) CU_OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    CU_OK(cu.cuDevicePrimaryCtxReset(0));
    CU_OK(cu.cuDevicePrimaryCtxRelease(0));
    CHECK(state_of(0).active == 0);
    CU_OK(cu.cuDevicePrimaryCtxRetain(&context, 0));  // a module that uses it anew
    takes_two_releases();
}

TEST_CASE("primary contexts of unknown devices are refused", "[primary context]") {
    CU_OK(cu.cuInit(0));
    CUcontext context = nullptr;
    unsigned flags = 0;
    int active = 0;
    CU_CHECK(cu.cuDevicePrimaryCtxRetain(&context, 1000), CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.cuDevicePrimaryCtxRelease(1000), CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.cuDevicePrimaryCtxGetState(1000, &flags, &active), CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.cuDevicePrimaryCtxRetain(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("memory of the primary context is shared by all threads that make it current", "[primary context]") {
    Gpu gpu;
    Memory memory(std::vector<int>{1});
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
        int value = 2;
        result = cu.cuCtxSetCurrent(gpu.context);
        if (result == CUDA_SUCCESS) result = cu.cuMemcpyHtoD(memory.address, &value, sizeof(value));
    }).join();
    CHECK(result == CUDA_SUCCESS);
    CHECK(memory.first<int>() == 2);
}
