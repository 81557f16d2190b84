// cuGetProcAddress: which ABI of a function a caller gets, by the CUDA version it was built for.
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/entry_points.hpp"
#include "gpu_client/cuda/guarded.hpp"

// What we export, as opposed to what is defined below (driver_api.hpp). Only their addresses are taken.
extern "C" void exported_get_proc_address() __asm__("cuGetProcAddress");
extern "C" void exported_get_proc_address_v2() __asm__("cuGetProcAddress_v2");

namespace tnr::cuda {

static CUresult get(const char* name, void** out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status,
                    void* self) {
    constexpr cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!name || !out || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    *out = nullptr;
    if (version > driver_version()) return CUDA_ERROR_INVALID_VALUE;
    auto found = CU_GET_PROC_ADDRESS_SUCCESS;
    if (*name == 0) {  // cudart and NCCL ask for this first, to see who answers
        *out = self;
        if (status) *status = found;
        return CUDA_SUCCESS;
    }
    auto entry = find_entry_point(name, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
    *out = entry.pointer;
    if (!entry.pointer)
        found = entry.name_exists ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (status) *status = found;
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" CUresult CUDAAPI cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                                                CUdriverProcAddressQueryResult* status) {
    return get(name, out, version, flags, status, reinterpret_cast<void*>(&exported_get_proc_address_v2));
}

// Without a status, the result alone tells that there is no such function.
extern "C" CUresult CUDAAPI cuGetProcAddress(const char* name, void** out, int version, cuuint64_t flags) {
    auto status = CU_GET_PROC_ADDRESS_SUCCESS;
    auto result = get(name, out, version, flags, &status, reinterpret_cast<void*>(&exported_get_proc_address));
    if (result == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS) return CUDA_ERROR_NOT_FOUND;
    return result;
}
