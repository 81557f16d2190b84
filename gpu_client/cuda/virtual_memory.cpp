// The program's own use of the virtual memory API: addresses from the session's range, physical memory from the worker.
#include <map>
#include <mutex>

#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/remote_call.hpp"

namespace tnr::cuda {

namespace {

// Lives until the program has released it as often as it got it, and no mapping is left.
struct Physical {
    uint64_t number = 0;
    uint64_t bytes = 0;
    CUmemAllocationProp properties{};
    int held = 1, mapped = 0;  // guarded by Mappings::mutex
};
using Physicals = HandleRegistry<Physical, HandleKind::allocation>;
Physicals& physicals() {
    static auto* all = new Physicals;
    return *all;
}

struct Mapping {
    uint64_t bytes;
    uint64_t allocation;  // handle
    unsigned access;      // CUmemAccess_flags of its own device
};
struct Mappings {
    std::mutex mutex;
    std::map<uint64_t, Mapping> by_address;
    std::map<uint64_t, uint64_t> reserved;  // address → bytes
};
Mappings& mappings() {
    static auto* all = new Mappings;
    return *all;
}

// The device whose memory a new reservation will be for; any does, as ranges are per device.
Device* reserving_device() {
    auto* context = contexts().find(current_context_handle());
    return find_device(context ? context->device : 0);
}

CUresult need_session() {
    return session() ? CUDA_SUCCESS : open_session();
}

CUresult check_properties(const CUmemAllocationProp* properties) {
    bool sound = properties && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                 properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    if (!find_device(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
    return properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

// Called with the mappings' lock held: null for a handle that the program has released.
Physical* find_held(uint64_t handle) {
    auto* physical = physicals().find(handle);
    return physical && physical->held > 0 ? physical : nullptr;
}

// Called with the mappings' lock held.
CUresult release_if_unused(uint64_t handle, Physical& physical) {
    if (physical.held > 0 || physical.mapped > 0) return CUDA_SUCCESS;
    RemoteCall call(wire::op_cuMemRelease, wire::CallWay::async_);
    call.in_context(nullptr);
    call.put(physical.number);
    auto result = call.send();
    physicals().destroy(handle);
    return result;
}

CUresult send_unmap(uint64_t address, uint64_t bytes) {
    RemoteCall call(wire::op_cuMemUnmap, wire::CallWay::async_);
    call.in_context(nullptr);
    call.put(address);
    call.put(bytes);
    return call.send();
}

}  // namespace

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                               CUmemAllocationGranularity_flags) {
    return guarded("cuMemGetAllocationGranularity", [&]() -> CUresult {
        if (!granularity) return CUDA_ERROR_INVALID_VALUE;
        if (auto result = check_properties(properties); result != CUDA_SUCCESS) return result;
        *granularity = find_device(properties->location.id)->description.granularity_bytes;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                     unsigned long long flags) {
    return guarded("cuMemAddressReserve", [&]() -> CUresult {
        if (auto result = need_session(); result != CUDA_SUCCESS) return result;
        auto& memory = *reserving_device()->memory;
        bool sound =
            out && bytes != 0 && bytes % memory.granularity() == 0 && flags == 0 && (alignment & (alignment - 1)) == 0;
        if (!sound) return CUDA_ERROR_INVALID_VALUE;
        uint64_t address = memory.reserve(bytes, alignment, wanted);
        if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
        std::lock_guard lock(mappings().mutex);
        mappings().reserved[address] = bytes;
        *out = address;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    return guarded("cuMemAddressFree", [&]() -> CUresult {
        std::lock_guard lock(mappings().mutex);
        auto& all = mappings();
        auto found = all.reserved.find(address);
        auto mapped = all.by_address.lower_bound(address);
        bool in_use = mapped != all.by_address.end() && mapped->first < address + bytes;
        if (found == all.reserved.end() || found->second != bytes || in_use) return CUDA_ERROR_INVALID_VALUE;
        all.reserved.erase(found);
        device_of_address(address)->memory->unreserve(address, bytes);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* properties,
                             unsigned long long flags) {
    return guarded("cuMemCreate", [&]() -> CUresult {
        if (!out || bytes == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (auto result = check_properties(properties); result != CUDA_SUCCESS) return result;
        if (auto result = need_session(); result != CUDA_SUCCESS) return result;
        auto* device = find_device(properties->location.id);
        if (bytes % device->memory->granularity() != 0) return CUDA_ERROR_INVALID_VALUE;
        Physical* made = nullptr;
        uint64_t handle = physicals().create([&](Physical& physical, uint64_t index, uint64_t) {
            physical = {.number = index + 1, .bytes = bytes, .properties = *properties};
            made = &physical;
        });
        RemoteCall call(wire::op_cuMemCreate, wire::CallWay::sync);
        call.in_context(nullptr);
        call.put(made->number);
        call.put(static_cast<uint32_t>(device->on_wire));
        call.put(uint64_t{bytes});
        auto result = call.send();
        if (result == CUDA_SUCCESS)
            *out = handle;
        else
            physicals().destroy(handle);
        return result;
    });
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
    return guarded("cuMemRelease", [&]() -> CUresult {
        std::lock_guard lock(mappings().mutex);
        auto* physical = find_held(handle);
        if (!physical) return CUDA_ERROR_INVALID_VALUE;
        --physical->held;
        return release_if_unused(handle, *physical);
    });
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
    return guarded("cuMemMap", [&]() -> CUresult {
        std::lock_guard lock(mappings().mutex);
        auto* physical = find_held(handle);
        if (!physical || flags != 0 || bytes == 0 || offset > physical->bytes || bytes > physical->bytes - offset)
            return CUDA_ERROR_INVALID_VALUE;
        auto& all = mappings();
        auto after = all.reserved.upper_bound(address);
        if (after == all.reserved.begin()) return CUDA_ERROR_INVALID_VALUE;
        auto& [start, length] = *std::prev(after);
        if (address - start > length || bytes > length - (address - start)) return CUDA_ERROR_INVALID_VALUE;
        auto next = all.by_address.lower_bound(address);
        bool overlaps = next != all.by_address.end() && next->first < address + bytes;
        if (next != all.by_address.begin())
            overlaps |= std::prev(next)->first + std::prev(next)->second.bytes > address;
        if (overlaps) return CUDA_ERROR_INVALID_VALUE;
        RemoteCall call(wire::op_cuMemMap, wire::CallWay::async_);
        call.in_context(nullptr);
        call.put(uint64_t{address});
        call.put(uint64_t{bytes});
        call.put(uint64_t{offset});
        call.put(physical->number);
        if (auto result = call.send(); result != CUDA_SUCCESS) return result;
        all.by_address[address] = {bytes, handle, CU_MEM_ACCESS_FLAGS_PROT_NONE};
        ++physical->mapped;
        return CUDA_SUCCESS;
    });
}

// Whole mappings only, as the driver demands.
CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes) {
    return guarded("cuMemUnmap", [&]() -> CUresult {
        std::lock_guard lock(mappings().mutex);
        auto& all = mappings().by_address;
        auto first = all.find(address), last = first;
        uint64_t covered = 0;
        while (last != all.end() && last->first == address + covered && covered < bytes)
            covered += (last++)->second.bytes;
        if (first == all.end() || covered != bytes) return CUDA_ERROR_INVALID_VALUE;
        for (auto mapping = first; mapping != last; ++mapping) {
            if (auto result = send_unmap(mapping->first, mapping->second.bytes); result != CUDA_SUCCESS) return result;
            auto* physical = physicals().find(mapping->second.allocation);
            --physical->mapped;
            if (auto result = release_if_unused(mapping->second.allocation, *physical); result != CUDA_SUCCESS)
                return result;
        }
        all.erase(first, last);
        device_of_address(address)->memory->forget_mapping(address, bytes);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* wanted, size_t count) {
    return guarded("cuMemSetAccess", [&]() -> CUresult {
        if (!wanted || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
        std::lock_guard lock(mappings().mutex);
        auto& all = mappings().by_address;
        uint64_t covered = 0;
        for (auto mapping = all.find(address); mapping != all.end() && mapping->first == address + covered; ++mapping)
            covered += mapping->second.bytes;
        if (covered < bytes) return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < count; ++i) {
            auto* device = find_device(wanted[i].location.id);
            if (wanted[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device) return CUDA_ERROR_INVALID_DEVICE;
            RemoteCall call(wire::op_cuMemSetAccess, wire::CallWay::async_);
            call.in_context(nullptr);
            call.put(uint64_t{address});
            call.put(uint64_t{bytes});
            call.put(static_cast<uint32_t>(device->on_wire));
            call.put(static_cast<uint32_t>(wanted[i].flags));
            if (auto result = call.send(); result != CUDA_SUCCESS) return result;
            if (device != device_of_address(address)) continue;
            for (auto mapping = all.find(address); mapping != all.end() && mapping->first < address + bytes;
                 ++mapping) {
                mapping->second.access = wanted[i].flags;
                bool usable = wanted[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
                device->memory->forget_mapping(mapping->first, mapping->second.bytes);
                if (usable)
                    device->memory->note_mapping(mapping->first, mapping->second.bytes, current_context_handle());
            }
        }
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
    return guarded("cuMemGetAccess", [&]() -> CUresult {
        if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
        std::lock_guard lock(mappings().mutex);
        auto after = mappings().by_address.upper_bound(address);
        if (after == mappings().by_address.begin()) return CUDA_ERROR_INVALID_VALUE;
        auto& [start, mapping] = *std::prev(after);
        if (address - start >= mapping.bytes) return CUDA_ERROR_INVALID_VALUE;
        auto* device = device_of_address(address);
        *flags = device && device->ordinal == location->id ? mapping.access : unsigned{CU_MEM_ACCESS_FLAGS_PROT_NONE};
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
    return guarded("cuMemGetAllocationPropertiesFromHandle", [&]() -> CUresult {
        std::lock_guard lock(mappings().mutex);
        auto* physical = find_held(handle);
        if (!out || !physical) return CUDA_ERROR_INVALID_VALUE;
        *out = physical->properties;
        return CUDA_SUCCESS;
    });
}

// The handle of what is mapped at the address, to be released once more.
CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* pointer) {
    return guarded("cuMemRetainAllocationHandle", [&]() -> CUresult {
        auto address = reinterpret_cast<uint64_t>(pointer);
        std::lock_guard lock(mappings().mutex);
        auto after = mappings().by_address.upper_bound(address);
        if (!out || after == mappings().by_address.begin()) return CUDA_ERROR_INVALID_VALUE;
        auto& [start, mapping] = *std::prev(after);
        if (address - start >= mapping.bytes) return CUDA_ERROR_INVALID_VALUE;
        ++physicals().find(mapping.allocation)->held;
        *out = mapping.allocation;
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
