// cuLibrary…: code that belongs to no context. Sent when first needed (unless CUDA_MODULE_LOADING=EAGER).
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/images.hpp"
#include "gpu_client/cuda/jit_options.hpp"
#include "gpu_client/cuda/library_symbols.hpp"
#include "gpu_client/cuda/thread_state.hpp"
#include "gpu_client/protocol/fatbin.hpp"

using namespace tnr;
using namespace tnr::cuda;

static bool loads_eagerly() {
    const char* wanted = std::getenv("CUDA_MODULE_LOADING");
    return wanted && std::strcmp(wanted, "EAGER") == 0;
}

// The device whose code is wanted: the current context's, else the first.
static const Device* target_device() {
    auto* context = contexts().find(current_context_handle());
    return find_device(context ? context->device : 0);
}

static wire::LibraryOptions library_options(const CUlibraryOption* options, void** values, unsigned count) {
    wire::LibraryOptions kept;
    for (unsigned i = 0; i < count; ++i) {
        // Neither is for the worker: one is about the program's memory, the other is a table of host addresses.
        if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED) continue;
        if (options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE) continue;
        if (kept.size() < wire::library_options_max)
            kept.push_back({static_cast<uint32_t>(options[i]), values ? value_of(values[i]) : 0});
    }
    return kept;
}

// The program promises to leave its image where it is, as nvcc's own code does for what is linked into a program.
static bool is_preserved(const CUlibraryOption* options, unsigned count) {
    return std::find(options, options + count, CU_LIBRARY_BINARY_IS_PRESERVED) != options + count;
}

// `find_image` finds the image that is loaded.
template <class FindImage>
static CUresult load_library(CUlibrary* out, wire::LibraryOptions options, const JitArguments& jit, bool of_runtime,
                             FindImage&& find_image) {
    JitLogs logs(jit);
    logs.write({"", ""});
    Image image;
    if (auto result = find_image(image); result != CUDA_SUCCESS) return result;
    Library* library = nullptr;
    if (auto result =
            create_library(std::move(image), {std::move(options), plain_jit_options(jit), logs.wanted()}, 0, library);
        result != CUDA_SUCCESS)
        return result;
    library->of_runtime = of_runtime;
    // Who wants to read the compiler's logs wants it to run now.
    if ((loads_eagerly() || logs.wanted()) && current_context_handle() != 0) {
        auto result = ensure_loaded(*library);
        auto* code = library->code.load();
        logs.write({code->errors, code->information});
        if (result != CUDA_SUCCESS) {
            (void)unload_library(library->handle);
            return result;
        }
    }
    *out = handle_of<CUlibrary>(library->handle);
    return CUDA_SUCCESS;
}

extern "C" {

CUresult CUDAAPI cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option* jit_options, void** jit_values,
                                   unsigned int jit_count, CUlibraryOption* options, void** values,
                                   unsigned int count) {
    return guarded("cuLibraryLoadData", [&]() -> CUresult {
        const JitArguments jit{jit_count, jit_options, jit_values};
        if (!out || !code || (count > 0 && !options) || !jit.sound()) return CUDA_ERROR_INVALID_VALUE;
        // nvcc wraps code for the runtime; what programs load themselves comes without a wrapper.
        bool of_runtime = fatbin::header_of_wrapper(code) != nullptr;
        return load_library(out, library_options(options, values, count), jit, of_runtime, [&](Image& image) {
            auto result = image_for_device(code, *target_device(), image);
            if (!is_preserved(options, count)) image.own();
            return result;
        });
    });
}

CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option* jit_options, void** jit_values,
                                       unsigned int jit_count, CUlibraryOption* options, void** values,
                                       unsigned int count) {
    return guarded("cuLibraryLoadFromFile", [&]() -> CUresult {
        const JitArguments jit{jit_count, jit_options, jit_values};
        if (!out || (count > 0 && !options) || !jit.sound()) return CUDA_ERROR_INVALID_VALUE;
        return load_library(out, library_options(options, values, count), jit, false,
                            [&](Image& image) { return image_from_file(path, *target_device(), image); });
    });
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
    return guarded("cuLibraryUnload", [&] { return unload_library(value_of(library)); });
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
    return guarded("cuLibraryGetKernel", [&]() -> CUresult {
        if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
        auto* library = find_library(handle);
        if (!library) return CUDA_ERROR_INVALID_HANDLE;
        uint64_t kernel = 0;
        auto result = get_kernel(*library, name, kernel);
        if (result == CUDA_SUCCESS) *out = handle_of<CUkernel>(kernel);
        return result;
    });
}

CUresult CUDAAPI cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) {
    return guarded("cuLibraryGetKernelCount", [&]() -> CUresult {
        auto* library = find_library(handle);
        if (!count) return CUDA_ERROR_INVALID_VALUE;
        if (!library) return CUDA_ERROR_INVALID_HANDLE;
        if (auto result = ensure_loaded(*library); result != CUDA_SUCCESS) return result;
        *count = static_cast<unsigned>(library->code.load()->kernels.size());
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count, CUlibrary handle) {
    return guarded("cuLibraryEnumerateKernels", [&]() -> CUresult {
        auto* library = find_library(handle);
        if (!kernels && count > 0) return CUDA_ERROR_INVALID_VALUE;
        if (!library) return CUDA_ERROR_INVALID_HANDLE;
        if (auto result = ensure_loaded(*library); result != CUDA_SUCCESS) return result;
        size_t there = library->code.load()->kernels.size();
        for (size_t i = 0; i < count && i < there; ++i) {
            uint64_t kernel = 0;
            if (auto result = kernel_handle(*library, i, kernel); result != CUDA_SUCCESS) return result;
            kernels[i] = handle_of<CUkernel>(kernel);
        }
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
    return guarded("cuLibraryGetModule", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        auto* library = find_library(handle);
        if (!library) return CUDA_ERROR_INVALID_HANDLE;
        Context* context = nullptr;  // whose module it is
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        if (auto result = ensure_loaded(*library); result != CUDA_SUCCESS) return result;
        *out = handle_of<CUmodule>(library->handle);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary handle, const char* name) {
    return guarded("cuLibraryGetGlobal", [&]() -> CUresult {
        if (!name || (!address && !bytes)) return CUDA_ERROR_INVALID_VALUE;
        auto* library = find_library(handle);
        if (!library) return CUDA_ERROR_INVALID_HANDLE;
        uint64_t start = 0, length = 0;
        auto result = get_global(*library, name, start, length);
        if (result == CUDA_SUCCESS && address) *address = start;
        if (result == CUDA_SUCCESS && bytes) *bytes = length;
        return result;
    });
}

CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary handle, const char* name) {
    return guarded("cuLibraryGetManaged", [&]() -> CUresult {
        if (!name || (!address && !bytes)) return CUDA_ERROR_INVALID_VALUE;
        auto* library = find_library(handle);
        if (!library) return CUDA_ERROR_INVALID_HANDLE;
        uint64_t start = 0, length = 0;
        auto result = get_managed(*library, name, start, length);
        if (result == CUDA_SUCCESS && address) *address = start;
        if (result == CUDA_SUCCESS && bytes) *bytes = length;
        return result;
    });
}

CUresult CUDAAPI cuLibraryGetUnifiedFunction(void**, CUlibrary handle, const char* symbol) {
    return guarded("cuLibraryGetUnifiedFunction", [&]() -> CUresult {
        return symbol && !find_library(handle) ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    });
}

}  // extern "C"
