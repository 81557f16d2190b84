#include "gpu_server/emulated_gpu/driver/address_map.hpp"

namespace tnr::emulated {

void AddressMap::insert(Allocation allocation) {
    ExclusiveLock lock(mutex_);
    allocation.buffer_id = next_buffer_id_++;
    allocations_.insert_or_assign(allocation.begin, allocation);
}

std::optional<Allocation> AddressMap::find(uint64_t address) const {
    SharedLock lock(mutex_);
    auto next = allocations_.upper_bound(address);
    if (next == allocations_.begin()) return std::nullopt;
    const Allocation& allocation = std::prev(next)->second;
    if (address - allocation.begin >= allocation.size) return std::nullopt;
    return allocation;
}

bool AddressMap::covers(uint64_t address, uint64_t size) const {
    SharedLock lock(mutex_);
    auto next = allocations_.upper_bound(address);
    if (next == allocations_.begin()) return false;
    auto at = std::prev(next);
    if (address - at->first >= at->second.size) return false;
    uint64_t left = size;
    uint64_t available = at->second.end() - address;
    while (available < left) {
        left -= available;
        uint64_t end = at->second.end();
        if (++at == allocations_.end() || at->first != end) return false;
        available = at->second.size;
    }
    return true;
}

bool AddressMap::overlaps(uint64_t address, uint64_t size) const {
    SharedLock lock(mutex_);
    auto next = allocations_.lower_bound(address + size);
    return next != allocations_.begin() && std::prev(next)->second.end() > address;
}

std::vector<Allocation> AddressMap::of_context(const Context* context) const {
    SharedLock lock(mutex_);
    std::vector<Allocation> found;
    for (auto& [begin, allocation] : allocations_)
        if (allocation.context == context) found.push_back(allocation);
    return found;
}

}  // namespace tnr::emulated
