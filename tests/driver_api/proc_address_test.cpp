// cuGetProcAddress: how the runtime finds every function, by name, version and default-stream flavour.
#include "gpu.hpp"

using namespace driver_api;

namespace {
struct Found {
    CUresult result = CUDA_ERROR_UNKNOWN;
    void* function = reinterpret_cast<void*>(1);
    CUdriverProcAddressQueryResult status = static_cast<CUdriverProcAddressQueryResult>(99);
};
Found find(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT) {
    Found found;
    found.result = cu.cuGetProcAddress(name, &found.function, version, flags, &found.status);
    return found;
}
template <class Signature>
Signature* function(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT) {
    Found found = find(name, version, flags);
    INFO(name << " at " << version);
    REQUIRE(name_of(found.result) == "CUDA_SUCCESS");
    REQUIRE(found.status == CU_GET_PROC_ADDRESS_SUCCESS);
    REQUIRE(found.function != nullptr);
    return reinterpret_cast<Signature*>(found.function);
}
}  // namespace

TEST_CASE("functions are found by their plain names and work", "[proc address]") {
    Gpu gpu;
    CUdeviceptr address = 0;
    int value = 5, back = 0;
    auto* allocate = function<CUresult(CUdeviceptr*, size_t)>("cuMemAlloc", 3020);
    auto* to_device = function<CUresult(CUdeviceptr, const void*, size_t)>("cuMemcpyHtoD", 3020);
    auto* to_host = function<CUresult(void*, CUdeviceptr, size_t)>("cuMemcpyDtoH", 12000);
    auto* release = function<CUresult(CUdeviceptr)>("cuMemFree", 12000);
    CU_OK(allocate(&address, sizeof(int)));
    CU_OK(to_device(address, &value, sizeof(int)));
    CU_OK(to_host(&back, address, sizeof(int)));
    CU_OK(release(address));
    CHECK(back == 5);
}

TEST_CASE("everything the runtime cannot do without is found", "[proc address]") {
    CU_OK(cu.cuInit(0));
    for (const char* name : {"cuInit",
                             "cuDriverGetVersion",
                             "cuDeviceGet",
                             "cuDeviceGetCount",
                             "cuDeviceGetAttribute",
                             "cuDeviceGetUuid",
                             "cuDevicePrimaryCtxRetain",
                             "cuDevicePrimaryCtxRelease",
                             "cuDevicePrimaryCtxReset",
                             "cuCtxGetCurrent",
                             "cuCtxSetCurrent",
                             "cuCtxSynchronize",
                             "cuGetExportTable",
                             "cuGetProcAddress",
                             "cuLibraryLoadData",
                             "cuLibraryGetKernel",
                             "cuLibraryGetGlobal",
                             "cuKernelGetAttribute",
                             "cuLaunchKernel",
                             "cuLaunchKernelEx",
                             "cuLaunchCooperativeKernel",
                             "cuMemAlloc",
                             "cuMemAllocAsync",
                             "cuMemcpyAsync",
                             "cuMemsetD8Async",
                             "cuMemHostAlloc",
                             "cuStreamCreateWithPriority",
                             "cuStreamWaitEvent",
                             "cuEventCreate",
                             "cuEventElapsedTime",
                             "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
                             "cuPointerGetAttributes",
                             "cuModuleGetLoadingMode"}) {
        INFO(name);
        Found found = find(name, 12000);
        CHECK(name_of(found.result) == "CUDA_SUCCESS");
        CHECK(found.function != nullptr);
        CHECK(found.status == CU_GET_PROC_ADDRESS_SUCCESS);
    }
}

