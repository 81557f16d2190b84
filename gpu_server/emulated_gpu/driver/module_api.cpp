// cuModule*: code that belongs to the context that loaded it.
#include <cstdlib>
#include <cstring>

#include "gpu_client/protocol/fatbin.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"
#include "gpu_server/emulated_gpu/driver/module.hpp"
#include "gpu_server/emulated_gpu/driver/print.hpp"

using namespace tnr::emulated;

namespace {

CUresult instantiate(Context& context, Code code, CUmodule* out, uint32_t registers_max = no_register_limit) {
    flush_print();
    auto module = std::make_shared<Module>(context, std::move(code), registers_max);
    if (CUresult error = module->place_globals()) {
        module->unload();
        return error;
    }
    driver().registry.add(module);
    context.own(module->handle());
    *out = module->as<CUmodule>();
    return CUDA_SUCCESS;
}

CUresult load(CUmodule* out, const void* image, unsigned count, CUjit_option* options, void** values) {
    return in_context([&](Context& context) -> CUresult {
        if (!out || !image || (count && (!options || !values))) return CUDA_ERROR_INVALID_VALUE;
        Code code;
        std::string error;
        CUresult result = compile(image, code, error);
        fill_jit_logs(count, options, values, error);
        if (result != CUDA_SUCCESS) return result;
        return instantiate(context, std::move(code), out, registers_wanted(count, options, values));
    });
}

template <class Call>
CUresult on_module(CUmodule handle, Call&& call) {
    return initialized([&]() -> CUresult {
        auto module = find<Module>(handle);
        if (!module) return CUDA_ERROR_INVALID_HANDLE;
        return in_own_context(module->context, [&] { return call(*module); });
    });
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    return load(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* options, void** values) {
    return load(module, image, count, options, values);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
    return load(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoad(CUmodule* module, const char* path) {
    return in_context([&](Context& context) -> CUresult {
        if (!module) return CUDA_ERROR_INVALID_VALUE;
        Code code;
        std::string error;
        CUresult result = compile_file(path, code, error);
        fill_jit_logs(0, nullptr, nullptr, error);
        if (result != CUDA_SUCCESS) return result;
        return instantiate(context, std::move(code), module);
    });
}

CUresult cuModuleUnload(CUmodule handle) {
    return on_module(handle, [&](Module& module) -> CUresult {
        if (module.library.lock()) return CUDA_ERROR_NOT_PERMITTED;  // goes with its library
        module.context.synchronize();                                // a kernel of it may be running
        if (!driver().registry.remove(module.handle())) return CUDA_ERROR_INVALID_HANDLE;
        module.context.disown(module.handle());
        module.unload();
        return module.context.status();
    });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
    return on_module(handle, [&](Module& module) -> CUresult {
        if (!function || !name || !*name) return CUDA_ERROR_INVALID_VALUE;
        auto found = module.function(kernel_index(*module.code, name));
        if (!found) return CUDA_ERROR_NOT_FOUND;
        *function = found->as<CUfunction>();
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
    return on_module(handle, [&](Module& module) -> CUresult {
        if (!count) return CUDA_ERROR_INVALID_VALUE;
        *count = static_cast<unsigned>(module.code->kernels().size());
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule handle) {
    return on_module(handle, [&](Module& module) -> CUresult {
        if (!functions) return CUDA_ERROR_INVALID_VALUE;
        for (unsigned i = 0; i < count && i < module.code->kernels().size(); ++i)
            functions[i] = module.function(i)->as<CUfunction>();
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* size, CUmodule handle, const char* name) {
    return on_module(handle, [&](Module& module) -> CUresult {
        if (!name || (!address && !size)) return CUDA_ERROR_INVALID_VALUE;
        size_t index = global_index(*module.code, name);
        if (index == module.code->globals().size())
            return module.function(kernel_index(*module.code, name)) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
        if (address) *address = module.global_addresses[index];
        if (size) *size = module.code->globals()[index].size;
        return CUDA_SUCCESS;
    });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    return initialized([&]() -> CUresult {
        if (!mode) return CUDA_ERROR_INVALID_VALUE;
        const char* wish = getenv("CUDA_MODULE_LOADING");
        *mode = wish && strcmp(wish, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
        return CUDA_SUCCESS;
    });
}
