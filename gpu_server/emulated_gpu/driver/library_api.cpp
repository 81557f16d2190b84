// cuLibrary* and cuKernel*: code that belongs to no context; the runtime loads everything this way.
#include "gpu_server/emulated_gpu/driver/module.hpp"
#include "gpu_server/emulated_gpu/driver/print.hpp"

#include "gpu_client/protocol/preferences.hpp"

using namespace tnr::emulated;

namespace {

CUresult register_library(Code code, CUlibrary* out, uint32_t registers_max, CUresult unusable = CUDA_SUCCESS) {
    auto library = driver().registry.add(std::make_shared<Library>(std::move(code), unusable));
    for (size_t i = 0; i < library->code->kernels().size(); ++i)
        library->kernels.push_back(driver().registry.add(std::make_shared<Kernel>(library, i, registers_max)));
    *out = library->as<CUlibrary>();
    return CUDA_SUCCESS;
}

template <class Call>
CUresult on_library(CUlibrary handle, Call&& call) {
    return initialized([&]() -> CUresult {
        auto library = find<Library>(handle);
        return library ? call(*library) : CUDA_ERROR_INVALID_HANDLE;
    });
}

template <class Call>
CUresult on_kernel(CUkernel handle, Call&& call) {
    return initialized([&]() -> CUresult {
        auto kernel = find<Kernel>(handle);
        auto library = kernel ? kernel->library.lock() : nullptr;
        return library ? call(*kernel, *library) : CUDA_ERROR_INVALID_HANDLE;
    });
}

// The library in the current context.
template <class Call>
CUresult on_instance(CUlibrary handle, Call&& call) {
    return in_context([&](Context& context) -> CUresult {
        auto library = find<Library>(handle);
        if (!library) return CUDA_ERROR_INVALID_HANDLE;
        std::shared_ptr<Module> module;
        if (CUresult error = library->instance(context, module)) return error;
        return call(*module);
    });
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option* options, void** values, unsigned count,
                           CUlibraryOption*, void**, unsigned) {
    return initialized([&]() -> CUresult {
        if (!library || !image || (count && (!options || !values))) return CUDA_ERROR_INVALID_VALUE;
        flush_print();
        Code code;
        std::string error;
        CUresult result = compile(image, code, error);
        if (result == CUDA_ERROR_INVALID_PTX) {
            say_once("cannot load code: " + error);
            auto nothing = tnr::ptx::load(".version 7.0\n.target sm_75\n.address_size 64\n");
            return nothing ? register_library(*nothing, library, no_register_limit, result) : result;
        }
        fill_jit_logs(count, options, values, error);
        if (result != CUDA_SUCCESS) return result;
        return register_library(std::move(code), library, registers_wanted(count, options, values));
    });
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option* options, void** values,
                               unsigned count, CUlibraryOption*, void**, unsigned) {
    return initialized([&]() -> CUresult {
        if (!library || (count && (!options || !values))) return CUDA_ERROR_INVALID_VALUE;
        Code code;
        std::string error;
        CUresult result = compile_file(path, code, error);
        fill_jit_logs(count, options, values, error);
        if (result != CUDA_SUCCESS) return result;
        return register_library(std::move(code), library, registers_wanted(count, options, values));
    });
}

CUresult cuLibraryUnload(CUlibrary handle) {
    return on_library(handle, [&](Library& library) -> CUresult {
        if (!driver().registry.remove(library.handle())) return CUDA_ERROR_INVALID_HANDLE;
        library.unload();
        return CUDA_SUCCESS;
    });
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
    return on_library(handle, [&](Library& library) -> CUresult {
        if (!kernel || !name) return CUDA_ERROR_INVALID_VALUE;
        if (library.unusable) return library.unusable;
        size_t index = kernel_index(*library.code, name);
        if (index == library.kernels.size()) return CUDA_ERROR_NOT_FOUND;
        *kernel = library.kernels[index]->as<CUkernel>();
        return CUDA_SUCCESS;
    });
}

CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
    return on_library(handle, [&](Library& library) -> CUresult {
        if (!count) return CUDA_ERROR_INVALID_VALUE;
        *count = static_cast<unsigned>(library.kernels.size());
        return CUDA_SUCCESS;
    });
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary handle) {
    return on_library(handle, [&](Library& library) -> CUresult {
        if (!kernels) return CUDA_ERROR_INVALID_VALUE;
        for (unsigned i = 0; i < count && i < library.kernels.size(); ++i)
            kernels[i] = library.kernels[i]->as<CUkernel>();
        return CUDA_SUCCESS;
    });
}

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary handle) {
    return on_instance(handle, [&](Module& found) -> CUresult {
        if (!module) return CUDA_ERROR_INVALID_VALUE;
        *module = found.as<CUmodule>();
        return CUDA_SUCCESS;
    });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* size, CUlibrary handle, const char* name) {
    return on_instance(
        handle, [&](Module& module) { return cuModuleGetGlobal_v2(address, size, module.as<CUmodule>(), name); });
}

