// Descriptors that stand for memory, or for a multicast object, in other processes.
#include <fcntl.h>

#include "gpu_server/emulated_gpu/driver/multicast.hpp"
#include "gpu_server/emulated_gpu/driver/physical_memory.hpp"

using namespace tnr::emulated;

static CUresult export_file(CUmemGenericAllocationHandle handle, int& fd) {
    if (auto multicast = find<Multicast>(handle)) {
        fd = multicast->export_file();
        return fd < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    auto memory = find<PhysicalMemory>(handle);
    if (!memory || !(memory->properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_INVALID_VALUE;
    if (memory->moved()) return CUDA_ERROR_NOT_SUPPORTED;
    fd = memory->export_file();
    return fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
    return initialized([&]() -> CUresult {
        if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
        if (!find<PhysicalMemory>(handle) && !find<Multicast>(handle)) return CUDA_ERROR_INVALID_VALUE;
        if (type == CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
        if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
        return export_file(handle, *static_cast<int*>(out));
    });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                        CUmemAllocationHandleType type) {
    return initialized([&]() -> CUresult {
        if (!out || type == CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
        if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
        // The descriptor stays the caller's.
        tnr::UniqueFd file(fcntl(static_cast<int>(number(os_handle)), F_DUPFD_CLOEXEC, 0));
        if (!file) return CUDA_ERROR_INVALID_VALUE;
        if (auto multicast = Multicast::import(file)) {
            *out = driver().registry.add(multicast)->handle();
            return CUDA_SUCCESS;
        }
        auto memory = PhysicalMemory::import(std::move(file));
        if (!memory) return CUDA_ERROR_INVALID_VALUE;
        *out = driver().registry.add(memory)->handle();
        return CUDA_SUCCESS;
    });
}
