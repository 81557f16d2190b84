// Multicast objects: made here, mapped and released as memory of cuMemCreate is.
#include "gpu_server/emulated_gpu/driver/virtual_memory.hpp"

using namespace tnr::emulated;

namespace {

bool multicast_aligned(uint64_t value) {
    return value % multicast_granularity == 0;
}

unsigned devices_with_multicast() {
    unsigned count = 0;
    for (auto& device : driver().devices) count += has_multicast(*device);
    return count;
}

CUresult check_properties(const CUmulticastObjectProp* properties) {
    if (!properties || properties->numDevices == 0 || properties->size == 0 || properties->flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (devices_with_multicast() == 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (properties->handleTypes & ~static_cast<unsigned long long>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

bool inside(uint64_t offset, uint64_t size, uint64_t bytes) {
    return size != 0 && multicast_aligned(offset) && multicast_aligned(size) && offset <= bytes &&
           size <= bytes - offset;
}

// `memory` is that of a mapping, or of a handle.
CUresult bind_part(VirtualMemory& mapped, Multicast& multicast, uint64_t offset,
                   const std::shared_ptr<PhysicalMemory>& memory, uint64_t memory_offset, uint64_t size)
    TNR_REQUIRES(mapped.mutex) {
    if (!memory || !inside(memory_offset, size, memory->bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (multicast.shareable() && memory->properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    auto remap = [&]() TNR_REQUIRES(mapped.mutex) { mapped.remap(*memory); };
    return multicast.bind(offset, memory, memory_offset, size, remap);
}

}  // namespace

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties) {
    return initialized([&]() -> CUresult {
        if (!handle) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = check_properties(properties)) return error;
        if (!multicast_aligned(properties->size)) return CUDA_ERROR_INVALID_VALUE;
        // Other processes may add devices that this one does not see.
        bool shareable = properties->handleTypes != 0;
        if (properties->numDevices > (shareable ? Multicast::devices_max : devices_with_multicast()))
            return CUDA_ERROR_INVALID_DEVICE;
        auto multicast = Multicast::create(properties->numDevices, properties->size, shareable);
        if (!multicast) return CUDA_ERROR_OUT_OF_MEMORY;
        *handle = driver().registry.add(multicast)->handle();
        return CUDA_SUCCESS;
    });
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice ordinal) {
    return initialized([&]() -> CUresult {
        auto multicast = find<Multicast>(handle);
        if (!multicast) return CUDA_ERROR_INVALID_VALUE;
        Device* device = device_of(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        return has_multicast(*device) ? multicast->add(*device) : CUDA_ERROR_NOT_SUPPORTED;
    });
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
                            size_t memory_offset, size_t size, unsigned long long flags) {
    return initialized([&]() -> CUresult {
        auto multicast = find<Multicast>(handle);
        auto physical = find<PhysicalMemory>(memory);
        if (!multicast || !physical || flags || !inside(offset, size, multicast->bytes()))
            return CUDA_ERROR_INVALID_VALUE;
        multicast->wait_for_team();
        wait_for_everything();
        auto& mapped = VirtualMemory::get();
        tnr::LockGuard lock(mapped.mutex);
        return bind_part(mapped, *multicast, offset, physical, memory_offset, size);
    });
}

// Memory of pools is not mapped memory here, and cannot move.
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address, size_t size,
                             unsigned long long flags) {
    return initialized([&]() -> CUresult {
        auto multicast = find<Multicast>(handle);
        if (!multicast || flags || !inside(offset, size, multicast->bytes())) return CUDA_ERROR_INVALID_VALUE;
        multicast->wait_for_team();
        wait_for_everything();
        auto& mapped = VirtualMemory::get();
        tnr::LockGuard lock(mapped.mutex);
        auto* found = mapped.find(address);
        if (!found) {
            auto other = driver().addresses.find(address);
            return other && other->type == MemoryType::device && other->owner ? CUDA_ERROR_NOT_SUPPORTED
                                                                              : CUDA_ERROR_INVALID_VALUE;
        }
        auto& [begin, mapping] = *found;
        if (size > mapping.bytes - (address - begin)) return CUDA_ERROR_INVALID_VALUE;
        return bind_part(mapped, *multicast, offset, mapping.memory, mapping.offset + (address - begin), size);
    });
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice ordinal, size_t offset, size_t size) {
    return initialized([&]() -> CUresult {
        auto multicast = find<Multicast>(handle);
        Device* device = device_of(ordinal);
        if (!multicast) return CUDA_ERROR_INVALID_VALUE;
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        if (!inside(offset, size, multicast->bytes())) return CUDA_ERROR_INVALID_VALUE;
        wait_for_everything();
        return multicast->unbind(*device, offset, size);
    });
}

CUresult cuMulticastGetGranularity(size_t* granularity, const CUmulticastObjectProp* properties,
                                   CUmulticastGranularity_flags option) {
    return initialized([&]() -> CUresult {
        bool known = option == CU_MULTICAST_GRANULARITY_MINIMUM || option == CU_MULTICAST_GRANULARITY_RECOMMENDED;
        if (!granularity || !known) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = check_properties(properties)) return error;
        *granularity = multicast_granularity;
        return CUDA_SUCCESS;
    });
}