TEST_CASE("the version decides which form of a function is returned", "[proc address]") {
    Gpu gpu;
    // cuDeviceGetUuid and its second form agree; cuCtxCreate gained parameters twice, so only the right one works.
    CUcontext context = nullptr;
    CU_OK(function<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate", 3020)(&context, 0, gpu.device));
    CU_OK(cu.cuCtxDestroy(context));
    CU_OK(function<CUresult(CUcontext*, CUexecAffinityParam*, int, unsigned, CUdevice)>("cuCtxCreate", 11040)(
        &context, nullptr, 0, 0, gpu.device));
    CU_OK(cu.cuCtxDestroy(context));
    // The driver's 32-bit addresses of CUDA 2 are another function than today's.
    CHECK(find("cuMemAlloc", 2000).function != find("cuMemAlloc", 3020).function);
}

TEST_CASE("a function newer than the asked version is not given", "[proc address]") {
    CU_OK(cu.cuInit(0));
    Found found = find("cuMemAllocAsync", 10000);  // came with 11.2
    CHECK(found.function == nullptr);
    CHECK(found.status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    CHECK((found.result == CUDA_SUCCESS || found.result == CUDA_ERROR_NOT_FOUND));
}

TEST_CASE("a name that does not exist is not found", "[proc address]") {
    CU_OK(cu.cuInit(0));
    for (const char* name : {"cuNoSuchFunction", "cumemalloc", "printf"}) {
        Found found = find(name, 12000);
        INFO(name);
        CHECK(found.function == nullptr);
        CHECK(found.status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
        // The header says success; drivers are known that answer "not found" as well.
        CHECK((found.result == CUDA_SUCCESS || found.result == CUDA_ERROR_NOT_FOUND));
    }
}

// Their runtimes do without, where the answer is one of these.
TEST_CASE("what came with a newer toolkit is not found, and its version is too new", "[proc address]") {
    CU_OK(cu.cuInit(0));
    int version = 0;
    CU_OK(cu.cuDriverGetVersion(&version));
    struct Newer {
        const char* name;
        int version;
    };
    for (auto& [name, since] : {Newer{"cuKernelGetParamCount", 13020}, Newer{"cuMemcpyWithAttributesAsync", 13020},
                                Newer{"cuGraphNodeGetParams", 13020}, Newer{"cuLogicalEndpointCreate", 13030},
                                Newer{"cuMemGetLocationInfo", 13040}, Newer{"cuCheckpointOperationComplete", 13040},
                                Newer{"cuFabricCpyBatchAsync", 13050}, Newer{"cuTensorMapSetAllocationClass", 13050}}) {
        if (version >= since) continue;
        INFO(name);
        void* function = &function;
        auto status = CU_GET_PROC_ADDRESS_SUCCESS;
        CU_CHECK(cu.cuGetProcAddress(name, &function, since, 0, &status), CUDA_ERROR_INVALID_VALUE);
        Found found = find(name, version);
        CHECK((found.result == CUDA_SUCCESS || found.result == CUDA_ERROR_NOT_FOUND));
        CHECK(found.function == nullptr);
        CHECK(found.status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    }
    // Another form of a function that there is: whoever asks as of today gets today's.
    CHECK(find("cuLaunchHostFunc", version).function == find("cuLaunchHostFunc", 12000).function);
}

TEST_CASE("impossible questions are refused", "[proc address]") {
    CU_OK(cu.cuInit(0));
    int version = 0;
    void* pointer = nullptr;
    CU_OK(cu.cuDriverGetVersion(&version));
    CU_CHECK(cu.cuGetProcAddress("cuInit", &pointer, version + 1000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGetProcAddress(nullptr, &pointer, 12000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGetProcAddress("cuInit", nullptr, 12000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGetProcAddress("cuInit", &pointer, 12000, 0xff00, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGetProcAddress("cuInit", &pointer, 12000, 0, nullptr), CUDA_SUCCESS);  // the status is optional
}

TEST_CASE("the flags choose between the legacy and the thread's default stream", "[proc address]") {
    Gpu gpu;
    using Query = CUresult(CUstream);
    auto* usual = function<Query>("cuStreamQuery", 12000);
    auto* legacy = function<Query>("cuStreamQuery", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    auto* per_thread = function<Query>("cuStreamQuery", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    {
        Stream blocking;
        Gate gate(blocking);
        CU_OK(cu.cuLaunchHostFunc(
            nullptr, [](void*) {}, nullptr));  // the legacy stream now waits for the gate
        CU_CHECK(usual(nullptr), CUDA_ERROR_NOT_READY);
        CU_CHECK(legacy(nullptr), CUDA_ERROR_NOT_READY);
        CU_CHECK(per_thread(nullptr), CUDA_SUCCESS);
    }
    CU_OK(cu.cuCtxSynchronize());
    // A function without a per-thread form is found all the same.
    function<CUresult(CUdeviceptr*, size_t)>("cuMemAlloc", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
}
