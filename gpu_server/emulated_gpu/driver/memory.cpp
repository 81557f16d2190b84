#include "gpu_server/emulated_gpu/driver/memory.hpp"

#include <sys/mman.h>

#include "gpu_server/emulated_gpu/driver/pool.hpp"
#include "gpu_server/emulated_gpu/driver/texture.hpp"
#include "gpu_server/emulated_gpu/driver/virtual_memory.hpp"

namespace tnr::emulated {

uint64_t granules(uint64_t size) {
    return (size + allocation_granule - 1) / allocation_granule * allocation_granule;
}

CUresult allocate_device(Device& device, uint64_t size, Allocation like, uint64_t& address) {
    if (size == 0) return CUDA_ERROR_INVALID_VALUE;
    if (size > device.memory_total) return CUDA_ERROR_OUT_OF_MEMORY;  // also keeps granules() from overflowing
    if (!charge(device, granules(size))) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = place_on_device(device, size, like, address);
    if (result != CUDA_SUCCESS) device.refund(granules(size));
    return result;
}

CUresult place_on_device(Device& device, uint64_t size, Allocation like, uint64_t& address) {
    // A page holds nothing beside managed memory: programs have it page by page. Variables lie closer to each other.
    uint64_t begin = like.type == MemoryType::managed && !like.in_module
                         ? device.arena.allocate(granules(size), managed_alignment)
                         : device.arena.allocate(granules(size));
    if (!begin) return CUDA_ERROR_OUT_OF_MEMORY;
    like.begin = begin;
    like.size = size;
    like.device = device.ordinal;
    driver().addresses.insert(like);
    address = begin;
    return CUDA_SUCCESS;
}

void give_back(const Allocation& allocation) {
    Device& device = *driver().devices[static_cast<size_t>(allocation.device)];
    switch (allocation.type) {
        case MemoryType::device:
        case MemoryType::managed:
            if (allocation.type == MemoryType::managed) forget_advice(allocation);
            device.arena.release(allocation.begin, granules(allocation.size));
            if (allocation.owner)
                return_to_pool(allocation.owner, granules(allocation.size));
            else
                device.refund(granules(allocation.size));
            break;
        case MemoryType::host:
            munmap(pointer(allocation.begin), allocation.size);
            if (allocation.owner) return_to_pool(allocation.owner, granules(allocation.size));
            break;
        case MemoryType::registered:
        case MemoryType::mapped:
        case MemoryType::multicast:
            break;  // the memory is the caller's
    }
}

void free_memory_of(Context& context) {
    for (const Allocation& allocation : driver().addresses.of_context(&context))
        if (driver().addresses.take(allocation.begin, [&](auto& a) { return a.context == &context; }))
            give_back(allocation);
}

bool accessible(Context& context, const Allocation& allocation) {
    if ((allocation.is_host() && !allocation.of_host) || allocation.type == MemoryType::managed) return true;
    if (allocation.access >> context.device.ordinal & 1) return true;
    if (allocation.type == MemoryType::mapped || allocation.type == MemoryType::multicast) return false;
    if (!allocation.context || allocation.context == &context) return allocation.device == context.device.ordinal;
    return context.can_reach(*allocation.context);
}

bool known(uint64_t address) {
    return driver().addresses.find(address).has_value();
}

bool usable(Context& context, uint64_t address, uint64_t size) {
    if (size == 0) return true;
    if (!driver().addresses.covers(address, size)) return false;
    for (uint64_t at = address; at < address + size;) {
        auto allocation = driver().addresses.find(at);
        // A copy may touch memory of any device (it is a peer copy then); mapped memory needs its rights.
        if (!allocation || allocation->type == MemoryType::multicast) return false;
        if (allocation->type == MemoryType::mapped && !accessible(context, *allocation)) return false;
        at = allocation->end();
    }
    return true;
}

ptx::Memory::Range KernelMemory::range_of(uint64_t address) const {
    // An access just behind an odd-sized allocation still lies in its granule, as it would on a GPU.
    auto allocation = driver().addresses.find(address);
    if (!allocation) allocation = driver().addresses.find(address & ~(allocation_granule - 1));
    if (!allocation || allocation->type == MemoryType::multicast || !accessible(context_, *allocation)) return {};
    bool has_granules = allocation->type == MemoryType::device || allocation->type == MemoryType::managed;
    uint64_t end = has_granules ? allocation->begin + granules(allocation->size) : allocation->end();
    if (address >= end) return {};
    return {allocation->begin, end};
}

ptx::Memory::Team KernelMemory::team_of(uint64_t address) const {
    auto allocation = driver().addresses.find(address);
    if (!allocation || allocation->type != MemoryType::multicast || !accessible(context_, *allocation)) return {};
    auto& memory = VirtualMemory::get();
    LockGuard lock(memory.mutex);
    auto* found = memory.find(address);
    if (!found || !found->second.multicast) return {};
    auto& [begin, mapping] = *found;
    auto team = mapping.multicast->copies_at(mapping.offset + (address - begin));
    // From offsets in the object to addresses; what lies before the mapping has none.
    auto before = team.range.begin < mapping.offset ? mapping.offset - team.range.begin : 0;
    for (auto& copy : team.copies) copy = {copy, copy.get() + before};
    team.range.begin = begin + (team.range.begin + before - mapping.offset);
    team.range.end = begin + std::min(team.range.end - mapping.offset, mapping.bytes);
    return team;
}

std::shared_ptr<const ptx::Texture> KernelMemory::texture(uint64_t handle) const {
    if (bound_)
        if (auto found = bound_->textures.find(handle); found != bound_->textures.end()) return found->second;
    auto object = find<TextureObject>(handle);
    return object && &object->context == &context_ ? object->texture : nullptr;
}

std::shared_ptr<const ptx::Image> KernelMemory::surface(uint64_t handle) const {
    if (bound_)
        if (auto found = bound_->surfaces.find(handle); found != bound_->surfaces.end()) return found->second;
    auto object = find<SurfaceObject>(handle);
    return object && &object->context == &context_ ? object->image : nullptr;
}

}  // namespace tnr::emulated
