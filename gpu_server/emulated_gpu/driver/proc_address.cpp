// cuGetProcAddress: our own exported symbols by base name, CUDA version and default-stream flavour. As with a real
// driver every name of cuda.h is found; what the emulation lacks answers CUDA_ERROR_NOT_SUPPORTED.
#include "gpu_client/cuda/entry_points.hpp"
#include "gpu_server/emulated_gpu/driver/state.hpp"

namespace tnr::emulated {

// What the generated stubs call.
int not_supported(const char* name);
int not_supported(const char* name) {
    log_debug(std::string(name) + " is not supported by the emulated GPU");
    return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace tnr::emulated

using namespace tnr::emulated;

static constexpr cuuint64_t known_flags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

CUresult cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
    return guarded([&]() -> CUresult {
        if (!name || !function || version > driver_version || (flags & ~known_flags) || flags == known_flags)
            return CUDA_ERROR_INVALID_VALUE;
        CUdriverProcAddressQueryResult ignored, &result = status ? *status : ignored;
        result = CU_GET_PROC_ADDRESS_SUCCESS;
        if (*name == 0) {  // the runtime's first question: the address of this very function
            *function = reinterpret_cast<void*>(&cuGetProcAddress_v2);
            return CUDA_SUCCESS;
        }
        auto found = tnr::cuda::find_entry_point(name, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
        *function = found.pointer;
        if (found.pointer) return CUDA_SUCCESS;
        result = found.name_exists ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        return CUDA_SUCCESS;  // as cuda.h promises, and as 580.159 answers; drivers of CUDA 12 have said NOT_FOUND
    });
}

// Without a status, the result alone tells that there is no such function.
CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags) {
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult result = cuGetProcAddress_v2(name, function, version, flags, &status);
    return result == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_ERROR_NOT_FOUND : result;
}

// The tables of NVIDIA's own runtime libraries are undocumented and belong to the client's library.
CUresult cuGetExportTable(const void** table, const CUuuid*) {
    if (table) *table = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
}
