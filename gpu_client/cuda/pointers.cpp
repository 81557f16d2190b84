// What an address is: device memory, pinned memory of the program, or unknown to CUDA.
#include <cstring>

#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/shared_memory.hpp"

using namespace tnr::cuda;

namespace tnr::cuda {

std::atomic<bool> any_sync_memops{false};

}  // namespace tnr::cuda

namespace {

struct Known {
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    uint64_t address = 0, bytes = 0, context = 0, id = 0, pool = 0;
    uint64_t device_pointer = 0, host_pointer = 0;
    bool managed = false, sync_memops = false;
    int device = 0;  // ordinal
};

int device_of(const Allocation& allocation) {
    auto* context = contexts().find(allocation.context);
    auto* range = allocation.mapped_by_program ? nullptr : device_of_address(allocation.address);
    return range ? range->ordinal : context ? context->device : 0;
}

bool identify(uint64_t address, Known& known) {
    Allocation allocation;
    bool on_device = find_allocation(address, allocation);
    if (on_device) {
        known = {CU_MEMORYTYPE_DEVICE, allocation.address, allocation.bytes, allocation.context,
                 allocation.id,        allocation.pool,    address,          0};
        known.device = device_of(allocation);
        known.sync_memops = allocation.sync_memops;
    }
    PinnedRange range;
    SharedMemory shared;
    bool is_shared = find_shared(address, shared);
    bool is_host = is_shared ? !shared.is_managed() : !on_device;
    if (is_shared) {
        uint64_t offset = address - (address - shared.host < shared.bytes ? shared.host : shared.device);
        known.managed = !is_host;
        known.type = is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        known.address = is_host ? shared.host : shared.device;
        known.bytes = shared.bytes;
        known.device_pointer = shared.device + offset;
        known.host_pointer = shared.host + offset;
        address = known.host_pointer;
    }
    bool is_pinned = is_host && find_pinned(handle_of<const void*>(address), 1, range);
    if (is_pinned) {
        auto* context = contexts().find(range.context);
        known = {CU_MEMORYTYPE_HOST, range.address, range.bytes,          range.context,
                 range.id,           range.pool,    known.device_pointer, address};
        known.device = context ? context->device : 0;
    }
    return on_device || is_pinned;
}

template <class T>
CUresult give(void* data, T value) {
    std::memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
}

// What cuda.h calls booleans are integers of four bytes: the runtime reads all four.
CUresult get_attribute(void* data, CUpointer_attribute attribute, uint64_t address) {
    Known known;
    if (!identify(address, known)) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:  // a pool's memory belongs to none
            return give(data, known.pool == 0 ? known.context : 0);
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return give(data, static_cast<unsigned>(known.type));
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            return known.device_pointer != 0 ? give(data, known.device_pointer) : CUDA_ERROR_INVALID_VALUE;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            return known.host_pointer != 0 ? give(data, known.host_pointer) : CUDA_ERROR_INVALID_VALUE;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            return give(data, int{known.managed});
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            return give(data, int{known.sync_memops});
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
            return give(data, int{false});
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
            return give(data, static_cast<unsigned long long>(known.id));
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return give(data, known.device);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return give(data, known.address);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return give(data, size_t{known.bytes});
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return give(data, int{true});
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            return give(data, 0ull);
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return give(data, static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            return give(data, known.pool);
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

size_t size_of(CUpointer_attribute attribute) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
            return sizeof(unsigned);
        default:
            return sizeof(uint64_t);
    }
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
    return guarded("cuPointerGetAttribute", [&]() -> CUresult {
        if (!data) return CUDA_ERROR_INVALID_VALUE;
        return get_attribute(data, attribute, address);
    });
}

// Unlike its sibling, this one has an answer for memory that CUDA does not know: zeros, no device (-2), and the address itself
// as the host's, whether there is anything or not (cudaPointerAttributes' documentation says so).
CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                        CUdeviceptr address) {
    return guarded("cuPointerGetAttributes", [&]() -> CUresult {
        if (count == 0 || !attributes || !data) return CUDA_ERROR_INVALID_VALUE;
        for (unsigned i = 0; i < count; ++i) {
            const bool exists = attributes[i] >= CU_POINTER_ATTRIBUTE_CONTEXT &&
                                attributes[i] <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
            if (!data[i] || !exists) return CUDA_ERROR_INVALID_VALUE;
            if (get_attribute(data[i], attributes[i], address) == CUDA_SUCCESS) continue;
            std::memset(data[i], 0, size_of(attributes[i]));
            if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) (void)give(data[i], -2);
            Known known;
            const bool asks_host = attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER;
            if (asks_host && !identify(address, known)) (void)give(data[i], address);
        }
        return CUDA_SUCCESS;
    });
}

// Makes synchronous calls wait that would leave a copy or a fill of the GPU's memory to the GPU. The program's they
// await anyway.
CUresult CUDAAPI cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
    return guarded("cuPointerSetAttribute", [&]() -> CUresult {
        Known known;
        bool sound = value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && identify(address, known);
        if (!sound) return CUDA_ERROR_INVALID_VALUE;
        auto* device = device_of_address(address);
        const bool on = *static_cast<const int*>(value) != 0;
        if (device && known.type == CU_MEMORYTYPE_DEVICE) device->memory->set_sync_memops(known.address, on);
        any_sync_memops = any_sync_memops || on;
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
