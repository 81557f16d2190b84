// cuFunc*: what is known of a kernel and what can be set for it.
#include "gpu_server/emulated_gpu/driver/module.hpp"

#include "gpu_client/protocol/preferences.hpp"

namespace tnr::emulated {

int max_dynamic_shared(const ptx::Kernel& kernel, const FunctionSettings& settings) {
    int wish = settings.max_dynamic_shared;
    if (wish >= 0) return wish;
    return std::max(0, shared_bytes_default - static_cast<int>(kernel.static_shared_bytes));
}

CUresult get_attribute(const ptx::Module& code, const ptx::Kernel& kernel, const FunctionSettings& settings,
                       CUfunction_attribute attribute, int& value) {
    auto is = [&](uint32_t number) {
        value = static_cast<int>(number);
        return CUDA_SUCCESS;
    };
    uint32_t sm = code.target_sm();
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            return is(kernel.max_threads_per_block
                          ? std::min<uint32_t>(kernel.max_threads_per_block, threads_per_block_max)
                          : threads_per_block_max);
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
            return is(kernel.static_shared_bytes);
        case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: {
            uint64_t bytes = 0;
            for (const ptx::Global& global : code.globals())
                if (global.is_const) bytes += global.size;
            return is(static_cast<uint32_t>(bytes));
        }
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
            return is(kernel.local_bytes);
        case CU_FUNC_ATTRIBUTE_NUM_REGS:
            return is(std::min(kernel.registers, settings.registers_max));
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
            return is(sm);
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
            return is(compute_major * 10 + compute_minor);
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            value = max_dynamic_shared(kernel, settings);
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            value = settings.carveout;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
            value = settings.non_portable_cluster;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            value = settings.cluster_scheduling;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
            return is(kernel.needs_cluster);
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
            return is(kernel.cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH]);
        case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
            return is(0);
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult set_attribute(const ptx::Kernel& kernel, FunctionSettings& settings, CUfunction_attribute attribute,
                       int value) {
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            if (value < 0 || value + static_cast<int>(kernel.static_shared_bytes) > shared_bytes_optin)
                return CUDA_ERROR_INVALID_VALUE;
            settings.max_dynamic_shared = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
            settings.carveout = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
            settings.non_portable_cluster = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            settings.cluster_scheduling = value;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult parameter_info(const ptx::Kernel& kernel, size_t index, size_t* offset, size_t* size) {
    if (!offset || index >= kernel.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = kernel.parameters[index].offset;
    if (size) *size = kernel.parameters[index].size;
    return CUDA_SUCCESS;
}

}  // namespace tnr::emulated

using namespace tnr::emulated;

namespace {

template <class Call>
CUresult on_function(CUfunction handle, Call&& call) {
    return initialized([&]() -> CUresult {
        if (auto known = find<Function>(handle))
            return in_own_context(known->module()->context, [&] { return call(*known); });
        return in_context([&](Context& context) -> CUresult {
            std::shared_ptr<Function> function;
            if (CUresult error = function_of(context, handle, function)) return error;
            return call(*function);
        });
    });
}

}  // namespace

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
    return on_function(handle, [&](Function& function) -> CUresult {
        if (!value) return CUDA_ERROR_INVALID_VALUE;
        return get_attribute(*function.module()->code, function.kernel(), *function.settings, attribute, *value);
    });
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    return on_function(handle, [&](Function& function) {
        return set_attribute(function.kernel(), *function.settings, attribute, value);
    });
}

// Preferences between shared memory and cache, and of bank width: accepted without effect.
CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
    return on_function(handle, [&](Function&) { return tnr::check_preference(config); });
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
    return on_function(handle, [&](Function&) { return tnr::check_preference(config); });
}

// Not for kernels.
CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
    return initialized([&]() -> CUresult {
        if (!module || !handle) return CUDA_ERROR_INVALID_VALUE;
        auto function = find<Function>(handle);
        if (!function) return CUDA_ERROR_INVALID_HANDLE;
        *module = function->module()->as<CUmodule>();
        return CUDA_SUCCESS;
    });
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
    return initialized([&] {
        if (!name || !handle) return CUDA_ERROR_INVALID_VALUE;
        return on_function(handle, [&](Function& function) {
            *name = function.kernel().name.c_str();
            return CUDA_SUCCESS;
        });
    });
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
    return on_function(handle,
                       [&](Function& function) { return parameter_info(function.kernel(), index, offset, size); });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
    return on_function(handle, [&](Function&) -> CUresult {
        if (!state) return CUDA_ERROR_INVALID_VALUE;
        *state = CU_FUNCTION_LOADING_STATE_LOADED;
        return CUDA_SUCCESS;
    });
}

CUresult cuFuncLoad(CUfunction handle) {
    return on_function(handle, [](Function&) { return CUDA_SUCCESS; });
}
