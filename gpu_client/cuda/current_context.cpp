// Which context is current on a thread, and what a context says of itself.
#include "gpu_client/cuda/contexts.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/thread_state.hpp"
#include "gpu_client/protocol/preferences.hpp"

using namespace tnr::cuda;

// The current context, whatever state it is in.
static CUresult present_context(Context*& context) {
    uint64_t handle = current_context_handle();
    if (handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
    context = contexts().find(handle);
    return context ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult named_or_present(CUcontext handle, Context*& context) {
    if (!handle) return present_context(context);
    context = find_context(handle);
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult pop(CUcontext* out) {
    auto& stack = thread_state().contexts;
    if (stack.empty() || stack.back() == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (out) *out = handle_of<CUcontext>(stack.back());
    stack.pop_back();
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext handle) {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    if (!find_context(handle)) return CUDA_ERROR_INVALID_CONTEXT;
    thread_state().contexts.push_back(value_of(handle));
    return CUDA_SUCCESS;
}

extern "C" {

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context) {
    return guarded("cuCtxPushCurrent", [&] { return push(context); });
}
CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
    return guarded("cuCtxPushCurrent", [&] { return push(context); });
}
CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* out) {
    return guarded("cuCtxPopCurrent", [&] { return pop(out); });
}
CUresult CUDAAPI cuCtxPopCurrent(CUcontext* out) {
    return guarded("cuCtxPopCurrent", [&] { return pop(out); });
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext handle) {
    return guarded("cuCtxSetCurrent", [&]() -> CUresult {
        auto& stack = thread_state().contexts;
        if (handle && !find_context(handle)) return CUDA_ERROR_INVALID_CONTEXT;
        if (!stack.empty()) stack.pop_back();
        if (handle) stack.push_back(value_of(handle));
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* out) {
    return guarded("cuCtxGetCurrent", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        *out = handle_of<CUcontext>(current_context_as_set());
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice* out, CUcontext handle) {
    return guarded("cuCtxGetDevice", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        Context* context = nullptr;
        if (auto result = named_or_present(handle, context); result != CUDA_SUCCESS) return result;
        *out = context->device;
        return CUDA_SUCCESS;
    });
}
CUresult CUDAAPI cuCtxGetDevice(CUdevice* out) {
    return cuCtxGetDevice_v2(out, nullptr);
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
    return guarded("cuCtxGetFlags", [&]() -> CUresult {
        if (!flags) return CUDA_ERROR_INVALID_VALUE;
        Context* context = nullptr;
        if (auto result = present_context(context); result != CUDA_SUCCESS) return result;
        *flags = context->flags;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuCtxSetFlags(unsigned int flags) {
    return guarded("cuCtxSetFlags", [&]() -> CUresult {
        if (!are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
        Context* context = nullptr;
        if (auto result = present_context(context); result != CUDA_SUCCESS) return result;
        context->flags = flags;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long* id) {
    return guarded("cuCtxGetId", [&]() -> CUresult {
        if (!id) return CUDA_ERROR_INVALID_VALUE;
        Context* context = nullptr;
        if (auto result = named_or_present(handle, context); result != CUDA_SUCCESS) return result;
        *id = context->id;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
    return guarded("cuCtxGetApiVersion", [&]() -> CUresult {
        if (!version) return CUDA_ERROR_INVALID_VALUE;
        Context* context = nullptr;
        if (auto result = named_or_present(handle, context); result != CUDA_SUCCESS) return result;
        *version = 3020;  // the ABI of contexts since CUDA 3.2; what the driver says to this day
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache* config) {
    return guarded("cuCtxGetCacheConfig", [&]() -> CUresult {
        if (!config) return CUDA_ERROR_INVALID_VALUE;
        Context* context = nullptr;
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        *config = static_cast<CUfunc_cache>(context->cache_config.load());
        return CUDA_SUCCESS;
    });
}
// A hint that recent GPUs ignore; remembered for whoever asks.
CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config) {
    return guarded("cuCtxSetCacheConfig", [&]() -> CUresult {
        if (auto result = tnr::check_preference(config); result != CUDA_SUCCESS) return result;
        Context* context = nullptr;
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        context->cache_config = config;
        return CUDA_SUCCESS;
    });
}
CUresult CUDAAPI cuCtxGetSharedMemConfig(CUsharedconfig* config) {
    return guarded("cuCtxGetSharedMemConfig", [&]() -> CUresult {
        if (!config) return CUDA_ERROR_INVALID_VALUE;
        Context* context = nullptr;
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;  // the only one since Maxwell
        return CUDA_SUCCESS;
    });
}
CUresult CUDAAPI cuCtxSetSharedMemConfig(CUsharedconfig config) {
    return guarded("cuCtxSetSharedMemConfig", [&]() -> CUresult {
        if (auto result = tnr::check_preference(config); result != CUDA_SUCCESS) return result;
        Context* context = nullptr;
        return current_context(context);
    });
}

CUresult CUDAAPI cuCtxGetExecAffinity(CUexecAffinityParam*, CUexecAffinityType) {
    return guarded("cuCtxGetExecAffinity", [] { return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY; });
}

}  // extern "C"
