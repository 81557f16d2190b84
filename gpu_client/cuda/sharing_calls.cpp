// What the processes of a claim give each other: memory, events, shareable handles of cuMemCreate's memory and of
// multicast objects.
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/events.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/handles_for_others.hpp"
#include "gpu_client/cuda/virtual_memory.hpp"

using namespace tnr;
using namespace tnr::cuda;
using Kind = HandleForOthers::Kind;

static CUresult open_memory_handle(CUdeviceptr* out, const CUipcMemHandle& opaque, unsigned flags) {
    if (!out || (flags & ~unsigned{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS}) != 0) return CUDA_ERROR_INVALID_VALUE;
    auto handle = handle_in(opaque);
    if (!handle.is(Kind::memory)) return CUDA_ERROR_INVALID_VALUE;
    if (auto refused = refuse_unsafe(); refused != CUDA_SUCCESS) return refused;
    return open_memory(handle, *out);
}

extern "C" {

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
    return guarded("cuIpcGetMemHandle", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        HandleForOthers handle;
        auto result = lend_memory(address, Kind::memory, handle);
        if (result == CUDA_SUCCESS) std::memcpy(out, &handle, sizeof handle);
        return result;
    });
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
    return guarded("cuIpcOpenMemHandle", [&] { return open_memory_handle(out, handle, flags); });
}
CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
    return guarded("cuIpcOpenMemHandle", [&] { return open_memory_handle(out, handle, flags); });
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address) {
    return guarded("cuIpcCloseMemHandle", [&]() -> CUresult {
        if (auto refused = refuse_unsafe(); refused != CUDA_SUCCESS) return refused;
        return close_memory(address);
    });
}

CUresult CUDAAPI cuIpcGetEventHandle(CUipcEventHandle* out, CUevent event) {
    return guarded("cuIpcGetEventHandle", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        std::memset(out, 0, sizeof *out);  // Warp looks at that on failure, too
        if (!event) return CUDA_ERROR_INVALID_VALUE;
        HandleForOthers handle;
        handle.kind = Kind::event;
        if (auto result = lend_event(event, handle.name); result != CUDA_SUCCESS) return result;
        note_lent(handle.name);
        std::memcpy(out, &handle, sizeof handle);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuIpcOpenEventHandle(CUevent* out, CUipcEventHandle opaque) {
    return guarded("cuIpcOpenEventHandle", [&]() -> CUresult {
        auto handle = handle_in(opaque);
        if (!out || !handle.is(Kind::event)) return CUDA_ERROR_INVALID_VALUE;
        if (is_lent_here(handle.name)) return CUDA_ERROR_INVALID_CONTEXT;
        return borrow_event(handle.name, *out);
    });
}

// The program gets a file that names the memory: the driver's own descriptor is where the GPU is.
CUresult CUDAAPI cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle memory,
                                              CUmemAllocationHandleType type, unsigned long long flags) {
    return guarded("cuMemExportToShareableHandle", [&]() -> CUresult {
        if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (auto result = check_handle_type(type); result != CUDA_SUCCESS) return result;
        Lent lent;
        if (auto result = lend_allocation(memory, lent); result != CUDA_SUCCESS) return result;
        HandleForOthers handle{.kind = lent.multicast ? Kind::multicast : Kind::allocation, .name = lent.name};
        handle.bytes = lent.bytes;
        int descriptor = to_descriptor(handle);
        if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
        *static_cast<int*>(out) = descriptor;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                                CUmemAllocationHandleType type) {
    return guarded("cuMemImportFromShareableHandle", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        if (auto result = check_handle_type(type); result != CUDA_SUCCESS) return result;
        HandleForOthers handle;
        bool sound = from_descriptor(static_cast<int>(reinterpret_cast<intptr_t>(os_handle)), handle);
        if (sound && handle.is(Kind::multicast)) return borrow_multicast(handle.name, handle.bytes, *out);
        if (!sound || !handle.is(Kind::allocation)) return CUDA_ERROR_INVALID_VALUE;
        uint64_t bytes = 0;
        return borrow_allocation(handle.name, *out, bytes);
    });
}

}  // extern "C"
