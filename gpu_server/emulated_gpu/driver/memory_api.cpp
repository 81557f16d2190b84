// cuMemAlloc and its relatives for device memory.
#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"

using namespace tnr::emulated;

namespace {

// cuMemAllocPitch: rows start at multiples of this.
constexpr size_t pitch_alignment = 512;

Allocation owned_by(Context& context) {
    Allocation allocation;
    allocation.context = &context;
    return allocation;
}

bool is_device(const Allocation& allocation) {
    return allocation.type == MemoryType::device || allocation.type == MemoryType::managed;
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t size) {
    return in_context([&](Context& context) -> CUresult {
        if (!address) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = refuse_unsafe()) return error;
        uint64_t begin = 0;
        CUresult result = allocate_device(context.device, size, owned_by(context), begin);
        if (result == CUDA_SUCCESS) *address = begin;
        return result;
    });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned element) {
    if (!address || !pitch || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
    if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
    size_t row = (width + pitch_alignment - 1) / pitch_alignment * pitch_alignment;
    size_t bytes = 0;
    if (row < width || __builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuMemAlloc_v2(address, bytes);
    if (result == CUDA_SUCCESS) *pitch = row;
    return result;
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t size, unsigned flags) {
    return in_context([&](Context& context) -> CUresult {
        bool attach = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
        if (!address || !attach) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = refuse_unsafe()) return error;
        Allocation like = owned_by(context);
        like.type = MemoryType::managed;
        uint64_t begin = 0;
        CUresult result = allocate_device(context.device, size, like, begin);
        if (result == CUDA_SUCCESS) *address = begin;
        return result;
    });
}

// Waits for the context's work first, as the driver does: a kernel may still be using the memory.
CUresult cuMemFree_v2(CUdeviceptr address) {
    return in_context([&](Context& context) -> CUresult {
        if (CUresult error = refuse_unsafe()) return error;
        if (address == 0) return CUDA_SUCCESS;
        auto found = driver().addresses.find(address);
        if (!found || found->begin != address || !is_device(*found) || found->in_module || found->freed)
            return CUDA_ERROR_INVALID_VALUE;
        if (found->in_graph) {
            context.synchronize();
            return free_outside(address) ? context.status() : CUDA_ERROR_INVALID_VALUE;
        }
        (found->context ? *found->context : context).synchronize();
        auto taken = driver().addresses.take(
            address, [&](const Allocation& allocation) { return allocation.buffer_id == found->buffer_id; });
        if (!taken) return CUDA_ERROR_INVALID_VALUE;  // another thread was faster
        give_back(*taken);
        return context.status();
    });
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    return in_context([&](Context& context) -> CUresult {
        if (free) *free = context.device.memory_total - context.device.memory_used;
        if (total) *total = context.device.memory_total;
        return CUDA_SUCCESS;
    });
}

// Nothing else of this computer could do anything with a descriptor of our memory.
CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, size_t size, CUmemRangeHandleType type,
                                       unsigned long long flags) {
    return in_context([&](Context&) -> CUresult {
        constexpr size_t page_bytes = 4096;
        bool sound = handle && size != 0 && (address | size) % page_bytes == 0 &&
                     type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD &&
                     (flags & ~uint64_t{CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE}) == 0;
        auto found = driver().addresses.find(sound ? address : 0);
        bool known = found && size <= found->begin + found->size - address;
        return known ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
    return in_context([&](Context&) -> CUresult {
        auto found = driver().addresses.find(address);
        if (!found) return CUDA_ERROR_NOT_FOUND;
        if (base) *base = found->begin;
        if (size) *size = found->size;
        return CUDA_SUCCESS;
    });
}
