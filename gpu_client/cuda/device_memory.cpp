// See device_memory.hpp.
#include "gpu_client/cuda/device_memory.hpp"

#include <algorithm>

#include "gpu_client/cuda/contexts.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/remote_call.hpp"

namespace tnr::cuda {

// Allocations are multiples of this: what cuMemAlloc promises of alignment, and then some.
static constexpr uint64_t small_unit = 512;
// From here on an allocation gets mappings of its own; below, half a granule would be wasted.
static constexpr uint64_t small_max = 1 << 20;
// A grant is asked for in steps of at least this, so that growing costs few round trips.
static constexpr uint64_t grant_step = uint64_t{1} << 30;
// With this much in quarantine a synchronisation is cheaper than asking for yet more memory.
static constexpr uint64_t quarantine_max = uint64_t{1} << 30;
// Mapped memory kept for the next allocation of its size, so that malloc and free in a loop do not map and unmap.
static constexpr uint64_t spare_max = uint64_t{256} << 20;

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

void DeviceMemory::take_range(uint64_t address, uint64_t bytes, uint64_t granularity) {
    std::lock_guard lock(mutex_);
    range_address_ = address;
    range_bytes_ = bytes;
    granularity_ = granularity;
    space_.add(address, bytes);
}

void DeviceMemory::ask_ahead() {
    if (granted_ != 0 || ahead_asked_.exchange(true)) return;
    ahead_done_ = false;
    auto* ahead = new Ahead;  // freed when it is answered
    uint32_t device = static_cast<uint32_t>(device_.on_wire);
    uint64_t bytes = grant_step;
    std::memcpy(ahead->payload + 8, &device, sizeof device);
    std::memcpy(ahead->payload + 12, &bytes, sizeof bytes);
    ahead->pending.when_done = [this, ahead](Pending& pending) {
        if (pending.result == CUDA_SUCCESS) ahead_granted_ = wire::Reader(pending.answer).get<uint64_t>();
        ahead_done_ = true;
        delete ahead;
    };
    session()->request(0, wire::op_memory_grant, ahead->payload, ahead->pending);
}

// ---- allocating; all called with the lock held ----

CUresult DeviceMemory::allocate(const Context& context, uint64_t bytes, uint64_t stream, uint64_t pool,
                                uint64_t& address) {
    if (bytes > range_bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
    Allocation made;
    Lock lock(mutex_);
    while (!try_allocate(lock, context, bytes, stream, made)) {
        uint64_t needed = bytes < small_max ? granularity_ : round_up(bytes, granularity_);
        if (session()->lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
        if (!make_space(lock, needed)) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made.bytes = bytes;
    made.context = context.handle;
    made.pool = pool;
    made.id = next_id();
    allocations_[made.address] = made;
    address = made.address;
    return CUDA_SUCCESS;
}

bool DeviceMemory::try_allocate(Lock&, const Context& context, uint64_t bytes, uint64_t stream, Allocation& made) {
    if (stream != 0 && take_freed_in_stream(context, bytes, stream, made)) return true;
    return bytes < small_max ? take_small(round_up(bytes, small_unit), made)
                             : take_mapped(round_up(bytes, granularity_), made);
}

bool DeviceMemory::take_freed_in_stream(const Context& context, uint64_t bytes, uint64_t stream, Allocation& made) {
    auto fits = [&](const Freed& freed) {
        return freed.stream == stream && freed.allocation.context == context.handle &&
               freed.allocation.reserved >= bytes && freed.allocation.reserved <= round_up(bytes, small_unit) * 2;
    };
    auto found = std::find_if(quarantine_.begin(), quarantine_.end(), fits);
    if (found == quarantine_.end()) return false;
    made = found->allocation;
    quarantine_.erase(found);
    return true;
}

bool DeviceMemory::take_small(uint64_t bytes, Allocation& made) {
    made.address = small_.take(bytes, small_unit);
    if (made.address == 0) {
        uint64_t block = map(granularity_);
        if (block == 0) return false;
        blocks_.push_back({block, granularity_});
        small_.add(block, granularity_);
        made.address = small_.take(bytes, small_unit);
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
        spare_.erase(found);
        return true;
    }
    made.address = map(bytes);
    made.reserved = bytes;
    return made.address != 0;
}

static void send_range(uint16_t op, int device, uint64_t address, uint64_t bytes) {
    wire::Bytes payload;
    wire::Writer out(payload);
    out.put(static_cast<uint32_t>(device));
    out.put(address);
    out.put(bytes);
    session()->append(0, op, payload);
}

uint64_t DeviceMemory::map(uint64_t bytes) {
    if (granted_ - mapped_ < bytes) return 0;
    uint64_t address = space_.take(bytes, granularity_);
    if (address == 0) return 0;
    mapped_ += bytes;
    send_range(wire::op_memory_map, device_.on_wire, address, bytes);
    return address;
}

void DeviceMemory::unmap(const Mapped& range) {
    send_range(wire::op_memory_unmap, device_.on_wire, range.address, range.bytes);
    mapped_ -= range.bytes;
    space_.add(range.address, range.bytes);
}

// ---- when the grant or the addresses are used up ----

// Tries one thing after the other, cheapest first. False: there is no more memory.
bool DeviceMemory::make_space(Lock& lock, uint64_t needed) {
    if (take_ahead()) return true;
    if (!spare_.empty()) {
        for (auto& range : spare_) unmap(range);
        spare_.clear();
        if (granted_ - mapped_ >= needed) return true;
    }
    if (quarantined_bytes() >= std::max(needed, quarantine_max) && force_sync(lock)) return true;
    uint64_t lacking = needed > granted_ - mapped_ ? needed - (granted_ - mapped_) : needed;
    if (ask_for(std::max(lacking, grant_step))) return true;
    if (lacking < grant_step && ask_for(lacking)) return true;
    return force_sync(lock);
}

bool DeviceMemory::take_ahead() {
    if (!ahead_asked_) return false;
    if (!ahead_done_) session()->wait_until([this] { return ahead_done_.load(); });
    uint64_t more = ahead_granted_.exchange(0);
    granted_ += more;
    return more != 0;
}

bool DeviceMemory::ask_for(uint64_t bytes) {
    RemoteCall call(wire::op_memory_grant, wire::CallWay::sync);
    call.in_context(nullptr);
    call.put(static_cast<uint32_t>(device_.on_wire));
    call.put(bytes);
    if (call.send() != CUDA_SUCCESS) return false;
    auto more = call.answer().get<uint64_t>();
    granted_ += more;
    log(LogLevel::debug, "device %d: asked for %llu MiB more, was granted %llu", device_.ordinal,
        static_cast<unsigned long long>(bytes >> 20), static_cast<unsigned long long>(more >> 20));
    return more != 0;
}

// Waits for the GPU so that the quarantine may be used again. False when that frees nothing.
bool DeviceMemory::force_sync(Lock& lock) {
    if (quarantine_.empty()) return false;
    size_t before = quarantine_.size();
    std::vector<uint64_t> waiting;
    for (auto& freed : quarantine_)
        if (std::find(waiting.begin(), waiting.end(), freed.allocation.context) == waiting.end())
            waiting.push_back(freed.allocation.context);
    lock.unlock();
    for (uint64_t handle : waiting)
        if (auto* context = contexts().find(handle)) (void)synchronize_context(*context);
    lock.lock();
    return quarantine_.size() < before;
}

// ---- freeing ----

CUresult DeviceMemory::release(uint64_t address, uint64_t stream) {
    std::lock_guard lock(mutex_);
    auto found = allocations_.find(address);
    if (found == allocations_.end() || found->second.mapped_by_program) return CUDA_ERROR_INVALID_VALUE;
    quarantine_.push_back({found->second, session()->position(), stream});
    allocations_.erase(found);
    return CUDA_SUCCESS;
}

// The GPU has finished with it.
void DeviceMemory::give_back(const Allocation& allocation) {
    if (allocation.small) return small_.add(allocation.address, allocation.reserved);
    uint64_t spare = allocation.reserved;
    for (auto& range : spare_) spare += range.bytes;
    if (spare <= spare_max)
        spare_.push_back({allocation.address, allocation.reserved});
    else
        unmap({allocation.address, allocation.reserved});
}

template <class Past>
void DeviceMemory::leave_quarantine(Past&& past) {
    auto first =
        std::stable_partition(quarantine_.begin(), quarantine_.end(), [&](auto& freed) { return !past(freed); });
    for (auto freed = first; freed != quarantine_.end(); ++freed) give_back(freed->allocation);
    quarantine_.erase(first, quarantine_.end());
}

void DeviceMemory::context_synced(uint64_t context, uint64_t position) {
    std::lock_guard lock(mutex_);
    leave_quarantine([&](auto& freed) { return freed.allocation.context == context && freed.position <= position; });
}

void DeviceMemory::stream_synced(uint64_t stream, uint64_t position) {
    std::lock_guard lock(mutex_);
    leave_quarantine([&](auto& freed) { return freed.stream == stream + 1 && freed.position <= position; });
}

void DeviceMemory::context_ends(uint64_t context) {
    std::lock_guard lock(mutex_);
    leave_quarantine([&](auto& freed) { return freed.allocation.context == context; });
    for (auto next = allocations_.begin(); next != allocations_.end();) {
        auto entry = next++;
        if (entry->second.context != context || entry->second.mapped_by_program) continue;
        give_back(entry->second);
        allocations_.erase(entry);
    }
    if (!allocations_.empty() || !quarantine_.empty()) return;
    for (auto& range : spare_) unmap(range);
    for (auto& range : blocks_) unmap(range);
    spare_.clear();
    blocks_.clear();
    small_ = {};
}

void DeviceMemory::trim() {
    std::lock_guard lock(mutex_);
    for (auto& range : spare_) unmap(range);
    spare_.clear();
}

// ---- questions ----

bool DeviceMemory::find(uint64_t address, Allocation& found) const {
    std::lock_guard lock(mutex_);
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) return false;
    auto& allocation = std::prev(after)->second;
    if (address - allocation.address >= std::max<uint64_t>(allocation.bytes, 1)) return false;
    found = allocation;
    return true;
}

bool DeviceMemory::holds_any(uint64_t context) const {
    std::lock_guard lock(mutex_);
    auto held = [&](const Allocation& allocation) { return allocation.context == context; };
    return std::any_of(allocations_.begin(), allocations_.end(), [&](auto& entry) { return held(entry.second); }) ||
           std::any_of(quarantine_.begin(), quarantine_.end(), [&](auto& freed) { return held(freed.allocation); });
}

uint64_t DeviceMemory::quarantined_bytes() const {
    uint64_t sum = 0;
    for (auto& freed : quarantine_) sum += freed.allocation.reserved;
    return sum;
}

uint64_t DeviceMemory::mapped_free_bytes() const {
    std::lock_guard lock(mutex_);
    uint64_t sum = small_.free_bytes() + quarantined_bytes();
    for (auto& range : spare_) sum += range.bytes;
    return sum;
}

// ---- the program's own mappings ----

uint64_t DeviceMemory::reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted) {
    std::lock_guard lock(mutex_);
    if (wanted != 0 && wanted % granularity_ == 0 && space_.take_at(wanted, bytes)) return wanted;
    return space_.take(bytes, std::max(alignment, granularity_));
}

void DeviceMemory::unreserve(uint64_t address, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    space_.add(address, bytes);
}

void DeviceMemory::note_mapping(uint64_t address, uint64_t bytes, uint64_t context) {
    Allocation mapping;
    mapping.address = address;
    mapping.bytes = mapping.reserved = bytes;
    mapping.mapped_by_program = true;
    mapping.context = context;
    mapping.id = next_id();
    std::lock_guard lock(mutex_);
    allocations_[address] = mapping;
}

void DeviceMemory::forget_mapping(uint64_t address, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    for (auto next = allocations_.lower_bound(address); next != allocations_.end() && next->first < address + bytes;) {
        auto entry = next++;
        if (entry->second.mapped_by_program) allocations_.erase(entry);
    }
}

}  // namespace tnr::cuda
