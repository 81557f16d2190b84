// The stand-in for a driver that shall be patient. As NVIDIA's (580.159.04), it waits for host functions in calls that do not
// look like it. That one was seen to do so when it loads code; the other calls here are those that may wait for the GPU by the
// documentation, or in which a driver is likely to. It was seen to go on, while streams stood at functions, when it pins memory,
// makes streams and destroys them, instantiates graphs, and launches a function that has been asked for its attributes.
//
// Host functions run one at a time, whatever streams they are in, as the documentation allows: there a long copy of ours, which
// needed one, stood still while one of the client's ran. If it shall be late, some begin late, as on a busy machine: one of
// another stream that was given afterwards may then come first.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "driver_stand_in.hpp"

namespace {

struct HostFunction {
    CUhostFn run;
    void* data;
};

struct HostFunctions {
    std::mutex mutex, turn;
    std::condition_variable none;
    int standing = 0;
    std::deque<HostFunction> all;
};

HostFunctions& host_functions() {
    static auto* all = new HostFunctions;
    return *all;
}

void begin_late() {
    if (!shall("late")) return;
    static std::atomic<unsigned> begun{0};
    const unsigned which = ++begun;
    if (which % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(which * 7919 % 3000));
}

bool wraps() {
    return shall("patient") || shall("late");
}

// A graph's runs at each launch.
void stand_and_run(void* given) {
    auto& all = host_functions();
    {
        std::lock_guard lock(all.mutex);
        ++all.standing;
    }
    auto& function = *static_cast<HostFunction*>(given);
    begin_late();
    {
        std::unique_lock one_at_a_time(all.turn, std::defer_lock);
        if (shall("patient")) one_at_a_time.lock();
        function.run(function.data);
    }
    std::lock_guard lock(all.mutex);
    if (--all.standing == 0) all.none.notify_all();
}

HostFunction* kept(CUhostFn run, void* data) {
    auto& all = host_functions();
    std::lock_guard lock(all.mutex);
    return &all.all.emplace_back(HostFunction{run, data});
}

CUDA_HOST_NODE_PARAMS kept(const CUDA_HOST_NODE_PARAMS* params) {
    return wraps() ? CUDA_HOST_NODE_PARAMS{stand_and_run, kept(params->fn, params->userData)} : *params;
}

}  // namespace

void wait_for_streams() {
    if (!shall("patient")) return;
    auto& all = host_functions();
    std::unique_lock lock(all.mutex);
    all.none.wait(lock, [&] { return all.standing == 0; });
    lock.unlock();
    if (shall("thorough")) (void)EMULATED(cuCtxSynchronize)();
}

EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn run, void* data) {
    if (!wraps()) return EMULATED(cuLaunchHostFunc)(stream, run, data);
    return EMULATED(cuLaunchHostFunc)(stream, stand_and_run, kept(run, data));
}

EXPORT CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                   const CUDA_HOST_NODE_PARAMS* params) {
    const auto wrapped = kept(params);
    return EMULATED(cuGraphAddHostNode)(node, graph, after, count, &wrapped);
}

EXPORT CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
    const auto wrapped = kept(params);
    return EMULATED(cuGraphHostNodeSetParams)(node, &wrapped);
}

EXPORT CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
    const auto wrapped = kept(params);
    return EMULATED(cuGraphExecHostNodeSetParams)(exec, node, &wrapped);
}

EXPORT CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* params) {
    auto result = EMULATED(cuGraphHostNodeGetParams)(node, params);
    if (result != CUDA_SUCCESS || params->fn != stand_and_run) return result;
    auto& function = *static_cast<HostFunction*>(params->userData);
    *params = {function.run, function.data};
    return result;
}

#define WAITS(name, parameters, arguments) \
    EXPORT CUresult name parameters {      \
        wait_for_streams();                \
        return EMULATED(name) arguments;   \
    }
WAITS(cuMemFree_v2, (CUdeviceptr address), (address))
WAITS(cuMemHostAlloc, (void** memory, size_t bytes, unsigned flags), (memory, bytes, flags))
WAITS(cuMemFreeHost, (void* memory), (memory))
WAITS(cuMemHostUnregister, (void* memory), (memory))
WAITS(cuMemCreate,
      (CUmemGenericAllocationHandle * memory, size_t bytes, const CUmemAllocationProp* properties,
       unsigned long long flags),
      (memory, bytes, properties, flags))
WAITS(cuMemRelease, (CUmemGenericAllocationHandle memory), (memory))
WAITS(cuMemMap,
      (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle memory, unsigned long long flags),
      (address, bytes, offset, memory, flags))
WAITS(cuMemUnmap, (CUdeviceptr address, size_t bytes), (address, bytes))
WAITS(cuMemSetAccess, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count),
      (address, bytes, access, count))
WAITS(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps* properties), (pool, properties))
WAITS(cuMemPoolDestroy, (CUmemoryPool pool), (pool))
WAITS(cuMemPoolTrimTo, (CUmemoryPool pool, size_t bytes), (pool, bytes))
WAITS(cuDeviceGraphMemTrim, (CUdevice device), (device))
WAITS(cuArray3DCreate_v2, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR* described), (array, described))
WAITS(cuArrayDestroy, (CUarray array), (array))
WAITS(cuMipmappedArrayCreate, (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR* described, unsigned levels),
      (array, described, levels))
WAITS(cuMipmappedArrayDestroy, (CUmipmappedArray array), (array))
WAITS(cuModuleLoadDataEx, (CUmodule * module, const void* image, unsigned count, CUjit_option* options, void** values),
      (module, image, count, options, values))
WAITS(cuModuleUnload, (CUmodule module), (module))
WAITS(cuLibraryLoadData,
      (CUlibrary * library, const void* code, CUjit_option* compiler, void** compiler_values, unsigned compiler_count,
       CUlibraryOption* options, void** values, unsigned count),
      (library, code, compiler, compiler_values, compiler_count, options, values, count))
WAITS(cuLibraryUnload, (CUlibrary library), (library))
WAITS(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char* name), (kernel, library, name))
WAITS(cuGraphUpload, (CUgraphExec exec, CUstream stream), (exec, stream))
WAITS(cuCtxSetLimit, (CUlimit limit, size_t value), (limit, value))
WAITS(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), (peer, flags))
WAITS(cuCtxDisablePeerAccess, (CUcontext peer), (peer))
WAITS(cuCtxDestroy_v2, (CUcontext context), (context))
WAITS(cuDevicePrimaryCtxReset_v2, (CUdevice device), (device))
WAITS(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device))
WAITS(cuGreenCtxDestroy, (CUgreenCtx context), (context))
