// The virtual memory API: addresses and memory are taken separately and put together by mapping.
// The same memory can be mapped at several addresses, and in several processes.
#include "gpu_server/emulated_gpu/driver/virtual_memory.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "api_client/base/numa.hpp"
#include "gpu_client/protocol/memory_places.hpp"
#include "gpu_server/emulated_gpu/driver/pool.hpp"

using namespace tnr::emulated;

VirtualMemory& VirtualMemory::get() {
    static VirtualMemory& instance = *new VirtualMemory;
    return instance;
}

bool VirtualMemory::within_reservation(uint64_t address, uint64_t size) const {
    auto next = reserved.upper_bound(address);
    if (next == reserved.begin()) return false;
    auto [begin, bytes] = *std::prev(next);
    return address - begin <= bytes && size <= bytes - (address - begin);
}

bool VirtualMemory::any_mapping(uint64_t address, uint64_t size) const {
    auto next = mapped.lower_bound(address + size);
    if (next == mapped.begin()) return false;
    auto& [begin, mapping] = *std::prev(next);
    return begin + mapping.bytes > address;
}

bool VirtualMemory::exactly_mapped(uint64_t address, uint64_t size) const {
    uint64_t at = address;
    for (auto it = mapped.find(address); it != mapped.end() && it->first == at && at < address + size; ++it)
        at += it->second.bytes;
    return at == address + size;
}

const std::pair<const uint64_t, Mapping>* VirtualMemory::find(uint64_t address) const {
    auto next = mapped.upper_bound(address);
    if (next == mapped.begin()) return nullptr;
    auto& found = *std::prev(next);
    return address - found.first < found.second.bytes ? &found : nullptr;
}

static void* show(const PhysicalMemory& memory, uint64_t offset, uint64_t address, uint64_t size, int protection) {
    return mmap(pointer(address), size, protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, memory.fd(),
                memory.offset() + static_cast<int64_t>(offset));
}

