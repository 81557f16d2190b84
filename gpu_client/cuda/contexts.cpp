// Primary contexts, and the calls that make and end contexts. Which context is current: current_context.cpp.
#include "gpu_client/cuda/contexts.hpp"

#include <algorithm>
#include <atomic>

#include "gpu_client/cuda/arrays.hpp"
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/textures.hpp"

#include "gpu_client/cuda/async_errors.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/context_storage.hpp"
#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/events.hpp"
#include "gpu_client/cuda/green_contexts.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/host_pools.hpp"
#include "gpu_client/cuda/libraries.hpp"
#include "gpu_client/cuda/memory_pools.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/shared_pages.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/protocol/object_limits.hpp"

namespace tnr::cuda {

static uint64_t next_context_id() {
    static std::atomic<uint64_t> last{1000};
    return ++last;
}

CUresult synchronize_context(Context& context) {
    if (captures_in(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // the driver's own refusal would spoil them
    RemoteCall call(wire::SynchronizeContext{});
    call.in_context(&context);
    auto result = call.send();
    if (result != CUDA_SUCCESS) return result;
    raise_to(context.synced, call.position());
    if (auto* device = find_device(context.device)) device->memory->context_synced(context.handle, call.position());
    pools_after_wait(context.device);
    return CUDA_SUCCESS;
}

void context_ends(Context& context) {
    await_frees_to_host();
    storage_context_ends(context.handle);
    unpin_memory_of(context);
    unshare_memory_of(context);
    forget_streams_of(context);
    forget_green_contexts_of(context);
    forget_events_of(context);
    forget_textures_of(context);
    forget_arrays_of(context);
    forget_modules_of(context);
    // Pools of other devices may have given it memory, too. What a pool gave outlives all contexts but the primary one.
    for (auto* device : devices())
        if (device->ordinal == context.device || device->memory->holds_any(context.handle))
            device->memory->context_ends(context.handle, device->primary_context);
}

// Memory may only be unmapped when the GPU has finished with it.
static void finish_work(Context& context) {
    bool holds_any = std::any_of(devices().begin(), devices().end(),
                                 [&](auto* device) { return device->memory->holds_any(context.handle); });
    if (context.synced < context.last_use && holds_any) (void)synchronize_context(context);
}

static CUresult activate(Context& context, Device& device) {
    RemoteCall call(wire::RetainPrimary<>{device.number, context.number});
    call.on(device);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    forget_async_errors(context);
    context.session = device.session.load();
    context.active = true;
    device.memory->ask_ahead();
    return CUDA_SUCCESS;
}

template <class Record>  // wire::ReleasePrimary or wire::ResetPrimary
static CUresult end_primary(Context& context, Device& device) TNR_REQUIRES(primary_contexts_turn()) {
    finish_work(context);
    context_ends(context);
    context.active = false;
    context.cache_config = context.shared_config = 0;
    RemoteCall call(Record{device.number, context.number});
    call.on(device);
    auto result = call.send();
    forget_async_errors(context);
    return result;
}

CUresult retain_primary(Device& device) {
    TakenTurn turn(primary_contexts_turn());
    auto& context = *contexts().find(device.primary_context);
    if (!context.active)
        if (auto result = activate(context, device); result != CUDA_SUCCESS) return result;
    ++device.primary_held;
    return CUDA_SUCCESS;
}

CUresult release_primary(Device& device) {
    TakenTurn turn(primary_contexts_turn());
    if (device.primary_held == 0) return CUDA_ERROR_INVALID_CONTEXT;
    auto& context = *contexts().find(device.primary_context);
    bool last = --device.primary_held == 0;
    // A reset ends it and releases nothing: whoever has retained it before still releases it.
    return last && context.active ? end_primary<wire::ReleasePrimary<>>(context, device) : CUDA_SUCCESS;
}

bool are_context_flags(unsigned flags) {
    unsigned schedule = flags & CU_CTX_SCHED_MASK;
    return (flags & ~unsigned{CU_CTX_FLAGS_MASK}) == 0 && (schedule & (schedule - 1)) == 0;
}

// That cuCtxCreate has made and nobody has destroyed.
static std::atomic<size_t> made_contexts{0};

static CUresult create_context(CUcontext* out, unsigned flags, CUdevice ordinal) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    auto* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    if (!are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = open_session(*device); result != CUDA_SUCCESS) return result;
    if (made_contexts.fetch_add(1) >= wire::contexts_max) {
        made_contexts.fetch_sub(1);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    Context* made = nullptr;
    uint64_t handle = contexts().create([&](Context& context, uint64_t index, uint64_t value) {
        context.number = index + 1;
        context.handle = value;
        context.id = next_context_id();
        context.device = ordinal;
        context.primary = false;
        context.flags = flags;
        context.sticky = 0;
        context.uses = 1;
        context.cache_config = context.shared_config = 0;
        context.nonblocking_streams = 0;
        context.last_use = context.synced = context.default_synced = context.default_waited = 0;
        context.session = device->session.load();
        context.active = true;
        made = &context;
    });
    RemoteCall call(wire::CreateContext<>{device->number, made->number, flags});
    call.on(*device);
    if (auto result = call.send(); result != CUDA_SUCCESS) {
        contexts().destroy(handle);
        made_contexts.fetch_sub(1);
        return result;
    }
    device->memory->ask_ahead();
    thread_state().contexts.push_back(handle);
    *out = handle_of<CUcontext>(handle);
    return CUDA_SUCCESS;
}

static CUresult destroy_context(CUcontext handle) {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    auto* context = find_context(handle);
    if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    finish_work(*context);
    context_ends(*context);
    auto& stack = thread_state().contexts;
    if (!stack.empty() && stack.back() == context->handle) stack.pop_back();
    RemoteCall call(wire::DestroyContext<>{context->number});
    call.on(*find_device(context->device));
    context->active = false;
    if (!contexts().destroy(value_of(handle))) return CUDA_ERROR_INVALID_CONTEXT;
    made_contexts.fetch_sub(1);
    return call.send();
}

static CUresult set_primary_flags(CUdevice ordinal, unsigned flags) {
    auto* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    if (!are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    contexts().find(device->primary_context)->flags = flags;
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice ordinal) {
    return guarded("cuDevicePrimaryCtxRetain", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        auto* device = find_device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        auto result = retain_primary(*device);
        if (result == CUDA_SUCCESS) *out = handle_of<CUcontext>(device->primary_context);
        return result;
    });
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    return guarded("cuDevicePrimaryCtxRelease", [&]() -> CUresult {
        auto* device = find_device(ordinal);
        return device ? release_primary(*device) : CUDA_ERROR_INVALID_DEVICE;
    });
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice ordinal) {
    return cuDevicePrimaryCtxRelease_v2(ordinal);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    return guarded("cuDevicePrimaryCtxReset", [&]() -> CUresult {
        auto* device = find_device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        TakenTurn turn(primary_contexts_turn());
        auto& context = *contexts().find(device->primary_context);
        context.flags = 0;
        if (!context.active) return CUDA_SUCCESS;
        return end_primary<wire::ResetPrimary<>>(context, *device);
    });
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice ordinal) {
    return cuDevicePrimaryCtxReset_v2(ordinal);
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
    return guarded("cuDevicePrimaryCtxSetFlags", [&] { return set_primary_flags(ordinal, flags); });
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags) {
    return cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) {
    return guarded("cuDevicePrimaryCtxGetState", [&]() -> CUresult {
        if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
        auto* device = find_device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        auto& context = *contexts().find(device->primary_context);
        *flags = context.flags;
        *active = context.active ? 1 : 0;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* params, unsigned int flags, CUdevice ordinal) {
    return guarded("cuCtxCreate", [&]() -> CUresult {
        if (params && params->numExecAffinityParams > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
        return create_context(out, flags, ordinal);
    });
}

CUresult CUDAAPI cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam*, int count, unsigned int flags, CUdevice ordinal) {
    return guarded("cuCtxCreate", [&]() -> CUresult {
        if (count > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
        return create_context(out, flags, ordinal);
    });
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext* out, unsigned int flags, CUdevice ordinal) {
    return guarded("cuCtxCreate", [&] { return create_context(out, flags, ordinal); });
}

CUresult CUDAAPI cuCtxCreate(CUcontext* out, unsigned int flags, CUdevice ordinal) {
    return guarded("cuCtxCreate", [&] { return create_context(out, flags, ordinal); });
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context) {
    return guarded("cuCtxDestroy", [&] { return destroy_context(context); });
}

CUresult CUDAAPI cuCtxDestroy(CUcontext context) {
    return guarded("cuCtxDestroy", [&] { return destroy_context(context); });
}

CUresult CUDAAPI cuCtxAttach(CUcontext* out, unsigned int flags) {
    return guarded("cuCtxAttach", [&]() -> CUresult {
        if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        Context* context = nullptr;
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        ++context->uses;
        *out = handle_of<CUcontext>(context->handle);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuCtxDetach(CUcontext handle) {
    return guarded("cuCtxDetach", [&]() -> CUresult {
        auto* context = find_context(handle);
        if (!context) return CUDA_ERROR_INVALID_CONTEXT;
        return context->primary || --context->uses > 0 ? CUDA_SUCCESS : destroy_context(handle);
    });
}

CUresult CUDAAPI cuCtxSynchronize() {
    return guarded("cuCtxSynchronize", []() -> CUresult {
        Context* context = nullptr;
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        if (auto result = refuse_wait(*context); result != CUDA_SUCCESS) return result;
        return synchronize_context(*context);
    });
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext handle) {
    return guarded("cuCtxSynchronize", [&]() -> CUresult {
        if (!handle) return cuCtxSynchronize();
        auto* context = find_context(handle);
        if (!context) return CUDA_ERROR_INVALID_CONTEXT;
        if (auto result = refuse_wait(*context); result != CUDA_SUCCESS) return result;
        return synchronize_context(*context);
    });
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value) {
    return guarded("cuCtxSetLimit", [&]() -> CUresult {
        const wire::SetLimit wanted{static_cast<uint32_t>(limit), value};
        if (auto result = RemoteCall(wanted).send(); result != CUDA_ERROR_OUT_OF_MEMORY) return result;
        Context* context = nullptr;
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        auto& device = *find_device(context->device);
        // What is missing may be what this process was granted and does not use.
        device.memory->give_up_idle(device.description.memory_bytes);
        return RemoteCall(wanted).send();
    });
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    return guarded("cuCtxEnablePeerAccess", [&]() -> CUresult {
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        auto* there = find_context(peer);
        if (!there) return CUDA_ERROR_INVALID_CONTEXT;
        RemoteCall call(wire::EnablePeerAccess<>{there->number, flags});
        if (auto result = call.send(); result != CUDA_SUCCESS) return result;
        Context* here = nullptr;
        if (auto result = current_context(here); result != CUDA_SUCCESS) return result;
        find_device(there->device)->memory->reached_from(here->device);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer) {
    return guarded("cuCtxDisablePeerAccess", [&]() -> CUresult {
        auto* there = find_context(peer);
        return there ? RemoteCall(wire::DisablePeerAccess<>{there->number}).send() : CUDA_ERROR_INVALID_CONTEXT;
    });
}

}  // extern "C"
