// The calls of the virtual memory API: addresses from the session's range, physical memory from the worker.
#include <algorithm>
#include <span>

#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_mappings.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/memory_pools.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/virtual_memory.hpp"
#include "gpu_client/protocol/array_records.hpp"
#include "gpu_client/protocol/memory_places.hpp"

using namespace tnr;
using namespace tnr::cuda;

namespace {

CUresult check_properties(const CUmemAllocationProp* properties) {
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (is_host_location(properties->location.type)) return check_host_memory(*properties);
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (!find_device(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
    auto others = static_cast<unsigned>(properties->requestedHandleTypes) & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return others == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

bool is_for_host(const CUmemAccessDesc& wanted) {
    return is_host_location(wanted.location.type);
}

bool makes_sense(const CUmemAccessDesc& wanted) {
    const bool on_device = wanted.location.type == CU_MEM_LOCATION_TYPE_DEVICE && find_device(wanted.location.id);
    return is_access(wanted.flags) && (on_device || is_for_host(wanted));
}

// The mapping that waits is there now, or gone.
CUresult end_wait(uint64_t address, CUresult result) {
    Freed freed;
    {
        LockGuard lock(mappings().mutex);
        auto mapping = mappings().by_address.find(address);
        mapping->second.waits = false;
        if (result != CUDA_SUCCESS) {
            if (mapping->second.of_host)
                device_of_address(address)->memory->sends().put(wire::UnmapAllocation{address, mapping->second.bytes});
            unuse(mapping->second.allocation, freed);
            mappings().by_address.erase(mapping);
        } else {
            note_access(address, mapping->second);
        }
    }
    (void)send_changes(freed);
    return result;
}

// A multicast object is mapped once its team is complete.
CUresult wait_for_team(const wire::MapAllocation<>& record) {
    RemoteCall call(record, wire::CallWay::sync);
    call.on(*device_of_address(record.address));
    return end_wait(record.address, call.send());
}

// Ends those of the host's memory in there. They are mapped still: whoever unmaps them goes on.
void end_host_mappings(uint64_t address, uint64_t bytes) {
    std::vector<uint64_t> ended;
    {
        LockGuard lock(mappings().mutex);
        auto [first, last, covered] = mappings_from(address, bytes);
        for (auto mapping = first; mapping != last && covered == bytes; ++mapping)
            if (mapping->second.of_host) ended.push_back(mapping->first);
    }
    for (auto at : ended) end_host_mapping(at);
}

// Of the host's memory the device that it is on moves the program's pages there, whatever the program lets it do, and the
// program always has it.
void set_access(std::pair<const uint64_t, Mapping>& mapped, const CUmemAccessDesc& wanted)
    TNR_REQUIRES(mappings().mutex) {
    auto& [address, mapping] = mapped;
    const int ordinal = wanted.location.id;
    if (is_host_location(wanted.location.type)) {
        mapping.hosts = wanted.flags;
        return;
    }
    if (!mapping.multicast && !(mapping.of_host && ordinal == mapping.device))
        device_of_address(address)->memory->sends().put(wire::SetAccess<>{
            address, mapping.bytes, find_device(ordinal)->number, static_cast<uint32_t>(wanted.flags)});
    if (wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
        mapping.access.erase(ordinal);
    else
        mapping.access[ordinal] = wanted.flags;
}

// Only the devices of its team may use a multicast object. The worker's driver knows them: so this waits for its answer.
CUresult set_access_waiting(uint64_t address, uint64_t bytes, const CUmemAccessDesc& wanted) {
    if (auto result = send_changes(); result != CUDA_SUCCESS) return result;
    RemoteCall call(
        wire::SetAccess<>{address, bytes, find_device(wanted.location.id)->number, static_cast<uint32_t>(wanted.flags)},
        wire::CallWay::sync);
    call.on(*device_of_address(address));
    return call.send();
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                               CUmemAllocationGranularity_flags which) {
    return guarded("cuMemGetAllocationGranularity", [&]() -> CUresult {
        bool known = which == CU_MEM_ALLOC_GRANULARITY_MINIMUM || which == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        if (!granularity || !known) return CUDA_ERROR_INVALID_VALUE;
        bool host = properties && is_host_location(properties->location.type);
        auto result = check_properties(properties);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_DEVICE && !host) return result;
        *granularity = find_device(result == CUDA_SUCCESS ? properties->location.id : 0)->description.granularity_bytes;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                     unsigned long long flags) {
    return guarded("cuMemAddressReserve", [&]() -> CUresult {
        auto& device = *reserving_device();
        if (auto result = open_session(device); result != CUDA_SUCCESS) return result;
        auto& memory = *device.memory;
        bool sound =
            out && bytes != 0 && bytes % memory.granularity() == 0 && flags == 0 && (alignment & (alignment - 1)) == 0;
        if (!sound) return CUDA_ERROR_INVALID_VALUE;
        uint64_t address = memory.reserve(bytes, alignment, wanted);
        if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
        LockGuard lock(mappings().mutex);
        mappings().reserved[address] = bytes;
        *out = address;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    return guarded("cuMemAddressFree", [&]() -> CUresult {
        {
            LockGuard lock(mappings().mutex);
            auto found = mappings().reserved.find(address);
            auto mapped = mappings().by_address.lower_bound(address);
            bool in_use = mapped != mappings().by_address.end() && mapped->first < address + bytes;
            if (found == mappings().reserved.end() || found->second != bytes || in_use) return CUDA_ERROR_INVALID_VALUE;
            mappings().reserved.erase(found);
        }
        auto result = send_changes();  // nothing is mapped there any more before the addresses are used again
        device_of_address(address)->memory->unreserve(address, bytes);
        return result;
    });
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* properties,
                             unsigned long long flags) {
    return guarded("cuMemCreate", [&]() -> CUresult {
        if (!out || bytes == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (auto result = check_properties(properties); result != CUDA_SUCCESS) return result;
        const bool of_host = is_host_location(properties->location.type);
        auto* device = of_host ? reserving_device() : find_device(properties->location.id);
        if (auto result = open_session(*device); result != CUDA_SUCCESS) return result;
        if (bytes % device->memory->granularity() != 0) return CUDA_ERROR_INVALID_VALUE;
        if (bytes > device->description.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
        if (auto result = device->memory->take_grant(bytes); result != CUDA_SUCCESS) return result;
        pools_make_room(device->ordinal);
        Physical* made = nullptr;
        uint64_t handle = physicals().create([&](Physical& physical, uint64_t index, uint64_t) {
            physical = {.number = index + 1,
                        .bytes = bytes,
                        .charged = bytes,
                        .device = device->ordinal,
                        .properties = *properties,
                        .of_host = of_host};
            made = &physical;
        });
        auto send = [&](const auto& record) {
            RemoteCall call(record);
            call.on(*device);
            return call.send();
        };
        auto result = is_tile_pool(*properties) ? send(wire::CreateTilePool<>{made->number, device->number, bytes})
                                                : send(wire::CreateAllocation<>{made->number, device->number, bytes});
        if (result == CUDA_SUCCESS) {
            *out = handle;
            return result;
        }
        physicals().destroy(handle);
        device->memory->return_grant(bytes);
        return result;
    });
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
    return guarded("cuMemRelease", [&]() -> CUresult {
        Freed freed;
        {
            LockGuard lock(mappings().mutex);
            auto* physical = find_held(handle);
            if (!physical) return CUDA_ERROR_INVALID_VALUE;
            --physical->held;
            release_if_unused(handle, *physical, freed);
        }
        return send_changes(freed);
    });
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
    return guarded("cuMemMap", [&]() -> CUresult {
        wire::MapAllocation<> record{address, bytes, offset, 0};
        bool multicast = false, of_host = false;
        Context* context = nullptr;  // only the host's memory needs one
        const auto no_context = current_context(context);
        {
            LockGuard lock(mappings().mutex);
            auto* physical = find_held(handle);
            if (!physical || flags != 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
            auto* device = device_of_address(address);
            const uint64_t granularity = device ? device->memory->granularity() : 1;
            if ((address | bytes | offset) % granularity != 0) return CUDA_ERROR_NOT_SUPPORTED;
            if (offset > physical->bytes || bytes > physical->bytes - offset)
                return physical->multicast ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
            if (!may_be_mapped(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
            record.allocation = physical->number;
            multicast = physical->multicast;
            of_host = physical->of_host;
            if (of_host && no_context != CUDA_SUCCESS) return no_context;
            if (of_host && physical->used > 0) {
                log_once(LogLevel::warning,
                         "memory that cuMemCreate makes in the host's memory has one address at a time");
                return CUDA_ERROR_NOT_SUPPORTED;
            }
            if (!multicast) device->memory->sends().put(record);
            if (of_host)
                device->memory->sends().put(wire::SetAccess<>{address, bytes, find_device(physical->device)->number,
                                                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
            mappings().by_address[address] = {.bytes = bytes,
                                              .allocation = handle,
                                              .offset = offset,
                                              .device = physical->device,
                                              .of_host = of_host,
                                              .multicast = multicast,
                                              .waits = multicast || of_host};
            ++physical->used;
        }
        auto sent = send_changes();
        if (multicast) return wait_for_team(record);
        if (of_host && sent == CUDA_SUCCESS) sent = begin_host_mapping(*context, address, bytes);
        return of_host ? end_wait(address, sent) : sent;
    });
}

// Whole mappings only, as the driver demands.
CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes) {
    return guarded("cuMemUnmap", [&]() -> CUresult {
        end_host_mappings(address, bytes);
        Freed freed;
        {
            LockGuard lock(mappings().mutex);
            auto [first, last, covered] = mappings_from(address, bytes);
            if (bytes != 0 && covered == 0 && may_be_mapped(address, bytes)) return CUDA_SUCCESS;  // nothing is
            if (bytes == 0 || covered != bytes) return CUDA_ERROR_INVALID_VALUE;
            for (auto mapping = first; mapping != last; ++mapping) {
                device_of_address(address)->memory->sends().put(
                    wire::UnmapAllocation{mapping->first, mapping->second.bytes});
                unuse(mapping->second.allocation, freed);
            }
            mappings().by_address.erase(first, last);
            device_of_address(address)->memory->forget_mapping(address, bytes);
        }
        return send_changes(freed);
    });
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* wanted, size_t count) {
    return guarded("cuMemSetAccess", [&]() -> CUresult {
        if (!wanted || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
        const std::span all(wanted, count);
        if (!std::all_of(all.begin(), all.end(), makes_sense)) return CUDA_ERROR_INVALID_VALUE;
        bool multicast = false;
        {
            LockGuard lock(mappings().mutex);
            auto [first, last, covered] = mappings_from(address, bytes);
            if (covered != bytes) return CUDA_ERROR_INVALID_VALUE;  // whole mappings only
            multicast = std::any_of(first, last, [](auto& mapping) { return mapping.second.multicast; });
            const bool only_hosts = std::all_of(first, last, [](auto& mapping) { return mapping.second.of_host; });
            if (!only_hosts && std::any_of(all.begin(), all.end(), is_for_host)) return CUDA_ERROR_INVALID_VALUE;
        }
        for (size_t i = 0; multicast && i < count; ++i)
            if (auto result = set_access_waiting(address, bytes, wanted[i]); result != CUDA_SUCCESS) return result;
        {
            LockGuard lock(mappings().mutex);
            auto [first, last, covered] = mappings_from(address, bytes);
            if (covered != bytes) return CUDA_ERROR_INVALID_VALUE;  // whole mappings only
            for (auto mapping = first; mapping != last; ++mapping) {
                for (auto& one : all) set_access(*mapping, one);
                note_access(mapping->first, mapping->second);
            }
        }
        return send_changes();
    });
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
    return guarded("cuMemGetAccess", [&]() -> CUresult {
        if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
        LockGuard lock(mappings().mutex);
        auto* mapping = find_mapping(address);
        if (!mapping) return CUDA_ERROR_INVALID_VALUE;
        if (mapping->second.of_host && is_host_location(location->type)) {
            *flags = mapping->second.hosts;
            return CUDA_SUCCESS;
        }
        if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
        auto found = mapping->second.access.find(location->id);
        *flags = found != mapping->second.access.end() ? found->second : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
    return guarded("cuMemGetAllocationPropertiesFromHandle", [&]() -> CUresult {
        LockGuard lock(mappings().mutex);
        auto* physical = find_held(handle);
        if (!out || !physical || physical->multicast) return CUDA_ERROR_INVALID_VALUE;
        *out = physical->properties;
        return CUDA_SUCCESS;
    });
}

// The handle of what is mapped at the address, to be released once more.
CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* pointer) {
    return guarded("cuMemRetainAllocationHandle", [&]() -> CUresult {
        auto address = reinterpret_cast<uint64_t>(pointer);
        LockGuard lock(mappings().mutex);
        auto* mapping = find_mapping(address);
        if (!out || !mapping) return CUDA_ERROR_INVALID_VALUE;
        ++physicals().find(mapping->second.allocation)->held;
        *out = mapping->second.allocation;
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
