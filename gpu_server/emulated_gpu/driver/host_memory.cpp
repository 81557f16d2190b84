// Pinned host memory. Device addresses are host addresses here, so pinning is only bookkeeping: it decides
// which copies may return before they are done, and which host memory kernels may touch.
#include <sys/mman.h>

#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"

using namespace tnr::emulated;

namespace {

constexpr unsigned alloc_flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned register_flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

CUresult allocate_host(Context& context, void** out, size_t size, unsigned flags) {
    if (!out || (flags & ~alloc_flags)) return CUDA_ERROR_INVALID_VALUE;
    if (size == 0) return *out = nullptr, CUDA_SUCCESS;
    if (CUresult error = refuse_unsafe()) return error;
    Allocation like;
    like.device = context.device.ordinal;
    like.context = &context;
    like.flags = flags;
    uint64_t address = 0;
    if (CUresult error = place_on_host(size, like, address)) return error;
    *out = pointer(address);
    return CUDA_SUCCESS;
}

// Has the program memory in every page of it?
bool is_mapped(void* memory, size_t size) {
    constexpr uint64_t page = 4096;
    uint64_t begin = number(memory) & ~(page - 1);
    return msync(pointer(begin), number(memory) + size - begin, MS_ASYNC) == 0;
}

}  // namespace

namespace tnr::emulated {

CUresult place_on_host(uint64_t size, Allocation like, uint64_t& address) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    like.begin = address = number(memory);
    like.size = size;
    like.type = MemoryType::host;
    // With unified addressing every allocation is mapped and portable, whatever was asked for.
    like.flags |= CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    driver().addresses.insert(like);
    return CUDA_SUCCESS;
}

}  // namespace tnr::emulated

CUresult cuMemAllocHost_v2(void** out, size_t size) {
    return in_context([&](Context& context) { return allocate_host(context, out, size, 0); });
}

CUresult cuMemHostAlloc(void** out, size_t size, unsigned flags) {
    return in_context([&](Context& context) { return allocate_host(context, out, size, flags); });
}

CUresult cuMemFreeHost(void* memory) {
    return in_context([&](Context& context) -> CUresult {
        if (!memory) return CUDA_SUCCESS;
        auto found = driver().addresses.find(number(memory));
        if (!found || found->begin != number(memory) || found->type != MemoryType::host || found->owner)
            return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = refuse_unsafe()) return error;
        found->context->synchronize();  // copies from it may be under way
        auto taken = driver().addresses.take(
            found->begin, [&](const Allocation& allocation) { return allocation.buffer_id == found->buffer_id; });
        if (!taken) return CUDA_ERROR_INVALID_VALUE;
        give_back(*taken);
        return context.status();
    });
}

CUresult cuMemHostRegister_v2(void* memory, size_t size, unsigned flags) {
    return in_context([&](Context& context) -> CUresult {
        if (!memory || size == 0 || (flags & ~register_flags)) return CUDA_ERROR_INVALID_VALUE;
        if (number(memory) + size < size) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = refuse_unsafe()) return error;
        auto there = driver().addresses.find(number(memory));
        if ((there && there->type != MemoryType::registered) || !is_mapped(memory, size))
            return CUDA_ERROR_INVALID_VALUE;
        if (driver().addresses.overlaps(number(memory), size)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        Allocation allocation;
        allocation.begin = number(memory);
        allocation.size = size;
        allocation.type = MemoryType::registered;
        allocation.device = context.device.ordinal;
        allocation.context = &context;
        allocation.flags = flags | CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        driver().addresses.insert(allocation);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemHostRegister(void* memory, size_t size, unsigned flags) {
    return cuMemHostRegister_v2(memory, size, flags);
}

CUresult cuMemHostUnregister(void* memory) {
    return in_context([&](Context& context) -> CUresult {
        if (!memory) return CUDA_ERROR_INVALID_VALUE;
        auto found = driver().addresses.find(number(memory));
        if (!found) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
        if (found->type != MemoryType::registered || found->begin != number(memory)) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = refuse_unsafe()) return error;
        found->context->synchronize();
        driver().addresses.take(found->begin,
                                [&](const Allocation& allocation) { return allocation.buffer_id == found->buffer_id; });
        return context.status();
    });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* memory, unsigned flags) {
    return in_context([&](Context&) -> CUresult {
        if (!device || !memory || flags) return CUDA_ERROR_INVALID_VALUE;
        auto found = driver().addresses.find(number(memory));
        if (!found || !found->is_host()) return CUDA_ERROR_INVALID_VALUE;
        *device = number(memory);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemHostGetFlags(unsigned* flags, void* memory) {
    return in_context([&](Context&) -> CUresult {
        if (!flags || !memory) return CUDA_ERROR_INVALID_VALUE;
        auto found = driver().addresses.find(number(memory));
        if (!found || !found->is_host()) return CUDA_ERROR_INVALID_VALUE;
        *flags = found->flags;
        return CUDA_SUCCESS;
    });
}
