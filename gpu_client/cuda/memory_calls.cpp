// The calls that allocate and free, and tell what there is at an address.
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/graph_memory.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/handles_for_others.hpp"
#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/page_file.hpp"
#include "gpu_client/cuda/thread_state.hpp"

using namespace tnr;
using namespace tnr::cuda;

// What cuMemAllocPitch rounds rows up to; programs see and use this number, and real GPUs all say 512.
static constexpr size_t pitch_bytes = 512;

extern "C" {

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
    return guarded("cuMemAlloc", [&] {
        auto refused = refuse_unsafe();
        return refused == CUDA_SUCCESS ? allocate_memory(bytes, out) : refused;
    });
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                                    unsigned int element) {
    return guarded("cuMemAllocPitch", [&]() -> CUresult {
        bool sound = out && pitch && width != 0 && height != 0 && (element == 4 || element == 8 || element == 16);
        if (!sound || width > SIZE_MAX - pitch_bytes) return CUDA_ERROR_INVALID_VALUE;
        size_t row = (width + pitch_bytes - 1) / pitch_bytes * pitch_bytes;
        if (height > SIZE_MAX / row) return CUDA_ERROR_OUT_OF_MEMORY;
        if (auto result = refuse_unsafe(); result != CUDA_SUCCESS) return result;
        auto result = allocate_memory(row * height, out);
        if (result == CUDA_SUCCESS) *pitch = row;
        return result;
    });
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address) {
    return guarded("cuMemFree", [&] {
        auto refused = refuse_unsafe();
        if (refused != CUDA_SUCCESS) return refused;
        if (is_graph_memory(address)) return free_graph_memory_now(address);
        return is_opened_from_pool(address) ? close_memory(address) : free_memory(address);
    });
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
    return guarded("cuMemGetAddressRange", [&]() -> CUresult {
        Context* context = nullptr;
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        Allocation found;
        PinnedRange pinned;
        if (find_pinned(handle_of<void*>(address), 1, pinned))  // which the GPU reaches at its own address, too
            found.address = pinned.address, found.bytes = pinned.bytes;
        else if (!find_allocation(address, found))
            return CUDA_ERROR_NOT_FOUND;
        if (base) *base = found.address;
        if (size) *size = found.bytes;
        return CUDA_SUCCESS;
    });
}

// A descriptor of the GPU's memory would mean something to drivers beside the GPU only, and those are elsewhere. Memory
// of which CUDA knows nothing is refused for that.
CUresult CUDAAPI cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, size_t size,
                                               CUmemRangeHandleType type, unsigned long long flags) {
    return guarded("cuMemGetHandleForAddressRange", [&]() -> CUresult {
        bool sound = handle && size != 0 && (address | size) % page_bytes() == 0 &&
                     type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD &&
                     (flags & ~uint64_t{CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE}) == 0;
        Allocation memory;
        PinnedRange pinned;
        bool known =
            sound && (find_allocation(address, memory) ? size <= memory.address + memory.bytes - address
                                                       : find_pinned(handle_of<const void*>(address), size, pinned));
        return known ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    });
}

}  // extern "C"
