// See pool.hpp.
#include "gpu_server/emulated_gpu/driver/pool.hpp"

#include "gpu_server/emulated_gpu/driver/graph_memory.hpp"

#include <algorithm>
#include <map>

namespace tnr::emulated {
namespace {

// What a pool reserves at a time: 32 MiB, as the driver does, or where the device has less left, 2 MiB.
constexpr uint64_t granule = uint64_t{32} << 20, small_granule = uint64_t{2} << 20;

uint64_t whole(uint64_t bytes, uint64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

// Every pool that has its handle or memory in use, by handle.
std::map<uint64_t, std::shared_ptr<Pool>>& pools() TNR_REQUIRES(pool_mutex()) {
    static auto& pools = *new std::map<uint64_t, std::shared_ptr<Pool>>;
    return pools;
}

std::shared_ptr<Pool> make_pool(Device& device, uint64_t size_max, MemoryType type) TNR_REQUIRES(pool_mutex()) {
    auto pool = driver().registry.add(std::make_shared<Pool>(device, size_max, type));
    pools().emplace(pool->handle(), pool);
    return pool;
}

void ensure_default(Device& device) TNR_REQUIRES(pool_mutex()) {
    if (device.default_pool) return;
    device.default_pool = make_pool(device, 0, MemoryType::device);
    device.current_pool = device.default_pool;
}

void release_unused(Device& device) {
    release_graph_memory(device);
    LockGuard lock(pool_mutex());
    for (auto& [handle, pool] : pools())
        if (&pool->device == &device) pool->shrink_to(0);
}

}  // namespace

Mutex& pool_mutex() {
    static Mutex& mutex = *new Mutex;
    return mutex;
}

bool Pool::reserve(uint64_t missing) {
    for (uint64_t unit : {granule, small_granule, allocation_granule}) {
        uint64_t bytes = whole(missing, unit);
        if (type != MemoryType::host && !device.charge(bytes)) continue;
        amounts_.reserved += bytes;
        amounts_.reserved_high = std::max(amounts_.reserved_high, amounts_.reserved);
        return true;
    }
    return false;
}

bool Pool::take(uint64_t bytes) {
    for (bool retry : {false, true}) {
        if (retry) release_unused(device);  // of the other pools too: without our lock
        LockGuard lock(mutex_);
        uint64_t wanted = amounts_.used + bytes;
        if (size_max_ && wanted > size_max_) return false;
        if (wanted > amounts_.reserved && !reserve(wanted - amounts_.reserved)) continue;
        amounts_.used = wanted;
        amounts_.used_high = std::max(amounts_.used_high, wanted);
        return true;
    }
    return false;
}

bool Pool::put_back(uint64_t bytes) {
    LockGuard lock(mutex_);
    amounts_.used -= bytes;
    return amounts_.used == 0;
}

void Pool::shrink_to(uint64_t bytes) {
    LockGuard lock(mutex_);
    uint64_t keep = std::max(bytes, amounts_.used);
    if (keep >= amounts_.reserved || whole(keep, granule) >= amounts_.reserved) return;
    if (type != MemoryType::host) device.refund(amounts_.reserved - whole(keep, granule));
    amounts_.reserved = whole(keep, granule);
}

Pool::Amounts Pool::amounts() {
    LockGuard lock(mutex_);
    return amounts_;
}

void Pool::reset_reserved_high() {
    LockGuard lock(mutex_);
    amounts_.reserved_high = amounts_.reserved;
}

void Pool::reset_used_high() {
    LockGuard lock(mutex_);
    amounts_.used_high = amounts_.used;
}

std::shared_ptr<Pool> default_pool(Device& device) {
    LockGuard lock(pool_mutex());
    ensure_default(device);
    return device.default_pool;
}

std::shared_ptr<Pool> current_pool(Device& device) {
    LockGuard lock(pool_mutex());
    ensure_default(device);
    return device.current_pool;
}

std::shared_ptr<Pool> create_pool(Device& device, uint64_t size_max, MemoryType type) {
    LockGuard lock(pool_mutex());
    return make_pool(device, size_max, type);
}

void set_current_pool(std::shared_ptr<Pool> pool) {
    LockGuard lock(pool_mutex());
    Device& device = pool->device;
    ensure_default(device);  // later it would take this one's place
    device.current_pool = std::move(pool);
}

bool destroy_pool(Pool& pool) {
    LockGuard lock(pool_mutex());
    if (pool.device.default_pool.get() == &pool) return false;
    if (pool.device.current_pool.get() == &pool) pool.device.current_pool = pool.device.default_pool;
    if (!driver().registry.remove(pool.handle())) return false;
    pool.shrink_to(0);
    if (pool.amounts().used == 0) pools().erase(pool.handle());
    return true;
}

void return_to_pool(uint64_t handle, uint64_t bytes) {
    LockGuard lock(pool_mutex());
    auto found = pools().find(handle);
    if (found == pools().end()) return;
    auto& pool = *found->second;
    bool unused = pool.put_back(bytes);
    if (find<Pool>(handle)) return;
    pool.shrink_to(0);
    if (unused) pools().erase(found);
}

void release_after_wait(Device& device) {
    LockGuard lock(pool_mutex());
    for (auto& [handle, pool] : pools())
        if (&pool->device == &device) pool->shrink_to(pool->release_threshold);
}

bool charge(Device& device, uint64_t bytes) {
    if (device.charge(bytes)) return true;
    release_unused(device);
    return device.charge(bytes);
}

}  // namespace tnr::emulated
