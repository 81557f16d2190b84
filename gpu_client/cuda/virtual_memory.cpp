// The program's own use of the virtual memory API: addresses from the session's range, physical memory from the worker.
#include "gpu_client/cuda/virtual_memory.hpp"

#include <map>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/memory_pools.hpp"
#include "gpu_client/cuda/remote_call.hpp"

namespace tnr::cuda {

namespace {

// Lives until the program has released it as often as it obtained it and no mapping is left.
struct Physical {
    uint64_t number = 0;
    uint64_t bytes = 0;
    uint64_t charged = 0;  // to our grant: all of it, unless another process has made it
    CUmemAllocationProp properties{};
    int held = 1, mapped = 0;  // guarded by Mappings::mutex, which clang cannot see from here
};
using Physicals = HandleRegistry<Physical, HandleKind::allocation>;
Physicals& physicals() {
    static auto* all = new Physicals;
    return *all;
}

struct Mapping {
    uint64_t bytes;
    uint64_t allocation;                      // handle
    int device;                               // that the memory is on
    std::map<int, CUmemAccess_flags> access;  // by device; none where there is none
};
struct Mappings {
    Mutex mutex;  // what follows from a change is put into the device's sends() and sent without it
    std::map<uint64_t, Mapping> by_address TNR_GUARDED_BY(mutex);
    std::map<uint64_t, uint64_t> reserved TNR_GUARDED_BY(mutex);  // address → bytes
};
Mappings& mappings() {
    static auto* all = new Mappings;
    return *all;
}

// Memory to give back to its device's grant once the worker knows.
using Freed = std::vector<std::pair<int, uint64_t>>;  // device, bytes

CUresult send_changes(const Freed& freed = {}) TNR_EXCLUDES(mappings().mutex) {
    CUresult result = CUDA_SUCCESS;
    for (auto* device : devices())
        if (auto sent = device->memory->sends().flush(); result == CUDA_SUCCESS) result = sent;
    for (auto& [device, bytes] : freed) find_device(device)->memory->return_grant(bytes);
    return result;
}

// The device whose memory a new reservation will be for; any does, as ranges are per device.
Device* reserving_device() {
    auto* context = contexts().find(current_context_handle());
    return find_device(context ? context->device : 0);
}

// Memory of the host has a granularity, but cuMemCreate makes none: it would have to be in two places at once. NCCL
// asks for the one and takes the other's refusal as a hint to do without.
bool on_host(CUmemLocationType type) {
    return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

CUresult check_properties(const CUmemAllocationProp* properties) {
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (on_host(properties->location.type)) return CUDA_ERROR_NOT_SUPPORTED;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (!find_device(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
    auto others = static_cast<unsigned>(properties->requestedHandleTypes) & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return others == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

// Null for a handle that the program has released.
Physical* find_held(uint64_t handle) TNR_REQUIRES(mappings().mutex) {
    auto* physical = physicals().find(handle);
    return physical && physical->held > 0 ? physical : nullptr;
}

void release_if_unused(uint64_t handle, Physical& physical, Freed& freed) TNR_REQUIRES(mappings().mutex) {
    if (physical.held > 0 || physical.mapped > 0) return;
    find_device(physical.properties.location.id)->memory->sends().put(wire::ReleaseAllocation<>{physical.number});
    freed.emplace_back(physical.properties.location.id, physical.charged);
    physicals().destroy(handle);
}

// The mapping that contains the address.
const std::pair<const uint64_t, Mapping>* find_mapping(uint64_t address) TNR_REQUIRES(mappings().mutex) {
    auto after = mappings().by_address.upper_bound(address);
    if (after == mappings().by_address.begin()) return nullptr;
    auto& found = *std::prev(after);
    return address - found.first < found.second.bytes ? &found : nullptr;
}

// The mappings side by side from `address` on that `bytes` reach into, and how much they cover.
struct Run {
    std::map<uint64_t, Mapping>::iterator first, last;  // [first, last)
    uint64_t covered = 0;
};
Run mappings_from(uint64_t address, uint64_t bytes) TNR_REQUIRES(mappings().mutex) {
    auto& all = mappings().by_address;
    auto found = all.find(address);
    Run run{found, found};
    while (run.last != all.end() && run.last->first == address + run.covered && run.covered < bytes)
        run.covered += (run.last++)->second.bytes;
    return run;
}

// True if all of it is reserved and none of it is mapped.
bool may_be_mapped(uint64_t address, uint64_t bytes) TNR_REQUIRES(mappings().mutex) {
    auto after = mappings().reserved.upper_bound(address);
    if (after == mappings().reserved.begin()) return false;
    auto& [start, length] = *std::prev(after);
    if (address - start > length || bytes > length - (address - start)) return false;
    auto next = mappings().by_address.lower_bound(address);
    bool overlaps = next != mappings().by_address.end() && next->first < address + bytes;
    return !overlaps && !find_mapping(address);
}

uint64_t open_to(const Mapping& mapping) {
    uint64_t devices = 0;
    for (auto& [ordinal, flags] : mapping.access) devices |= uint64_t{1} << ordinal;
    return devices;
}

// A mapping counts as memory for copies and queries when some device may use it.
void note_access(uint64_t address, const Mapping& mapping) TNR_REQUIRES(mappings().mutex) {
    auto& memory = *device_of_address(address)->memory;
    memory.forget_mapping(address, mapping.bytes);
    if (mapping.access.empty()) return;
    auto* context = contexts().find(current_context_handle());
    auto* owner = find_device(mapping.device);
    bool ours = context && context->device == mapping.device;
    memory.note_mapping(address, mapping.bytes, ours ? context->handle : owner->primary_context, open_to(mapping));
}

// The session's device of that number.
Device* device_numbered(const ClientSession* session, uint32_t number) {
    for (auto* device : devices())
        if (device->session.load() == session && device->number == number) return device;
    return nullptr;
}

}  // namespace

CUresult lend_allocation(CUmemGenericAllocationHandle handle, wire::ThingName& name) {
    uint64_t number = 0;
    Device* device = nullptr;
    {
        LockGuard lock(mappings().mutex);
        auto* physical = find_held(handle);
        if (!physical) return CUDA_ERROR_INVALID_VALUE;
        if (!(physical->properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
            return CUDA_ERROR_INVALID_VALUE;
        number = physical->number;
        device = find_device(physical->properties.location.id);
    }
    RemoteCall call(wire::LendAllocation<>{number});
    call.on(*device);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::LendAllocation<>::Reply reply;
    auto result = call.take(reply);
    name = reply.name;
    return result;
}

CUresult borrow_allocation(const wire::ThingName& name, CUmemGenericAllocationHandle& handle, uint64_t& bytes) {
    auto& here = *reserving_device();
    if (auto result = open_session(here); result != CUDA_SUCCESS) return result;
    Physical* made = nullptr;
    handle = physicals().create([&](Physical& physical, uint64_t index, uint64_t) {
        physical = {.number = index + 1, .held = 0};  // nobody's until its facts are known
        made = &physical;
    });
    RemoteCall call(wire::BorrowMemory{made->number, name});
    call.on(here);
    wire::BorrowMemory::Reply reply;
    auto result = call.send();
    if (result == CUDA_SUCCESS) result = call.take(reply);
    if (result != CUDA_SUCCESS) {
        physicals().destroy(handle);
        return result;
    }
    // Memory of a GPU that CUDA_VISIBLE_DEVICES hides counts as memory of one that the program sees.
    auto* device = device_numbered(here.session.load(), reply.device);
    if (!device) device = &here;
    LockGuard lock(mappings().mutex);
    made->bytes = bytes = reply.bytes;
    made->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal};
    made->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    made->held = 1;
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                               CUmemAllocationGranularity_flags) {
    return guarded("cuMemGetAllocationGranularity", [&]() -> CUresult {
        if (!granularity) return CUDA_ERROR_INVALID_VALUE;
        bool host = properties && on_host(properties->location.type);
        if (auto result = check_properties(properties); result != CUDA_SUCCESS && !host) return result;
        *granularity = find_device(host ? 0 : properties->location.id)->description.granularity_bytes;
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
        auto* device = find_device(properties->location.id);
        if (auto result = open_session(*device); result != CUDA_SUCCESS) return result;
        if (bytes % device->memory->granularity() != 0) return CUDA_ERROR_INVALID_VALUE;
        if (bytes > device->description.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
        if (auto result = device->memory->take_grant(bytes); result != CUDA_SUCCESS) return result;
        pools_make_room(device->ordinal);
        Physical* made = nullptr;
        uint64_t handle = physicals().create([&](Physical& physical, uint64_t index, uint64_t) {
            physical = {.number = index + 1, .bytes = bytes, .charged = bytes, .properties = *properties};
            made = &physical;
        });
        RemoteCall call(wire::CreateAllocation<>{made->number, device->number, bytes});
        call.on(*device);
        auto result = call.send();
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
        {
            LockGuard lock(mappings().mutex);
            auto* physical = find_held(handle);
            if (!physical || flags != 0 || bytes == 0 || offset > physical->bytes || bytes > physical->bytes - offset)
                return CUDA_ERROR_INVALID_VALUE;
            if (!may_be_mapped(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
            device_of_address(address)->memory->sends().put(
                wire::MapAllocation<>{address, bytes, offset, physical->number});
            mappings().by_address[address] = {bytes, handle, physical->properties.location.id, {}};
            ++physical->mapped;
        }
        return send_changes();
    });
}

// Whole mappings only, as the driver demands.
CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes) {
    return guarded("cuMemUnmap", [&]() -> CUresult {
        Freed freed;
        {
            LockGuard lock(mappings().mutex);
            auto [first, last, covered] = mappings_from(address, bytes);
            if (bytes == 0 || covered != bytes) return CUDA_ERROR_INVALID_VALUE;
            for (auto mapping = first; mapping != last; ++mapping) {
                device_of_address(address)->memory->sends().put(
                    wire::UnmapAllocation{mapping->first, mapping->second.bytes});
                auto* physical = physicals().find(mapping->second.allocation);
                --physical->mapped;
                release_if_unused(mapping->second.allocation, *physical, freed);
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
        for (size_t i = 0; i < count; ++i)
            if (wanted[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !find_device(wanted[i].location.id))
                return CUDA_ERROR_INVALID_DEVICE;
        {
            LockGuard lock(mappings().mutex);
            auto [first, last, covered] = mappings_from(address, bytes);
            if (covered < bytes) return CUDA_ERROR_INVALID_VALUE;
            for (size_t i = 0; i < count; ++i) {
                int ordinal = wanted[i].location.id;
                device_of_address(address)->memory->sends().put(wire::SetAccess<>{
                    address, bytes, find_device(ordinal)->number, static_cast<uint32_t>(wanted[i].flags)});
                for (auto mapping = first; mapping != last; ++mapping)
                    if (wanted[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
                        mapping->second.access.erase(ordinal);
                    else
                        mapping->second.access[ordinal] = wanted[i].flags;
            }
            for (auto mapping = first; mapping != last; ++mapping) note_access(mapping->first, mapping->second);
        }
        return send_changes();
    });
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
    return guarded("cuMemGetAccess", [&]() -> CUresult {
        if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
        LockGuard lock(mappings().mutex);
        auto* mapping = find_mapping(address);
        if (!mapping) return CUDA_ERROR_INVALID_VALUE;
        auto found = mapping->second.access.find(location->id);
        *flags = found != mapping->second.access.end() ? found->second : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
    return guarded("cuMemGetAllocationPropertiesFromHandle", [&]() -> CUresult {
        LockGuard lock(mappings().mutex);
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
        LockGuard lock(mappings().mutex);
        auto* mapping = find_mapping(address);
        if (!out || !mapping) return CUDA_ERROR_INVALID_VALUE;
        ++physicals().find(mapping->second.allocation)->held;
        *out = mapping->second.allocation;
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
