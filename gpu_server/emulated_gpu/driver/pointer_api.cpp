// cuPointer*: what is known of an address.
#include "gpu_server/emulated_gpu/driver/memory.hpp"

using namespace tnr::emulated;

namespace {

template <class T>
CUresult put(void* out, T value) {
    *static_cast<T*>(out) = value;
    return CUDA_SUCCESS;
}

CUcontext context_handle(const Allocation& allocation) {
    return allocation.context ? allocation.context->as<CUcontext>() : nullptr;
}

CUresult answer(const Allocation& allocation, CUpointer_attribute attribute, CUdeviceptr address, void* out) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            return put(out, context_handle(allocation));
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return put<unsigned>(out, allocation.is_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            return put(out, address);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            if (!allocation.is_host() && allocation.type != MemoryType::managed) {
                put<void*>(out, nullptr);
                return CUDA_ERROR_INVALID_VALUE;
            }
            return put(out, pointer(address));
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            return put<int>(out, allocation.sync_memops);
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
            return put<unsigned long long>(out, allocation.buffer_id);
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            return put<int>(out, allocation.type == MemoryType::managed);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return put<int>(out, allocation.device);
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            return put<int>(out, 0);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            return put<CUdeviceptr>(out, allocation.begin);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            return put<size_t>(out, allocation.size);
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return put<int>(out, 1);
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            return put<unsigned long long>(out, 0);
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
            return put<int>(out, 0);
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return put<unsigned>(out, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            return put<uint64_t>(out, allocation.owner);
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            return put<unsigned long long>(out, allocation.buffer_id);
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

// What cuPointerGetAttributes, which does not fail for unknown addresses, says about them.
void answer_unknown(CUpointer_attribute attribute, CUdeviceptr address, void* out) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            put<CUcontext>(out, nullptr);
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            put<CUdeviceptr>(out, 0);
            break;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            put(out, pointer(address));
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            put<int>(out, -2);
            break;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            put<uint64_t>(out, 0);
            break;
        default:
            put<int>(out, 0);
            break;
    }
}

}  // namespace

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
    return initialized([&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        auto found = driver().addresses.find(address);
        return found ? answer(*found, attribute, address, out) : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** out, CUdeviceptr address) {
    return initialized([&]() -> CUresult {
        if (!attributes || !out || count == 0) return CUDA_ERROR_INVALID_VALUE;
        auto found = driver().addresses.find(address);
        for (unsigned i = 0; i < count; ++i) {
            const bool known = attributes[i] >= CU_POINTER_ATTRIBUTE_CONTEXT &&
                               attributes[i] <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
            if (!out[i] || !known) return CUDA_ERROR_INVALID_VALUE;
            if (found)
                (void)answer(*found, attributes[i], address, out[i]);
            else
                answer_unknown(attributes[i], address, out[i]);
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
    return in_context([&](Context&) -> CUresult {
        if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
        auto found = driver().addresses.find(address);
        if (!found || found->is_host()) return CUDA_ERROR_INVALID_DEVICE;
        const bool on = *static_cast<const int*>(value) != 0;
        driver().addresses.update(found->begin, found->size,
                                  [&](Allocation& allocation) { allocation.sync_memops = on; });
        return CUDA_SUCCESS;
    });
}
