// cuCtx* and cuDevicePrimaryCtx*.
#include "api_client/base/turn.hpp"
#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/current.hpp"
#include "gpu_server/emulated_gpu/driver/event.hpp"
#include "gpu_server/emulated_gpu/driver/pool.hpp"

#include "gpu_client/protocol/preferences.hpp"

using namespace tnr::emulated;

tnr::Turn& tnr::emulated::primary_turn() {
    static tnr::Turn& turn = *new tnr::Turn;
    return turn;
}

namespace {

bool valid_flags(unsigned flags) {
    unsigned schedule = flags & CU_CTX_SCHED_MASK;
    bool one_schedule = (schedule & (schedule - 1)) == 0;
    return !(flags & ~unsigned{CU_CTX_FLAGS_MASK}) && one_schedule;
}

CUresult create(CUcontext* out, unsigned flags, CUdevice ordinal, unsigned api_version) {
    return initialized([&]() -> CUresult {
        if (!out || !valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
        Device* device = device_of(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        Context* context = Context::create(*device, flags);
        context->api_version = api_version;
        context_stack().push_back({context, {}});
        *out = context->as<CUcontext>();
        return CUDA_SUCCESS;
    });
}

// The handle that made the context current.
CUcontext shown(const Current& current) {
    if (current.green) return current.green->converted();
    return current.context ? current.context->as<CUcontext>() : nullptr;
}

// For functions that take a context, null meaning the current one.
template <class Call>
CUresult on_context(CUcontext handle, Call&& call) {
    return initialized([&]() -> CUresult {
        auto named = find<Context>(handle);
        Context* context = handle ? named.get() : current_context();
        if (!context) return CUDA_ERROR_INVALID_CONTEXT;
        if (CUresult error = context->status()) return error;
        return call(*context);
    });
}

template <class Call>
CUresult on_primary(CUdevice ordinal, Call&& call) {
    return initialized([&]() -> CUresult {
        Device* device = device_of(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        tnr::TakenTurn turn(primary_turn());
        return call(*device->primary);
    });
}

}  // namespace

CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
    return create(context, flags, device, 3020);
}

// Affinity to some of the multiprocessors would need MPS.
CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam*, int count, unsigned flags, CUdevice device) {
    if (count > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return create(context, flags, device, 3020);
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned flags, CUdevice device) {
    if (parameters && parameters->numExecAffinityParams > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (parameters && parameters->cigParams) return CUDA_ERROR_NOT_SUPPORTED;
    return create(context, flags, device, 3020);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
    return initialized([&]() -> CUresult {
        if (!handle) return CUDA_ERROR_INVALID_VALUE;
        auto context = find<Context>(handle);
        if (!context || context->primary || !context->alive()) return CUDA_ERROR_INVALID_CONTEXT;
        driver().registry.hide(context);
        ContextStack& stack = context_stack();
        if (!stack.empty() && stack.back().context == context.get()) stack.pop_back();
        context->tear_down();
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxDestroy(CUcontext context) {
    return cuCtxDestroy_v2(context);
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
    return initialized([&]() -> CUresult {
        if (!handle) return CUDA_ERROR_INVALID_VALUE;
        auto context = find<Context>(handle);
        if (!context) return CUDA_ERROR_INVALID_CONTEXT;
        context_stack().push_back({context.get(), converted_from(handle)});
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxPopCurrent_v2(CUcontext* out) {
    return initialized([&]() -> CUresult {
        ContextStack& stack = context_stack();
        if (stack.empty() || !stack.back().context) return CUDA_ERROR_INVALID_CONTEXT;
        if (out) *out = shown(stack.back());
        stack.pop_back();
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxPushCurrent(CUcontext context) {
    return cuCtxPushCurrent_v2(context);
}
CUresult cuCtxPopCurrent(CUcontext* context) {
    return cuCtxPopCurrent_v2(context);
}

CUresult cuCtxSetCurrent(CUcontext handle) {
    return initialized([&]() -> CUresult {
        ContextStack& stack = context_stack();
        std::shared_ptr<Context> context;
        if (handle && !(context = find<Context>(handle))) return CUDA_ERROR_INVALID_CONTEXT;
        if (!stack.empty()) stack.pop_back();
        if (context) stack.push_back({context.get(), converted_from(handle)});
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetCurrent(CUcontext* out) {
    return initialized([&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        ContextStack& stack = context_stack();
        *out = stack.empty() ? nullptr : shown(stack.back());
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
    return initialized([&]() -> CUresult {
        if (!device) return CUDA_ERROR_INVALID_VALUE;
        auto named = find<Context>(handle);
        Context* context = handle ? named.get() : current_context();
        if (!context) return CUDA_ERROR_INVALID_CONTEXT;
        *device = context->device.ordinal;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetDevice(CUdevice* device) {
    return cuCtxGetDevice_v2(device, nullptr);
}

CUresult cuCtxGetFlags(unsigned* flags) {
    return in_context([&](Context& context) -> CUresult {
        if (!flags) return CUDA_ERROR_INVALID_VALUE;
        *flags = context.flags;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxSetFlags(unsigned flags) {
    return in_context([&](Context& context) -> CUresult {
        if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
        context.flags = flags;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
    return on_context(handle, [&](Context& context) -> CUresult {
        if (!id) return CUDA_ERROR_INVALID_VALUE;
        *id = context.id;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
    return on_context(handle, [&](Context& context) -> CUresult {
        if (!version) return CUDA_ERROR_INVALID_VALUE;
        *version = context.api_version;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
    return on_context(handle, [](Context& context) {
        if (CUresult error = refuse_wait(context)) return error;
        context.synchronize();
        release_after_wait(context.device);
        return context.status();
    });
}

CUresult cuCtxSynchronize() {
    return in_context([](Context& context) {
        if (CUresult error = refuse_wait(context)) return error;
        context.synchronize();
        release_after_wait(context.device);
        return context.status();
    });
}

// cudaProfiler.h. There is no profiler to start, which is no error.
CUresult cuProfilerStart() {
    return in_context([](Context&) { return CUDA_SUCCESS; });
}

CUresult cuProfilerStop() {
    return in_context([](Context&) { return CUDA_SUCCESS; });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    constexpr size_t stack_bytes_max = 512 << 10;  // local memory of a thread: every GPU's since compute capability 3.0
    return in_context([&](Context& context) -> CUresult {
        if (limit == CU_LIMIT_STACK_SIZE && value > stack_bytes_max) return CUDA_ERROR_INVALID_VALUE;
        if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
        if (limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
        if (context.limit_is_fixed(limit)) return CUDA_ERROR_INVALID_VALUE;
        context.limits[limit] = value;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
    return in_context([&](Context& context) -> CUresult {
        if (!value) return CUDA_ERROR_INVALID_VALUE;
        if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
        // Of contexts that share the GPU with graphics, which there are none of. cublasLtCreate asks CIG_ENABLED.
        if (limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED) return CUDA_ERROR_UNSUPPORTED_LIMIT;
        *value = context.limits[limit];
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    return in_context([&](Context& context) -> CUresult {
        if (CUresult error = tnr::check_preference(config)) return error;
        context.cache_config = config;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
    return in_context([&](Context& context) -> CUresult {
        if (!config) return CUDA_ERROR_INVALID_VALUE;
        *config = context.cache_config;
        return CUDA_SUCCESS;
    });
}

// The bank width cannot be changed on any GPU of today; the functions remain.
CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    return in_context([&](Context&) { return tnr::check_preference(config); });
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
    return in_context([&](Context&) -> CUresult {
        if (!config) return CUDA_ERROR_INVALID_VALUE;
        *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxResetPersistingL2Cache() {
    return in_context([](Context&) { return CUDA_SUCCESS; });
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam*, CUexecAffinityType) {
    return in_context([](Context&) { return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY; });
}

CUresult cuCtxAttach(CUcontext* out, unsigned flags) {
    return in_context([&](Context& context) -> CUresult {
        if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
        ++context.uses;
        *out = context.as<CUcontext>();
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxDetach(CUcontext handle) {
    bool last = false;
    auto result = on_context(handle, [&](Context& context) {
        last = !context.primary && --context.uses == 0;
        return CUDA_SUCCESS;
    });
    return last ? cuCtxDestroy_v2(handle) : result;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
    return in_context([&](Context& context) -> CUresult {
        auto peer = find<Context>(handle);
        if (flags) return CUDA_ERROR_INVALID_VALUE;
        if (!peer || !peer->alive()) return CUDA_ERROR_INVALID_CONTEXT;
        if (&peer->device == &context.device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        return context.enable_peer(*peer);
    });
}

CUresult cuCtxDisablePeerAccess(CUcontext handle) {
    return in_context([&](Context& context) -> CUresult {
        auto peer = find<Context>(handle);
        if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
        return context.disable_peer(*peer);
    });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice ordinal) {
    return on_primary(ordinal, [&](Context& primary) TNR_REQUIRES(primary_turn()) -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        ++primary.primary_retained;
        if (!primary.alive()) primary.activate(primary.flags);
        *out = primary.as<CUcontext>();
        return CUDA_SUCCESS;
    });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    return on_primary(ordinal, [&](Context& primary) TNR_REQUIRES(primary_turn()) -> CUresult {
        if (primary.primary_retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
        if (--primary.primary_retained == 0 && primary.alive()) primary.tear_down();
        return CUDA_SUCCESS;
    });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    return on_primary(ordinal, [&](Context& primary) TNR_REQUIRES(primary_turn()) -> CUresult {
        if (primary.alive()) primary.tear_down();
        primary.flags = 0;  // what was retained is still to be released
        return CUDA_SUCCESS;
    });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
    return on_primary(ordinal, [&](Context& primary) TNR_REQUIRES(primary_turn()) -> CUresult {
        if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
        *flags = primary.flags;
        *active = primary.alive();
        return CUDA_SUCCESS;
    });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
    return on_primary(ordinal, [&](Context& primary) TNR_REQUIRES(primary_turn()) -> CUresult {
        if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
        primary.flags = flags;
        return CUDA_SUCCESS;
    });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    return cuDevicePrimaryCtxRelease_v2(device);
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    return cuDevicePrimaryCtxReset_v2(device);
}
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}