void VirtualMemory::remap(const PhysicalMemory& memory) {
    for (auto& [begin, mapping] : mapped) {
        if (mapping.memory.get() != &memory) continue;
        auto allocation = driver().addresses.find(begin);
        bool open = allocation && allocation->access != 0;
        (void)show(memory, mapping.offset, begin, mapping.bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
    }
}

void tnr::emulated::wait_for_everything() {
    for (auto& device : driver().devices)
        if (device->primary->alive()) device->primary->synchronize();
    if (Context* context = current_context(); context && context->alive()) context->synchronize();
}

namespace {

bool aligned(uint64_t value) {
    return value % physical_granularity == 0;
}

CUresult check_location(const CUmemLocation& location) {
    if (tnr::is_host_location(location.type)) return CUDA_SUCCESS;
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    return device_of(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// Who may use a mapping: a bit for each device, and one for the program.
constexpr uint64_t for_host = uint64_t{1} << 63;
uint64_t access_bit(const CUmemLocation& location) {
    return tnr::is_host_location(location.type) ? for_host : uint64_t{1} << location.id;
}

CUresult check_properties(const CUmemAllocationProp* properties) {
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    auto others = static_cast<unsigned>(properties->requestedHandleTypes) & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (others != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
    const auto& location = properties->location;
    if (location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && !tnr::is_numa_node(location.id))
        return CUDA_ERROR_INVALID_VALUE;
    return check_location(location);
}

// Takes away one of the references that a program has by its handle.
template <class T>
bool release(CUmemGenericAllocationHandle handle) {
    auto object = find<T>(handle);
    if (object && --object->references == 0) driver().registry.remove(handle);
    return object != nullptr;
}

// A released handle comes back to life under a new number.
template <class T>
CUmemGenericAllocationHandle retain(const std::shared_ptr<T>& object) {
    if (find<T>(object->handle()))
        ++object->references;
    else {
        object->references = 1;
        driver().registry.add(object);
    }
    return object->handle();
}

}  // namespace

CUresult cuMemGetAllocationGranularity(size_t* size, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
    return initialized([&]() -> CUresult {
        if (!size || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
            return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = check_properties(properties); error && error != CUDA_ERROR_INVALID_DEVICE) return error;
        *size = physical_granularity;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr wish,
                             unsigned long long flags) {
    return initialized([&]() -> CUresult {
        if (!address || size == 0 || !aligned(size) || flags) return CUDA_ERROR_INVALID_VALUE;
        if (alignment & (alignment - 1)) return CUDA_ERROR_INVALID_VALUE;
        alignment = std::max<size_t>(alignment, physical_granularity);
        uint64_t bytes = 0;
        if (__builtin_add_overflow(size, alignment, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
        // The wish is a hint; MAP_FIXED_NOREPLACE takes it only where nothing is.
        constexpr int flags_any = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        uint64_t begin = 0;
        if (wish && wish % alignment == 0) {
            void* there = mmap(pointer(wish), size, PROT_NONE, flags_any | MAP_FIXED_NOREPLACE, -1, 0);
            if (there == pointer(wish))
                begin = wish;
            else if (there != MAP_FAILED)
                munmap(there, size);
        }
        if (!begin) {
            void* range = mmap(nullptr, bytes, PROT_NONE, flags_any, -1, 0);
            if (range == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
            begin = (number(range) + alignment - 1) / alignment * alignment;
            if (begin > number(range)) munmap(range, begin - number(range));
            uint64_t behind = number(range) + bytes - (begin + size);
            if (behind) munmap(pointer(begin + size), behind);
        }
        VirtualMemory& memory = VirtualMemory::get();
        tnr::LockGuard lock(memory.mutex);
        memory.reserved.emplace(begin, size);
        *address = begin;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
    return initialized([&]() -> CUresult {
        VirtualMemory& memory = VirtualMemory::get();
        tnr::LockGuard lock(memory.mutex);
        auto found = memory.reserved.find(address);
        if (found == memory.reserved.end() || found->second != size || memory.any_mapping(address, size))
            return CUDA_ERROR_INVALID_VALUE;
        munmap(pointer(address), size);
        memory.reserved.erase(found);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
    return initialized([&]() -> CUresult {
        if (!handle || size == 0 || !aligned(size) || flags) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = check_properties(properties)) return error;
        // What is the host's takes memory of a GPU all the same: the program can reach that here.
        const bool of_host = tnr::is_host_location(properties->location.type);
        if (of_host && properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
        Device& device = *device_of(of_host ? 0 : properties->location.id);
        if (!charge(device, size)) return CUDA_ERROR_OUT_OF_MEMORY;
        std::shared_ptr<PhysicalMemory> memory = PhysicalMemory::create(device, size, *properties);
        if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
        driver().registry.add(memory);
        *handle = memory->handle();
        return CUDA_SUCCESS;
    });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    return initialized([&]() -> CUresult {
        bool released = release<PhysicalMemory>(handle) || release<Multicast>(handle);
        return released ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
    return initialized([&]() -> CUresult {
        if (!handle) return CUDA_ERROR_INVALID_VALUE;
        VirtualMemory& virtual_memory = VirtualMemory::get();
        tnr::LockGuard lock(virtual_memory.mutex);
        auto* found = virtual_memory.find(number(address));
        if (!found) return CUDA_ERROR_INVALID_VALUE;
        auto& mapping = found->second;
        *handle = mapping.memory ? retain(mapping.memory) : retain(mapping.multicast);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
    return initialized([&]() -> CUresult {
        auto memory = find<PhysicalMemory>(handle);
        if (!memory || !properties) return CUDA_ERROR_INVALID_VALUE;
        *properties = memory->properties;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    return initialized([&]() -> CUresult {
        if (flags || size == 0) return CUDA_ERROR_INVALID_VALUE;
        if (!aligned(size) || !aligned(offset)) return CUDA_ERROR_NOT_SUPPORTED;
        auto physical = find<PhysicalMemory>(handle);
        auto multicast = find<Multicast>(handle);
        if (!physical && !multicast) return CUDA_ERROR_INVALID_VALUE;
        uint64_t bytes = physical ? physical->bytes : multicast->bytes();
        if (offset > bytes || size > bytes - offset)
            return physical ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
        if (multicast) multicast->wait_for_team();
        VirtualMemory& memory = VirtualMemory::get();
        tnr::LockGuard lock(memory.mutex);
        const bool reserved = memory.within_reservation(address, size);
        if (reserved && !aligned(address)) return CUDA_ERROR_NOT_SUPPORTED;
        if (!reserved || memory.any_mapping(address, size)) return CUDA_ERROR_INVALID_VALUE;
        // Of a multicast object nothing is there for ordinary accesses.
        if (physical && show(*physical, offset, address, size, PROT_NONE) == MAP_FAILED)
            return CUDA_ERROR_OUT_OF_MEMORY;
        Allocation allocation;
        allocation.begin = address;
        allocation.size = size;
        allocation.type = physical ? MemoryType::mapped : MemoryType::multicast;
        allocation.of_host = physical && tnr::is_host_location(physical->properties.location.type);
        allocation.device = physical ? physical->device.ordinal : 0;
        allocation.owner = handle;
        driver().addresses.insert(allocation);
        memory.mapped.emplace(address, Mapping{size, offset, std::move(physical), std::move(multicast)});
        return CUDA_SUCCESS;
    });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    return initialized([&]() -> CUresult {
        VirtualMemory& memory = VirtualMemory::get();
        {
            tnr::LockGuard lock(memory.mutex);
            const bool reserved = size != 0 && memory.within_reservation(address, size);
            if (reserved && !memory.any_mapping(address, size)) return CUDA_SUCCESS;
            if (!reserved || !memory.exactly_mapped(address, size)) return CUDA_ERROR_INVALID_VALUE;
        }
        wait_for_everything();
        {
            tnr::LockGuard lock(memory.mutex);
            if (!memory.exactly_mapped(address, size)) return CUDA_ERROR_INVALID_VALUE;
            for (uint64_t at = address; at < address + size; at += memory.mapped.at(at).bytes)
                driver().addresses.take(at, [](const Allocation&) { return true; });
        }
        wait_for_everything();  // for copies of other threads that came meanwhile; from here on none can come
        tnr::LockGuard lock(memory.mutex);
        if (!memory.exactly_mapped(address, size)) return CUDA_ERROR_INVALID_VALUE;
        memory.mapped.erase(memory.mapped.find(address), memory.mapped.lower_bound(address + size));
        (void)mmap(pointer(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        return CUDA_SUCCESS;
    });
}

// Only devices of a multicast object's team may use it.
static bool all_in_team(const VirtualMemory& memory, uint64_t address, uint64_t size, uint64_t devices)
    TNR_REQUIRES(memory.mutex) {
    for (auto it = memory.mapped.lower_bound(address); it != memory.mapped.end() && it->first < address + size; ++it)
        for (auto& device : driver().devices)
            if (it->second.multicast && (devices >> device->ordinal & 1) && !it->second.multicast->has(*device))
                return false;
    return true;
}

static bool all_of_host(const VirtualMemory& memory, uint64_t address, uint64_t size) TNR_REQUIRES(memory.mutex) {
    auto is_other = [](auto& mapping) {
        return !mapping.second.memory || !tnr::is_host_location(mapping.second.memory->properties.location.type);
    };
    return std::none_of(memory.mapped.lower_bound(address), memory.mapped.lower_bound(address + size), is_other);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* descriptions, size_t count) {
    return initialized([&]() -> CUresult {
        if (!descriptions || count == 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
        uint64_t granted = 0, revoked = 0;
        for (size_t i = 0; i < count; ++i) {
            const auto flags = descriptions[i].flags;
            if (!tnr::is_access(flags) || check_location(descriptions[i].location)) return CUDA_ERROR_INVALID_VALUE;
            const uint64_t bit = access_bit(descriptions[i].location);
            if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
                revoked |= bit;
            else
                granted |= bit;
        }
        VirtualMemory& memory = VirtualMemory::get();
        tnr::LockGuard lock(memory.mutex);
        if (!memory.exactly_mapped(address, size)) return CUDA_ERROR_INVALID_VALUE;
        if (((granted | revoked) & for_host) && !all_of_host(memory, address, size)) return CUDA_ERROR_INVALID_VALUE;
        if (!all_in_team(memory, address, size, granted)) return CUDA_ERROR_INVALID_DEVICE;
        driver().addresses.update(address, size, [&](Allocation& allocation) {
            allocation.access = (allocation.access & ~revoked) | granted;
            if (allocation.type == MemoryType::multicast) return;
            int protection = allocation.access ? PROT_READ | PROT_WRITE : PROT_NONE;
            mprotect(pointer(allocation.begin), allocation.size, protection);
        });
        return CUDA_SUCCESS;
    });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
    return initialized([&]() -> CUresult {
        if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = check_location(*location)) return error;
        auto found = driver().addresses.find(address);
        bool mapped = found && (found->type == MemoryType::mapped || found->type == MemoryType::multicast);
        if (!mapped) return CUDA_ERROR_INVALID_VALUE;
        const bool granted = found->access & access_bit(*location);
        *flags = granted ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    });
}
