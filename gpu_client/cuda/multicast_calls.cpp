// Multicast objects: address ranges whose every byte is memory on each device of a team. A handle of one is used as that of
// memory is (virtual_memory_calls.cpp maps and releases it). Memory lives as long as it is bound: until it is unbound, or
// the object has gone.
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/virtual_memory.hpp"
#include "gpu_client/protocol/multicast_records.hpp"

using namespace tnr;
using namespace tnr::cuda;

namespace {

CUresult check_properties(const CUmulticastObjectProp* properties) {
    if (!properties || properties->flags != 0) return CUDA_ERROR_INVALID_VALUE;
    auto others = properties->handleTypes & ~uint64_t{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    return others == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

// A multicast object as a call needs it: of which session, under which number.
struct Object {
    uint64_t number = 0;
    Device* device = nullptr;  // one of the session's
};
CUresult find_object(uint64_t handle, Object& object) TNR_REQUIRES(mappings().mutex) {
    auto* physical = find_held(handle);
    if (!physical || !physical->multicast) return CUDA_ERROR_INVALID_VALUE;
    object = {physical->number, find_device(physical->device)};
    return CUDA_SUCCESS;
}

// A team is of one server's GPUs.
bool together(const Device& one, const Device& other) {
    return one.session.load() == other.session.load();
}

// [offset, offset + bytes) of the object is to be memory on the memory's device. `number` is the memory's. Both live on
// until this is done: they count as used.
CUresult bind_and_wait(uint64_t handle, const Object& object, Binding binding, wire::BindMulticast<> record) {
    auto result = send_changes();  // the memory is there before it is bound
    if (result == CUDA_SUCCESS) {
        RemoteCall call(record);
        call.on(*object.device);
        result = call.send();
    }
    Freed freed;
    {
        LockGuard lock(mappings().mutex);
        if (result == CUDA_SUCCESS)
            physicals().find(handle)->bindings.push_back(binding);
        else
            unuse(binding.memory, freed);
        unuse(handle, freed);
    }
    (void)send_changes(freed);
    return result;
}

// True if it is a part of what is `whole` long.
bool inside(uint64_t offset, uint64_t bytes, uint64_t whole) {
    return bytes != 0 && offset <= whole && bytes <= whole - offset;
}

// What a bind names, under the lock; both are used from then on.
struct Wish {
    Object object;
    Binding binding{};
    wire::BindMulticast<> record;
};
CUresult take_wish(uint64_t handle, uint64_t offset, uint64_t memory_handle, uint64_t memory_offset, uint64_t bytes,
                   Wish& wish) TNR_REQUIRES(mappings().mutex) {
    if (auto result = find_object(handle, wish.object); result != CUDA_SUCCESS) return result;
    auto *object = physicals().find(handle), *memory = physicals().find(memory_handle);
    if (!memory || memory->multicast || memory->of_host || !inside(offset, bytes, object->bytes) ||
        !inside(memory_offset, bytes, memory->bytes))
        return CUDA_ERROR_INVALID_VALUE;
    auto* device = find_device(memory->device);
    if (!together(*wish.object.device, *device)) return CUDA_ERROR_INVALID_DEVICE;
    ++object->used;
    ++memory->used;
    wish.binding = {device->ordinal, offset, bytes, memory_handle};
    wish.record = {wish.object.number, offset, memory->number, memory_offset, bytes};
    return CUDA_SUCCESS;
}

}  // namespace

namespace tnr::cuda {
CUresult check_cuMulticastGetGranularity(size_t*, const CUmulticastObjectProp* properties,
                                         CUmulticastGranularity_flags) {
    return check_properties(properties);
}
}  // namespace tnr::cuda

extern "C" {

CUresult CUDAAPI cuMulticastCreate(CUmemGenericAllocationHandle* out, const CUmulticastObjectProp* properties) {
    return guarded("cuMulticastCreate", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        if (auto result = check_properties(properties); result != CUDA_SUCCESS) return result;
        auto& device = *reserving_device();
        if (auto result = open_session(device); result != CUDA_SUCCESS) return result;
        uint64_t number = 0;
        uint64_t handle = physicals().create([&](Physical& physical, uint64_t index, uint64_t) {
            physical = {};
            physical.number = number = index + 1;
            physical.bytes = properties->size;
            physical.device = device.ordinal;
            physical.properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(properties->handleTypes);
            physical.multicast = true;
        });
        RemoteCall call(
            wire::CreateMulticast{number, properties->numDevices, properties->size, properties->handleTypes});
        call.on(device);
        auto result = call.send();
        if (result == CUDA_SUCCESS)
            *out = handle;
        else
            physicals().destroy(handle);
        return result;
    });
}

CUresult CUDAAPI cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice ordinal) {
    return guarded("cuMulticastAddDevice", [&]() -> CUresult {
        auto* device = find_device(ordinal);
        Object object;
        {
            LockGuard lock(mappings().mutex);
            if (auto result = find_object(handle, object); result != CUDA_SUCCESS) return result;
        }
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        if (auto result = open_session(*device); result != CUDA_SUCCESS) return result;
        if (!together(*object.device, *device)) return CUDA_ERROR_INVALID_DEVICE;
        RemoteCall call(wire::AddToMulticast<>{object.number, device->number});
        call.on(*device);
        return call.send();
    });
}

CUresult CUDAAPI cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                                    CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                                    unsigned long long flags) {
    return guarded("cuMulticastBindMem", [&]() -> CUresult {
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        Wish wish;
        {
            LockGuard lock(mappings().mutex);
            if (!find_held(memory)) return CUDA_ERROR_INVALID_VALUE;
            auto result = take_wish(handle, offset, memory, memory_offset, bytes, wish);
            if (result != CUDA_SUCCESS) return result;
        }
        return bind_and_wait(handle, wish.object, wish.binding, wish.record);
    });
}

