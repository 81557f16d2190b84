// Contexts and devices.
#include "tests/differential/cases.hpp"

namespace differential {
namespace {

CUresult create(CUcontext* context, unsigned flags, CUdevice device) {
    // The form of CUDA 3.2 to 11.3, which every driver exports.
    using Create = CUresult (*)(CUcontext*, unsigned, CUdevice);
    static auto* function = reinterpret_cast<Create>(dlsym(library, "cuCtxCreate_v2"));
    return function ? function(context, flags, device) : missing;
}
CUcontext another(int device = 0) {
    CUcontext made = nullptr;
    need(create(&made, 0, device), "cuCtxCreate");
    return made;
}
CUcontext destroyed() {
    auto made = another();
    NEED(cuCtxDestroy, made);
    return made;
}

}  // namespace

#define ALONE_CASE(name, ...)                                \
    {                                                        \
        name, [](Outcome& o) { __VA_ARGS__ }, Setting::alone \
    }
#define UNSAFE_CONTEXT_CASE(name, ...)                             \
    {                                                              \
        name, [](Outcome& o) { __VA_ARGS__ }, Setting::alone, true \
    }
#define CONTEXT_CASE(name, ...)              \
    {                                        \
        name, [](Outcome& o) { __VA_ARGS__ } \
    }

void add_context_cases(std::vector<Case>& cases) {
    std::vector<Case> added = {
        CONTEXT_CASE("cuDeviceGet/ordinal -1", CUdevice d; TELL(cuDeviceGet, &d, -1);),
        CONTEXT_CASE("cuDeviceGet/ordinal 99", CUdevice d; TELL(cuDeviceGet, &d, 99);),
        CONTEXT_CASE("cuDeviceGetExecAffinitySupport/unknown type", int s;
                     TELL(cuDeviceGetExecAffinitySupport, &s, CUexecAffinityType(9), 0);),
        CONTEXT_CASE("cuDeviceGetName/no room", char n[1]; TELL(cuDeviceGetName, n, 0, 0);),
        CONTEXT_CASE("cuDeviceGetName/one byte", char n[1] = {'x'}; TELL(cuDeviceGetName, n, 1, 0);
                     o.add(n[0] == 0 ? "empty" : "other");),
        CONTEXT_CASE("cuDeviceGetName/no such device", char n[64]; TELL(cuDeviceGetName, n, 64, 99);),
        CONTEXT_CASE("cuDeviceGetAttribute/attribute zero", int v;
                     TELL(cuDeviceGetAttribute, &v, static_cast<CUdevice_attribute>(0), 0);),
        CONTEXT_CASE("cuDeviceGetAttribute/attribute 9999", int v;
                     TELL(cuDeviceGetAttribute, &v, static_cast<CUdevice_attribute>(9999), 0);),
        CONTEXT_CASE("cuDeviceGetAttribute/no such device", int v;
                     TELL(cuDeviceGetAttribute, &v, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99);),
        CONTEXT_CASE("cuDeviceTotalMem/no such device", size_t v; TELL(cuDeviceTotalMem, &v, 99);),
        CONTEXT_CASE("cuDeviceGetPCIBusId/too short", char id[4]; TELL(cuDeviceGetPCIBusId, id, 4, 0);),
        CONTEXT_CASE("cuDeviceGetByPCIBusId/nonsense", CUdevice d; TELL(cuDeviceGetByPCIBusId, &d, "nonsense");),
        CONTEXT_CASE("cuDeviceGetByPCIBusId/nobody's", CUdevice d; TELL(cuDeviceGetByPCIBusId, &d, "ffff:ff:1f.0");),
        CONTEXT_CASE("cuDeviceGetByPCIBusId/null", CUdevice d; TELL(cuDeviceGetByPCIBusId, &d, nullptr);),
        CONTEXT_CASE("cuDeviceGetUuid/no such device", CUuuid u; TELL(cuDeviceGetUuid, &u, 99);),
        CONTEXT_CASE("cuDeviceCanAccessPeer/itself", int can = 9; TELL(cuDeviceCanAccessPeer, &can, 0, 0);
                     o.add(std::to_string(can));),
        CONTEXT_CASE("cuDeviceCanAccessPeer/no such device", int can; TELL(cuDeviceCanAccessPeer, &can, 0, 99);),
        CONTEXT_CASE("cuDeviceGetP2PAttribute/itself", int v;
                     TELL(cuDeviceGetP2PAttribute, &v, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0);),
        CONTEXT_CASE("cuDeviceGetLuid/on Linux", char luid[8]; unsigned mask; TELL(cuDeviceGetLuid, luid, &mask, 0);),
        CONTEXT_CASE("cuDeviceGetExecAffinitySupport/of MPS", int v;
                     TELL(cuDeviceGetExecAffinitySupport, &v, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0);),
        CONTEXT_CASE("cuDevicePrimaryCtxRetain/no such device", CUcontext c; TELL(cuDevicePrimaryCtxRetain, &c, 99);),
        CONTEXT_CASE("cuDevicePrimaryCtxRelease/no such device", TELL(cuDevicePrimaryCtxRelease, 99);),
        CONTEXT_CASE("cuDevicePrimaryCtxGetState/no such device", unsigned f; int a;
                     TELL(cuDevicePrimaryCtxGetState, 99, &f, &a);),
        ALONE_CASE("cuDevicePrimaryCtxSetFlags/unknown flags", TELL(cuDevicePrimaryCtxSetFlags, 0, 0x1000);),
        ALONE_CASE("cuDevicePrimaryCtxSetFlags/two schedules",
                   TELL(cuDevicePrimaryCtxSetFlags, 0, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_BLOCKING_SYNC);),
        CONTEXT_CASE("cuDevicePrimaryCtxReset/no such device", TELL(cuDevicePrimaryCtxReset, 99);),
        ALONE_CASE("cuDevicePrimaryCtxSetFlags/while active", TELL(cuDevicePrimaryCtxSetFlags, 0, CU_CTX_SCHED_SPIN);),
        ALONE_CASE("cuDevicePrimaryCtxRelease/twice", TELL(cuDevicePrimaryCtxRelease, 0);
                   TELL(cuDevicePrimaryCtxRelease, 0);),
        ALONE_CASE("cuDevicePrimaryCtxReset/then use", TELL(cuDevicePrimaryCtxReset, 0); CUdeviceptr p;
                   TELL(cuMemAlloc, &p, 64);),
        ALONE_CASE("cuDevicePrimaryCtxReset/then free", auto m = memory(64); NEED(cuDevicePrimaryCtxReset, 0);
                   TELL(cuMemFree, m);),
        ALONE_CASE("cuDevicePrimaryCtxReset/then query an old stream", auto s = stream();
                   NEED(cuDevicePrimaryCtxReset, 0); TELL(cuStreamQuery, s);),
        ALONE_CASE("cuDevicePrimaryCtxRelease/then use", NEED(cuDevicePrimaryCtxRelease, 0); CUdeviceptr p;
                   TELL(cuMemAlloc, &p, 64);),

        ALONE_CASE("cuCtxCreate/unknown flags", CUcontext c; o.add(create(&c, 0x1000, 0));),
        ALONE_CASE("cuCtxCreate/two schedules", CUcontext c;
                   o.add(create(&c, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD, 0));),
        ALONE_CASE("cuCtxCreate/no such device", CUcontext c; o.add(create(&c, 0, 99));),
        ALONE_CASE("cuCtxCreate/null", o.add(create(nullptr, 0, 0));),
        ALONE_CASE("cuCtxDestroy/null", TELL(cuCtxDestroy, nullptr);),
        ALONE_CASE("cuCtxDestroy/the primary", TELL(cuCtxDestroy, primary());),
        ALONE_CASE("cuCtxDestroy/current", TELL(cuCtxDestroy, another()); CUcontext c = nullptr;
                   TELL(cuCtxGetCurrent, &c); o.add(c == nullptr     ? "none"
                                                    : c == primary() ? "primary"
                                                                     : "other");),
        ALONE_CASE("cuCtxDestroy/not current", auto c = another(); NEED(cuCtxPopCurrent, nullptr);
                   TELL(cuCtxDestroy, c);),
        UNSAFE_CONTEXT_CASE("cuCtxDestroy/twice", TELL(cuCtxDestroy, destroyed());),
        UNSAFE_CONTEXT_CASE("cuCtxSetCurrent/destroyed", TELL(cuCtxSetCurrent, destroyed());),
        UNSAFE_CONTEXT_CASE("cuCtxPushCurrent/destroyed", TELL(cuCtxPushCurrent, destroyed());),
        UNSAFE_CONTEXT_CASE("cuCtxSetCurrent/invented", TELL(cuCtxSetCurrent, invented<CUcontext>());),
        UNSAFE_CONTEXT_CASE("cuCtxGetApiVersion/invented", unsigned v;
                            TELL(cuCtxGetApiVersion, invented<CUcontext>(), &v);),
        ALONE_CASE("cuCtxPushCurrent/null", TELL(cuCtxPushCurrent, nullptr);),
        ALONE_CASE("cuCtxPopCurrent/empty", NEED(cuCtxSetCurrent, nullptr); CUcontext c = primary();
                   NEED(cuCtxPopCurrent, &c); TELL(cuCtxPopCurrent, &c);),
        ALONE_CASE("cuCtxPopCurrent/null result", another(); TELL(cuCtxPopCurrent, nullptr);),
        ALONE_CASE("cuCtxGetApiVersion/null context", unsigned v; TELL(cuCtxGetApiVersion, nullptr, &v);),
        ALONE_CASE("cuCtxGetId/null context", unsigned long long v; TELL(cuCtxGetId, nullptr, &v);),
        CONTEXT_CASE("cuCtxGetLimit/unknown", size_t v; TELL(cuCtxGetLimit, &v, static_cast<CUlimit>(99));),
        CONTEXT_CASE("cuCtxSetLimit/unknown", TELL(cuCtxSetLimit, static_cast<CUlimit>(99), 1);),
        ALONE_CASE("cuCtxSetLimit/enormous stack", TELL(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, size_t{1} << 40);),
        CONTEXT_CASE("cuCtxSetCacheConfig/unknown", TELL(cuCtxSetCacheConfig, static_cast<CUfunc_cache>(9));),
        ALONE_CASE("cuCtxAttach/flags", CUcontext c; TELL(cuCtxAttach, &c, 1);),
        ALONE_CASE("cuCtxDetach/the primary", TELL(cuCtxDetach, primary());),
        ALONE_CASE("cuCtxEnablePeerAccess/null", TELL(cuCtxEnablePeerAccess, nullptr, 0);),
        ALONE_CASE("cuCtxEnablePeerAccess/itself", TELL(cuCtxEnablePeerAccess, primary(), 0);),
        ALONE_CASE("cuCtxDisablePeerAccess/not enabled", second_device(); auto c = another(1); primary();
                   TELL(cuCtxDisablePeerAccess, c);),
        ALONE_CASE("cuCtxEnablePeerAccess/flags", second_device(); auto c = another(1); primary();
                   TELL(cuCtxEnablePeerAccess, c, 1);),

        // Objects of one context, another current.
        ALONE_CASE("cuEventRecord/event and stream of two contexts", auto e = event(); another();
                   TELL(cuEventRecord, e, stream());),
        ALONE_CASE("cuEventRecord/event of another context, null stream", auto e = event(); another();
                   TELL(cuEventRecord, e, nullptr);),
        ALONE_CASE("cuStreamWaitEvent/event of another context", auto e = event(); another();
                   TELL(cuStreamWaitEvent, stream(), e, 0);),
        ALONE_CASE("cuEventElapsedTime/of two contexts", float ms; auto e = event(); NEED(cuEventRecord, e, nullptr);
                   NEED(cuEventSynchronize, e); another(); auto f = event(); NEED(cuEventRecord, f, nullptr);
                   NEED(cuEventSynchronize, f); TELL(cuEventElapsedTime, &ms, e, f);),
        ALONE_CASE("cuLaunchKernel/function of another context", auto f = function("nothing"); another();
                   TELL(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);),
        ALONE_CASE("cuLaunchKernel/stream of another context", auto s = stream(); another(); CUmodule m; CUfunction f;
                   NEED(cuModuleLoadData, &m, image); NEED(cuModuleGetFunction, &f, m, "nothing");
                   TELL(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, s, nullptr, nullptr);),
        ALONE_CASE("cuMemFree/memory of another context", auto m = memory(64); another(); TELL(cuMemFree, m);),
        ALONE_CASE("cuMemcpyHtoD/memory of another context", char here[64] = {}; auto m = memory(64); another();
                   TELL(cuMemcpyHtoD, m, here, 64);),
        ALONE_CASE("cuMemsetD8/memory of another context", auto m = memory(64); another(); TELL(cuMemsetD8, m, 1, 64);),
        ALONE_CASE("cuMemcpyDtoH/memory of another device", second_device(); char here[64]; auto m = memory(64);
                   another(1); TELL(cuMemcpyDtoH, here, m, 64);),
        ALONE_CASE("cuMemcpyHtoD/memory of another device", second_device(); char here[64] = {}; auto m = memory(64);
                   another(1); TELL(cuMemcpyHtoD, m, here, 64);),
        ALONE_CASE("cuMemcpyDtoD/between devices", second_device(); auto m = memory(64); another(1);
                   TELL(cuMemcpyDtoD, memory(64), m, 64);),
        ALONE_CASE("cuStreamSynchronize/of another context", auto s = stream(); another();
                   TELL(cuStreamSynchronize, s);),
        ALONE_CASE("cuStreamDestroy/of another context", auto s = stream(); another(); TELL(cuStreamDestroy, s);),
        ALONE_CASE("cuModuleUnload/of another context", CUmodule m; NEED(cuModuleLoadData, &m, image); another();
                   TELL(cuModuleUnload, m);),
        UNSAFE_CONTEXT_CASE("cuMemFree/its context destroyed", auto c = another(); auto m = memory(64);
                            NEED(cuCtxDestroy, c); primary(); TELL(cuMemFree, m);),
        UNSAFE_CONTEXT_CASE("cuStreamQuery/its context destroyed", auto c = another(); auto s = stream();
                            NEED(cuCtxDestroy, c); primary(); TELL(cuStreamQuery, s);),
        UNSAFE_CONTEXT_CASE("cuEventQuery/its context destroyed", auto c = another(); auto e = event();
                            NEED(cuCtxDestroy, c); primary(); TELL(cuEventQuery, e);),
        CONTEXT_CASE("cuGetErrorName/unknown code", const char* n;
                     TELL(cuGetErrorName, static_cast<CUresult>(123456), &n); o.add(n ? "text" : "null");),
        CONTEXT_CASE("cuGetErrorString/unknown code", const char* n;
                     TELL(cuGetErrorString, static_cast<CUresult>(123456), &n); o.add(n ? "text" : "null");),
        CONTEXT_CASE("cuGetProcAddress/unknown name", void* p = nullptr; CUdriverProcAddressQueryResult s{};
                     TELL(cuGetProcAddress, "cuNothing", &p, 12000, 0, &s); o.add(std::to_string(s));),
        CONTEXT_CASE("cuGetProcAddress/newer than asked for", void* p = nullptr; CUdriverProcAddressQueryResult s{};
                     TELL(cuGetProcAddress, "cuMemAllocAsync", &p, 10000, 0, &s); o.add(std::to_string(s));),
        CONTEXT_CASE("cuGetProcAddress/null name", void* p = nullptr;
                     TELL(cuGetProcAddress, nullptr, &p, 12000, 0, nullptr);),
        CONTEXT_CASE("cuGetProcAddress/unknown flags", void* p = nullptr;
                     TELL(cuGetProcAddress, "cuInit", &p, 12000, 0x10, nullptr);),
        CONTEXT_CASE("cuGetExportTable/unknown id", const void* t = nullptr; CUuuid id{};
                     TELL(cuGetExportTable, &t, &id); o.add(t ? "table" : "null");),
    };
    cases.insert(cases.end(), added.begin(), added.end());
}

}  // namespace differential
