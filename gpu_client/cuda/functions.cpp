// See functions.hpp; and the calls that ask about kernels.
#include "gpu_client/cuda/functions.hpp"

#include <cstring>

#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/libraries.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/protocol/preferences.hpp"

namespace tnr::cuda {

void note_attribute_change(CUfunction handle, int attribute, int value) {
    auto* function = find_function(handle);
    if (!function) return;  // destroyed meanwhile
    auto* info = function->info.load();
    const bool known = attribute >= 0 && static_cast<uint32_t>(attribute) < info->attribute_count;
    const bool same = known && info->attributes[attribute].exchange(value) == value;
    if (same && devices().size() == 1) return;  // of several, another one may have been told until now
    forget_cached_answers();
}

// Whether the driver has nothing to refuse. Kernels that take much shared memory (attention, CUTLASS's) are given their
// attributes before each launch.
static bool is_plain_attribute(Function* function, CUfunction_attribute attribute, int value, const Device* device) {
    if (!function || !device) return false;
    auto& kernel = *function->info.load();
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
            if (kernel.attribute_count <= CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) return false;
            const int most = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
            return value >= 0 && value <= most - kernel.attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES].load();
        }
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            return value >= CU_SHAREDMEM_CARVEOUT_DEFAULT && value <= CU_SHAREDMEM_CARVEOUT_MAX_SHARED;
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
            return (value == 0 || value == 1) && device->attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 1;
        default:
            return false;
    }
}
bool plain_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    Context* context = nullptr;
    if (current_context(context) != CUDA_SUCCESS) return false;
    return is_plain_attribute(find_function(function), attribute, value, find_device(context->device));
}
bool plain_cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
    return is_plain_attribute(find_function(kernel), attribute, value, find_device(device));
}

static CUresult get_attribute(Function* function, CUfunction_attribute attribute, int* value) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    auto* info = function->info.load();
    if (attribute < 0 || static_cast<uint32_t>(attribute) >= info->attribute_count) return CUDA_ERROR_INVALID_VALUE;
    *value = info->attributes[attribute];
    return CUDA_SUCCESS;
}

static CUresult get_name(CUfunction handle, const char** name) {
    if (!name || !handle) return CUDA_ERROR_INVALID_VALUE;
    auto* function = find_function(handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    *name = function->info.load()->name.c_str();
    return CUDA_SUCCESS;
}

static CUresult get_library(CUfunction handle, uint64_t& library) {
    auto* function = find_function(handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    library = function->library;
    return CUDA_SUCCESS;
}

// Async: a stray value would be told by a later call.
CUresult check_cuFuncSetCacheConfig(CUfunction, CUfunc_cache config) {
    return check_preference(config);
}
CUresult check_cuKernelSetCacheConfig(CUkernel, CUfunc_cache config, CUdevice) {
    return check_preference(config);
}
CUresult check_cuFuncSetSharedMemConfig(CUfunction, CUsharedconfig config) {
    return check_preference(config);
}

static CUresult get_parameter(Function* function, size_t index, size_t* offset, size_t* size) {
    if (!offset) return CUDA_ERROR_INVALID_VALUE;
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    auto& parameters = function->info.load()->parameters;
    if (index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = parameters[index].offset;
    if (size) *size = parameters[index].size;
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
    return guarded("cuFuncGetAttribute", [&] { return get_attribute(find_function(function), attribute, value); });
}
CUresult CUDAAPI cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
    return guarded("cuKernelGetAttribute", [&]() -> CUresult {
        auto* function = find_function(kernel);
        if (function && value && !find_device(device)) return CUDA_ERROR_INVALID_DEVICE;
        return get_attribute(function, attribute, value);
    });
}
CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction function) {
    return guarded("cuFuncGetName", [&] { return get_name(function, name); });
}
CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel kernel) {
    return guarded("cuKernelGetName", [&] { return get_name(handle_of<CUfunction>(value_of(kernel)), name); });
}
CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
    return guarded("cuFuncGetParamInfo", [&] { return get_parameter(find_function(function), index, offset, size); });
}
CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
    return guarded("cuKernelGetParamInfo", [&]() -> CUresult {
        Context* context = nullptr;  // a kernel has its layout where it is loaded
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        if (!kernel) return CUDA_ERROR_INVALID_VALUE;
        return get_parameter(find_function(kernel), index, offset, size);
    });
}

CUresult CUDAAPI cuFuncGetModule(CUmodule* out, CUfunction handle) {
    return guarded("cuFuncGetModule", [&]() -> CUresult {
        if (!out || !handle) return CUDA_ERROR_INVALID_VALUE;
        uint64_t library = 0;
        auto result = get_library(handle, library);
        if (result == CUDA_SUCCESS) *out = handle_of<CUmodule>(library);
        return result;
    });
}

CUresult CUDAAPI cuKernelGetLibrary(CUlibrary* out, CUkernel kernel) {
    return guarded("cuKernelGetLibrary", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        uint64_t library = 0;
        auto result = get_library(handle_of<CUfunction>(value_of(kernel)), library);
        if (result == CUDA_SUCCESS) *out = handle_of<CUlibrary>(library);
        return result;
    });
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
    return guarded("cuKernelGetFunction", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        if (!find_function(kernel)) return CUDA_ERROR_INVALID_HANDLE;
        Context* context = nullptr;  // whose function it is
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        *out = handle_of<CUfunction>(value_of(kernel));
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
    return guarded("cuFuncIsLoaded", [&]() -> CUresult {
        if (!state) return CUDA_ERROR_INVALID_VALUE;
        if (!find_function(function)) return CUDA_ERROR_INVALID_HANDLE;
        *state = CU_FUNCTION_LOADING_STATE_LOADED;  // a handle is made from what the worker has loaded
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuFuncLoad(CUfunction function) {
    return guarded("cuFuncLoad", [&] { return find_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}

}  // extern "C"