// What is mapped there is bound; that its handle may have been released is no matter. Memory of cuMemAlloc and of pools
// is part of larger pieces of ours.
CUresult CUDAAPI cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address,
                                     size_t bytes, unsigned long long flags) {
    return guarded("cuMulticastBindAddr", [&]() -> CUresult {
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        Wish wish;
        {
            LockGuard lock(mappings().mutex);
            auto* mapped = find_mapping(address);
            if (!mapped) {
                Allocation found;
                bool of_pool = find_allocation(address, found) && found.pool != 0;
                return of_pool ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
            }
            auto& [begin, mapping] = *mapped;
            if (!inside(address - begin, bytes, mapping.bytes)) return CUDA_ERROR_INVALID_VALUE;
            auto result =
                take_wish(handle, offset, mapping.allocation, mapping.offset + (address - begin), bytes, wish);
            if (result != CUDA_SUCCESS) return result;
        }
        return bind_and_wait(handle, wish.object, wish.binding, wish.record);
    });
}

CUresult CUDAAPI cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice ordinal, size_t offset, size_t bytes) {
    return guarded("cuMulticastUnbind", [&]() -> CUresult {
        auto* device = find_device(ordinal);
        Object object;
        {
            LockGuard lock(mappings().mutex);
            if (auto result = find_object(handle, object); result != CUDA_SUCCESS) return result;
        }
        if (!device || !together(*object.device, *device)) return CUDA_ERROR_INVALID_DEVICE;
        RemoteCall call(wire::UnbindMulticast<>{object.number, device->number, offset, bytes});
        call.on(*device);
        if (auto result = call.send(); result != CUDA_SUCCESS) return result;
        Freed freed;
        {
            LockGuard lock(mappings().mutex);
            if (auto* physical = physicals().find(handle)) forget_bindings(*physical, ordinal, offset, bytes, freed);
        }
        return send_changes(freed);
    });
}

}  // extern "C"
