// Advice on managed memory. It is plain host memory here, always everywhere: advice is checked and ignored.
#include "gpu_server/emulated_gpu/driver/memory.hpp"
#include "gpu_server/emulated_gpu/driver/per_thread.hpp"

using namespace tnr::emulated;

namespace {

CUresult check_managed(CUdeviceptr address, size_t size) {
    auto found = driver().addresses.find(address);
    bool managed = size && found && found->type == MemoryType::managed && size <= found->end() - address;
    return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_place(const CUmemLocation& location) {
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && !device_of(location.id)) return CUDA_ERROR_INVALID_DEVICE;
    return CUDA_SUCCESS;
}

CUmemLocation place_of(CUdevice device) {
    CUmemLocation location{};
    location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device == CU_DEVICE_CPU ? 0 : device;
    return location;
}

}  // namespace

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location) {
    return in_context([&](Context&) -> CUresult {
        if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
            return CUDA_ERROR_INVALID_VALUE;
        bool needs_place = advice >= CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
        if (CUresult error = check_managed(address, size)) return error;
        return needs_place ? check_place(location) : CUDA_SUCCESS;
    });
}

CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device) {
    return cuMemAdvise_v2(address, size, advice, place_of(device));
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location, unsigned flags,
                               CUstream handle) {
    return on_stream(handle, [&](Stream&) -> CUresult {
        if (flags) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = check_managed(address, size)) return error;
        return check_place(location);
    });
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUstream stream) {
    return cuMemPrefetchAsync_v2(address, size, place_of(device), 0, stream);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t size, CUmemLocation location, unsigned flags,
                                    CUstream stream) {
    return cuMemPrefetchAsync_v2(address, size, location, flags, per_thread(stream));
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t size, CUdevice device, CUstream stream) {
    return cuMemPrefetchAsync(address, size, device, per_thread(stream));
}
