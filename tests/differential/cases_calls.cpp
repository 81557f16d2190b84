// Every call as a program makes it: that it works, what it answers without a current context, and before cuInit.
#include "tests/differential/cases.hpp"

namespace differential {
namespace {

// The objects of a well-behaved program; all null before cuInit.
struct World {
    CUdeviceptr memory = 0, other = 0;
    void* host = nullptr;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction function = nullptr, own_function = nullptr;
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
};

World make_world() {
    World w;
    w.context = primary();
    w.memory = memory(1 << 16), w.other = memory(1 << 16);
    w.host = pinned(1 << 16);
    w.stream = stream();
    w.event = event();
    NEED(cuEventRecord, w.event, w.stream);
    NEED(cuEventSynchronize, w.event);
    w.module = module(), w.function = function("nothing"), w.own_function = own_function();
    w.library = code_library(), w.kernel = kernel("nothing");
    return w;
}

struct Probe {
    const char* name;
    CUresult (*call)(World& w);
};

void nothing_to_do(void*) {}

#define PROBE(name, ...)                                       \
    {                                                          \
#name, [](World& w) { (void)w; return DO(name, __VA_ARGS__); } \
    }
#define PROBE_OUT(name, Type, ...)                                         \
    {                                                                      \
#name, [](World& w) { (void)w; Type out{}; return DO(name, __VA_ARGS__); } \
    }
#define PROBE_OUTS(name, Type, Other, ...)                                               \
    {                                                                                    \
#name, [](World& w) { (void)w; Type out{}; Other more{}; return DO(name, __VA_ARGS__); } \
    }

constexpr size_t some = 4096;
const Probe probes[] = {
    PROBE_OUT(cuDriverGetVersion, int, &out),
    PROBE_OUT(cuDeviceGet, CUdevice, &out, 0),
    PROBE_OUT(cuDeviceGetCount, int, &out),
    PROBE_OUT(cuDeviceGetAttribute, int, &out, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0),
    PROBE_OUT(cuDeviceTotalMem, size_t, &out, 0),
    PROBE_OUT(cuDeviceGetUuid, CUuuid, &out, 0),
    PROBE_OUT(cuDeviceGetDefaultMemPool, CUmemoryPool, &out, 0),
    PROBE_OUT(cuDeviceGetMemPool, CUmemoryPool, &out, 0),
    PROBE_OUTS(cuDevicePrimaryCtxGetState, unsigned, int, 0, &out, &more),
    PROBE_OUT(cuCtxGetCurrent, CUcontext, &out),
    PROBE_OUT(cuCtxGetDevice, CUdevice, &out),
    PROBE_OUT(cuCtxGetFlags, unsigned, &out),
    PROBE_OUT(cuCtxGetId, unsigned long long, nullptr, &out),
    PROBE_OUT(cuCtxGetApiVersion, unsigned, w.context, &out),
    PROBE_OUT(cuCtxGetLimit, size_t, &out, CU_LIMIT_STACK_SIZE),
    PROBE(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 1024),
    PROBE_OUT(cuCtxGetCacheConfig, CUfunc_cache, &out),
    PROBE(cuCtxSetCacheConfig, CU_FUNC_CACHE_PREFER_NONE),
    PROBE_OUTS(cuCtxGetStreamPriorityRange, int, int, &out, &more),
    PROBE(cuCtxSynchronize, ),
    PROBE(cuCtxResetPersistingL2Cache, ),
    PROBE_OUT(cuStreamCreate, CUstream, &out, 0),
    PROBE_OUT(cuStreamCreateWithPriority, CUstream, &out, 0, 0),
    PROBE(cuStreamSynchronize, w.stream),
    PROBE(cuStreamQuery, w.stream),
    PROBE(cuStreamWaitEvent, w.stream, w.event, 0),
    PROBE_OUT(cuStreamGetFlags, unsigned, w.stream, &out),
    PROBE_OUT(cuStreamGetPriority, int, w.stream, &out),
    PROBE_OUT(cuStreamGetId, unsigned long long, w.stream, &out),
    PROBE_OUT(cuStreamGetCtx, CUcontext, w.stream, &out),
    PROBE_OUT(cuStreamIsCapturing, CUstreamCaptureStatus, w.stream, &out),
    PROBE_OUT(cuEventCreate, CUevent, &out, 0),
    PROBE(cuEventRecord, w.event, w.stream),
    PROBE(cuEventQuery, w.event),
    PROBE(cuEventSynchronize, w.event),
    PROBE_OUT(cuEventElapsedTime, float, &out, w.event, w.event),
    PROBE_OUT(cuMemAlloc, CUdeviceptr, &out, some),
    PROBE_OUTS(cuMemAllocPitch, CUdeviceptr, size_t, &out, &more, 100, 4, 4),
    PROBE_OUT(cuMemAllocAsync, CUdeviceptr, &out, some, w.stream),
    PROBE_OUT(cuMemAllocHost, void*, &out, some),
    PROBE_OUT(cuMemHostAlloc, void*, &out, some, 0),
    PROBE(cuMemHostGetFlags, reinterpret_cast<unsigned*>(&w.memory), w.host),
    PROBE_OUTS(cuMemGetInfo, size_t, size_t, &out, &more),
    PROBE_OUTS(cuMemGetAddressRange, CUdeviceptr, size_t, &out, &more, w.memory),
    PROBE(cuMemcpy, w.memory, w.other, some),
    PROBE(cuMemcpyAsync, w.memory, w.other, some, w.stream),
    PROBE(cuMemcpyHtoD, w.memory, w.host, some),
    PROBE(cuMemcpyDtoH, w.host, w.memory, some),
    PROBE(cuMemcpyDtoD, w.memory, w.other, some),
    PROBE(cuMemcpyHtoDAsync, w.memory, w.host, some, w.stream),
    PROBE(cuMemcpyDtoHAsync, w.host, w.memory, some, w.stream),
    PROBE(cuMemcpyDtoDAsync, w.memory, w.other, some, w.stream),
    PROBE(cuMemsetD8, w.memory, 1, some),
    PROBE(cuMemsetD16, w.memory, 1, some),
    PROBE(cuMemsetD32, w.memory, 1, some),
    PROBE(cuMemsetD2D8, w.memory, 512, 1, 100, 4),
    PROBE(cuMemsetD2D16, w.memory, 512, 1, 100, 4),
    PROBE(cuMemsetD2D32, w.memory, 512, 1, 100, 4),
    PROBE(cuMemsetD8Async, w.memory, 1, some, w.stream),
    PROBE(cuMemsetD16Async, w.memory, 1, some, w.stream),
    PROBE(cuMemsetD32Async, w.memory, 1, some, w.stream),
    PROBE_OUT(cuPointerGetAttribute, CUcontext, &out, CU_POINTER_ATTRIBUTE_CONTEXT, w.memory),
    PROBE_OUT(cuModuleLoadData, CUmodule, &out, image),
    PROBE_OUT(cuModuleLoadDataEx, CUmodule, &out, image, 0, nullptr, nullptr),
    PROBE_OUT(cuModuleGetFunction, CUfunction, &out, w.module, "nothing"),
    PROBE_OUTS(cuModuleGetGlobal, CUdeviceptr, size_t, &out, &more, w.module, "word"),
    PROBE_OUT(cuModuleGetFunctionCount, unsigned, &out, w.module),
    PROBE_OUT(cuModuleGetLoadingMode, CUmoduleLoadingMode, &out),
    PROBE_OUT(cuLibraryLoadData, CUlibrary, &out, image, nullptr, nullptr, 0, nullptr, nullptr, 0),
    PROBE_OUT(cuLibraryGetKernel, CUkernel, &out, w.library, "nothing"),
    PROBE_OUTS(cuLibraryGetGlobal, CUdeviceptr, size_t, &out, &more, w.library, "word"),
    PROBE_OUT(cuLibraryGetModule, CUmodule, &out, w.library),
    PROBE_OUT(cuLibraryGetKernelCount, unsigned, &out, w.library),
    PROBE_OUT(cuKernelGetFunction, CUfunction, &out, w.kernel),
    PROBE_OUT(cuKernelGetAttribute, int, &out, CU_FUNC_ATTRIBUTE_NUM_REGS, w.kernel, 0),
    PROBE_OUT(cuKernelGetName, const char*, &out, w.kernel),
    PROBE_OUT(cuKernelGetLibrary, CUlibrary, &out, w.kernel),
    PROBE_OUT(cuFuncGetAttribute, int, &out, CU_FUNC_ATTRIBUTE_NUM_REGS, w.function),
    PROBE_OUT(cuFuncGetName, const char*, &out, w.function),
    PROBE_OUT(cuFuncGetModule, CUmodule, &out, w.function),
    PROBE(cuFuncSetCacheConfig, w.own_function, CU_FUNC_CACHE_PREFER_L1),
    PROBE(cuFuncSetAttribute, w.own_function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024),
    PROBE(cuLaunchKernel, w.function, 1, 1, 1, 1, 1, 1, 0, w.stream, nullptr, nullptr),
    PROBE(cuLaunchCooperativeKernel, w.function, 1, 1, 1, 1, 1, 1, 0, w.stream, nullptr),
    PROBE(cuLaunchHostFunc, w.stream, nothing_to_do, nullptr),
    PROBE_OUT(cuOccupancyMaxActiveBlocksPerMultiprocessor, int, &out, w.function, 64, 0),
    PROBE_OUT(cuOccupancyAvailableDynamicSMemPerBlock, size_t, &out, w.function, 1, 64),
    PROBE_OUTS(cuOccupancyMaxPotentialBlockSize, int, int, &out, &more, w.function, nullptr, 0, 0),
    PROBE_OUT(cuGetErrorName, const char*, CUDA_SUCCESS, &out),
    PROBE_OUT(cuGetErrorString, const char*, CUDA_SUCCESS, &out),
    PROBE_OUT(cuMemAddressReserve, CUdeviceptr, &out, size_t{2} << 20, 0, 0, 0),
};

}  // namespace

void add_call_cases(std::vector<Case>& cases) {
    for (auto& probe : probes) {
        std::string name = probe.name;
        auto call = probe.call;
        cases.push_back({name + "/valid", [call](Outcome& o) {
                             auto w = make_world();
                             o.add(call(w));
                         }});
        cases.push_back({name + "/no context", [call](Outcome& o) {
                             auto w = make_world();
                             NEED(cuCtxSetCurrent, nullptr);
                             o.add(call(w));
                         }});
        cases.push_back({name + "/before cuInit",
                         [call](Outcome& o) {
                             World w;
                             o.add(call(w));
                         },
                         Setting::uninitialised});
    }
    cases.push_back({"cuInit/flags", [](Outcome& o) { TELL(cuInit, 1); }, Setting::alone});
    cases.push_back({"cuInit/twice", [](Outcome& o) { TELL(cuInit, 0); }});
}

}  // namespace differential
