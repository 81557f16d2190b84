// See device_memory.hpp.
#include "gpu_client/cuda/device_memory.hpp"

#include <algorithm>

#include "gpu_client/cuda/devices.hpp"

namespace tnr::cuda {

// From here on an allocation gets mappings of its own; below, half a granule would be wasted.
static constexpr uint64_t small_max = 1 << 20;
// Mapped memory kept for the next allocation of its size, so that malloc and free in a loop do not map and unmap: this
// or, if more, a quarter of the grant, which is nobody else's anyway.
static constexpr uint64_t spare_max = uint64_t{256} << 20;
static constexpr uint64_t spare_share = 4;

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

ClientSession& DeviceMemory::session() const {
    return *device_.session.load();
}

void DeviceMemory::take_range(uint64_t address, uint64_t bytes, uint64_t granularity) {
    LockGuard lock(mutex_);
    range_address_ = address;
    range_bytes_ = bytes;
    granularity_ = granularity;
    space_.add(address, bytes);
}

// ---- allocating ----

CUresult DeviceMemory::allocate(const Context& context, uint64_t bytes, uint64_t stream, uint64_t pool,
                                uint64_t& address, uint64_t alignment) {
    if (bytes > range_bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
    const Wish wish{context, bytes, stream, pool, alignment};
    while (true) {
        Allocation made;
        bool found = false;
        uint64_t mapped_before = 0, mapped_after = 0, more_room = 0;
        {
            LockGuard lock(mutex_);
            mapped_before = mapped_;
            found = try_allocate(wish, made);
            mapped_after = mapped_;
            more_room = more_room_;
        }
        if (auto sent = sends_.flush(); sent != CUDA_SUCCESS) return sent;
        if (found) {
            if (mapped_after != mapped_before) note_untouched(made.address);
            address = made.address;
            return CUDA_SUCCESS;
        }
        if (session().lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
        if (!make_space(bytes < small_max ? granularity_ : whole_granules(bytes), more_room))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

bool DeviceMemory::try_allocate(const Wish& wish, Allocation& made) {
    if (!find_place(wish, made)) return false;
    made.bytes = wish.bytes;
    made.context = wish.context.handle;
    made.pool = wish.pool;
    made.id = next_id();
    allocations_[made.address] = made;
    return true;
}

bool DeviceMemory::find_place(const Wish& wish, Allocation& made) {
    uint64_t bytes = wish.bytes;
    if (wish.stream != 0 &&
        quarantine_.take_in_stream(wish.context.handle, wish.stream, bytes, round_up(bytes, small_unit) * 2, made)) {
        made.untouched_at = 0;
        return true;
    }
    bool found = bytes < small_max ? take_small(round_up(bytes, wish.alignment), wish.alignment, made)
                                   : take_mapped(whole_granules(bytes), made);
    if (found) made.untouched_at = session().position();
    return found;
}

bool DeviceMemory::take_small(uint64_t bytes, uint64_t alignment, Allocation& made) {
    made.address = small_.take(bytes, alignment);
    if (made.address == 0) {
        uint64_t block = map(granularity_);
        if (block == 0) return false;
        blocks_.push_back({block, granularity_});
        small_.add(block, granularity_);
        made.address = small_.take(bytes, alignment);
    }
    made.reserved = bytes;
    made.small = true;
    return true;
}

bool DeviceMemory::take_mapped(uint64_t bytes, Allocation& made) {
    auto fits = [&](const Mapped& spare) { return spare.bytes >= bytes && spare.bytes <= bytes + bytes / 4; };
    auto found = std::find_if(spare_.begin(), spare_.end(), fits);
    if (found != spare_.end()) {
        made.address = found->address;
        made.reserved = found->bytes;
        spare_bytes_ -= found->bytes;
        spare_.erase(found);
        return true;
    }
    made.address = map(bytes);
    made.reserved = bytes;
    return made.address != 0;
}

uint64_t DeviceMemory::map(uint64_t bytes) {
    if (room() < bytes) return 0;
    uint64_t address = space_.take(bytes, granularity_);
    if (address == 0) return 0;
    mapped_ += bytes;
    sends_.put(wire::MapMemory<>{device_.number, address, bytes});
    return address;
}

void DeviceMemory::unmap(const Mapped& range) {
    sends_.put(wire::UnmapMemory<>{device_.number, range.address, range.bytes});
    mapped_ -= range.bytes;
    space_.add(range.address, range.bytes);
}

void DeviceMemory::unmap_spares() {
    for (auto& range : spare_) unmap(range);
    spare_.clear();
    spare_bytes_ = 0;
}

// Notes the position again, which the record that maps the allocation has raised. The program does not have the address
// yet.
void DeviceMemory::note_untouched(uint64_t address) {
    LockGuard lock(mutex_);
    if (auto found = allocations_.find(address); found != allocations_.end())
        found->second.untouched_at = session().position();
}

// ---- freeing ----

CUresult DeviceMemory::release(uint64_t address, uint64_t stream, uint64_t id) {
    bool due = false;
    uint64_t context = 0;
    {
        LockGuard lock(mutex_);
        auto found = allocations_.find(address);
        if (found == allocations_.end() || found->second.mapped_by_program) return CUDA_ERROR_INVALID_VALUE;
        if (id != 0 && found->second.id != id) return CUDA_ERROR_INVALID_VALUE;
        auto freed = found->second;
        allocations_.erase(found);
        context = freed.context;
        uint64_t now = session().position();
        if (freed.untouched_at != 0 && freed.untouched_at == now) {
            give_back(freed);
        } else {
            quarantine_.add(freed, now, stream);
            due = drain_is_due();
            if (due) drained_bytes_ = quarantine_.bytes();
        }
    }
    (void)sends_.flush();
    if (due) drain(context);
    return CUDA_SUCCESS;
}

// No command can use it any more.
void DeviceMemory::give_back(const Allocation& allocation) {
    ++more_room_;
    if (allocation.small) return small_.add(allocation.address, allocation.reserved);
    if (spare_bytes_ + allocation.reserved > std::max(spare_max, granted_ / spare_share))
        return unmap({allocation.address, allocation.reserved});
    spare_.push_back({allocation.address, allocation.reserved});
    spare_bytes_ += allocation.reserved;
}

void DeviceMemory::context_ends(uint64_t context, uint64_t heir) {
    if (draining_ == context) session().wait_until([&] { return draining_ != context; });
    {
        LockGuard lock(mutex_);
        for (auto& allocation : quarantine_.leave_with(context)) give_back(allocation);
        for (auto next = allocations_.begin(); next != allocations_.end();) {
            auto entry = next++;
            if (entry->second.context != context || entry->second.mapped_by_program) continue;
            if (entry->second.pool != 0 && heir != context) {
                entry->second.context = heir;
                continue;
            }
            give_back(entry->second);
            allocations_.erase(entry);
        }
        if (allocations_.empty() && quarantine_.empty()) {
            unmap_spares();
            for (auto& range : blocks_) unmap(range);
            blocks_.clear();
            small_ = {};
        }
    }
    (void)sends_.flush();
}

// ---- questions ----

bool DeviceMemory::find(uint64_t address, Allocation& found) const {
    LockGuard lock(mutex_);
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) return false;
    auto& allocation = std::prev(after)->second;
    if (address - allocation.address >= std::max<uint64_t>(allocation.bytes, 1)) return false;
    found = allocation;
    return true;
}

void DeviceMemory::set_sync_memops(uint64_t address, bool on) {
    LockGuard lock(mutex_);
    if (auto found = allocations_.find(address); found != allocations_.end()) found->second.sync_memops = on;
}

bool DeviceMemory::holds_any(uint64_t context) const {
    LockGuard lock(mutex_);
    auto held = [&](auto& entry) { return entry.second.context == context; };
    return std::any_of(allocations_.begin(), allocations_.end(), held) || quarantine_.holds_any(context);
}

DeviceMemory::Usage DeviceMemory::usage() {
    (void)sends_.flush();
    LockGuard lock(mutex_);
    return {mapped_ + created_, small_.free_bytes() + quarantine_.bytes() + spare_bytes_};
}

uint64_t DeviceMemory::idle_grant() const {
    LockGuard lock(mutex_);
    return room() + small_.free_bytes() + quarantine_.bytes() + spare_bytes_;
}

// ---- the program's own mappings ----

uint64_t DeviceMemory::reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted) {
    uint64_t address = 0;
    {
        LockGuard lock(mutex_);
        bool there = wanted != 0 && wanted % granularity_ == 0 && space_.take_at(wanted, bytes);
        address = there ? wanted : space_.take(bytes, std::max(alignment, granularity_));
    }
    (void)sends_.flush();  // what was mapped there is unmapped before the program maps
    return address;
}

void DeviceMemory::unreserve(uint64_t address, uint64_t bytes) {
    LockGuard lock(mutex_);
    space_.add(address, bytes);
}

void DeviceMemory::note_mapping(uint64_t address, uint64_t bytes, uint64_t context, uint64_t open_to) {
    Allocation mapping;
    mapping.address = address;
    mapping.bytes = mapping.reserved = bytes;
    mapping.mapped_by_program = true;
    mapping.context = context;
    mapping.open_to = open_to;
    mapping.id = next_id();
    LockGuard lock(mutex_);
    allocations_[address] = mapping;
}

void DeviceMemory::forget_mapping(uint64_t address, uint64_t bytes) {
    LockGuard lock(mutex_);
    for (auto next = allocations_.lower_bound(address); next != allocations_.end() && next->first < address + bytes;) {
        auto entry = next++;
        if (entry->second.mapped_by_program) allocations_.erase(entry);
    }
}

}  // namespace tnr::cuda