// The runtime asks before it has made a context current: it means the first device's.
CUresult cuLibraryGetManaged(CUdeviceptr* address, size_t* size, CUlibrary handle, const char* name) {
    CUcontext current = nullptr, primary = nullptr;
    if (cuCtxGetCurrent(&current) == CUDA_SUCCESS && !current && cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS)
        (void)cuCtxPushCurrent_v2(primary);
    CUresult result = on_instance(handle, [&](Module& module) -> CUresult {
        if (!name || (!address && !size)) return CUDA_ERROR_INVALID_VALUE;
        size_t index = global_index(*module.code, name);
        bool found = index < module.code->globals().size() && module.code->globals()[index].managed;
        return found ? cuModuleGetGlobal_v2(address, size, module.as<CUmodule>(), name) : CUDA_ERROR_NOT_FOUND;
    });
    if (primary) (void)cuCtxPopCurrent_v2(&primary);
    return result;
}

CUresult cuLibraryGetUnifiedFunction(void**, CUlibrary handle, const char*) {
    return on_library(handle, [](Library&) { return CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel handle) {
    return in_context([&](Context& context) -> CUresult {
        if (!function) return CUDA_ERROR_INVALID_VALUE;
        if (!find<Kernel>(handle)) return CUDA_ERROR_INVALID_HANDLE;
        std::shared_ptr<Function> found;
        if (CUresult error = function_of(context, reinterpret_cast<CUfunction>(handle), found)) return error;
        *function = found->as<CUfunction>();
        return CUDA_SUCCESS;
    });
}

CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel handle) {
    return on_kernel(handle, [&](Kernel&, Library& owner) -> CUresult {
        if (!library) return CUDA_ERROR_INVALID_VALUE;
        *library = owner.as<CUlibrary>();
        return CUDA_SUCCESS;
    });
}

CUresult cuKernelGetName(const char** name, CUkernel handle) {
    return initialized([&] {
        if (!name || !handle) return CUDA_ERROR_INVALID_VALUE;
        return on_kernel(handle, [&](Kernel& kernel, Library& library) {
            *name = library.code->kernels()[kernel.index].name.c_str();
            return CUDA_SUCCESS;
        });
    });
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* size) {
    return in_context([&](Context&) -> CUresult {
        if (!handle) return CUDA_ERROR_INVALID_VALUE;
        return on_kernel(handle, [&](Kernel& kernel, Library& library) {
            return parameter_info(library.code->kernels()[kernel.index], index, offset, size);
        });
    });
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle, CUdevice device) {
    return on_kernel(handle, [&](Kernel& kernel, Library& library) -> CUresult {
        if (!value) return CUDA_ERROR_INVALID_VALUE;
        if (!device_of(device)) return CUDA_ERROR_INVALID_DEVICE;
        return get_attribute(*library.code, library.code->kernels()[kernel.index],
                             *kernel.settings[static_cast<size_t>(device)], attribute, *value);
    });
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice device) {
    return on_kernel(handle, [&](Kernel& kernel, Library& library) -> CUresult {
        if (!device_of(device)) return CUDA_ERROR_INVALID_DEVICE;
        return set_attribute(library.code->kernels()[kernel.index], *kernel.settings[static_cast<size_t>(device)],
                             attribute, value);
    });
}

// A preference between shared memory and cache, of which the emulation has neither: accepted.
CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device) {
    return on_kernel(handle, [&](Kernel&, Library&) {
        return device_of(device) ? tnr::check_preference(config) : CUDA_ERROR_INVALID_DEVICE;
    });
}
