// cuModule…: code that belongs to a context and is loaded at once.
#include <cstdlib>
#include <cstring>

#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/images.hpp"
#include "gpu_client/cuda/jit_options.hpp"
#include "gpu_client/cuda/libraries.hpp"
#include "gpu_client/cuda/thread_state.hpp"

using namespace tnr;
using namespace tnr::cuda;

// Loads the image that `find_image` makes of the program's. Writes the compiler's logs where the program wants them,
// also on failure.
template <class FindImage>
static CUresult load_module(CUmodule* out, const JitArguments& jit, FindImage&& find_image) {
    if (!out || !jit.sound()) return CUDA_ERROR_INVALID_VALUE;
    JitLogs logs(jit);
    logs.write({"", ""});
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    Image image;  // loaded before this returns, so it may borrow the program's memory
    if (auto result = find_image(*find_device(context->device), image); result != CUDA_SUCCESS) return result;
    Library* library = nullptr;
    if (auto result =
            create_library(std::move(image), {.compiler = plain_jit_options(jit), .log_wanted = logs.wanted()},
                           context->handle, library);
        result != CUDA_SUCCESS)
        return result;
    auto result = ensure_loaded(*library);
    auto* code = library->code.load();
    logs.write({code->errors, code->information});
    if (result == CUDA_SUCCESS)
        *out = handle_of<CUmodule>(library->handle);
    else
        (void)unload_library(library->handle);
    return result;
}

static CUresult load_module_data(CUmodule* out, const void* image, const JitArguments& jit) {
    if (!image) return CUDA_ERROR_INVALID_VALUE;
    return load_module(out, jit,
                       [&](const Device& device, Image& found) { return image_for_device(image, device, found); });
}

extern "C" {

CUresult CUDAAPI cuModuleLoadData(CUmodule* out, const void* image) {
    return guarded("cuModuleLoadData", [&] { return load_module_data(out, image, {}); });
}

CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* out, const void* image) {
    return guarded("cuModuleLoadFatBinary", [&] { return load_module_data(out, image, {}); });
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int count, CUjit_option* options,
                                    void** values) {
    return guarded("cuModuleLoadDataEx", [&] { return load_module_data(out, image, {count, options, values}); });
}

CUresult CUDAAPI cuModuleLoad(CUmodule* out, const char* path) {
    return guarded("cuModuleLoad", [&] {
        return load_module(out, {},
                           [&](const Device& device, Image& found) { return image_from_file(path, device, found); });
    });
}

CUresult CUDAAPI cuModuleUnload(CUmodule handle) {
    return guarded("cuModuleUnload", [&]() -> CUresult {
        auto* library = find_module(handle);
        if (!library || library->context == 0) return CUDA_ERROR_INVALID_HANDLE;
        return unload_library(value_of(handle));
    });
}

CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    return guarded("cuModuleGetLoadingMode", [&]() -> CUresult {
        if (!mode) return CUDA_ERROR_INVALID_VALUE;
        const char* wanted = std::getenv("CUDA_MODULE_LOADING");
        *mode = wanted && std::strcmp(wanted, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
    return guarded("cuModuleGetFunction", [&]() -> CUresult {
        if (!out || !name || !*name) return CUDA_ERROR_INVALID_VALUE;
        auto* library = find_module(handle);
        if (!library) return CUDA_ERROR_INVALID_HANDLE;
        uint64_t function = 0;
        auto result = get_kernel(*library, name, function);
        if (result == CUDA_SUCCESS) *out = handle_of<CUfunction>(function);
        return result;
    });
}

CUresult CUDAAPI cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) {
    return cuLibraryGetKernelCount(count, handle_of<CUlibrary>(value_of(handle)));
}

CUresult CUDAAPI cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count, CUmodule handle) {
    return cuLibraryEnumerateKernels(reinterpret_cast<CUkernel*>(functions), count,
                                     handle_of<CUlibrary>(value_of(handle)));
}

CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle, const char* name) {
    return cuLibraryGetGlobal(address, bytes, handle_of<CUlibrary>(value_of(handle)), name);
}

}  // extern "C"
