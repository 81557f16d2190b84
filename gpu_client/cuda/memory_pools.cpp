// See memory_pools.hpp.
#include "gpu_client/cuda/memory_pools.hpp"

#include <algorithm>
#include <vector>

#include "gpu_client/cuda/device_memory.hpp"

namespace tnr::cuda {

static Mutex amounts_mutex_of_all;

Mutex& amounts_mutex() {
    return amounts_mutex_of_all;
}

MemoryPools& pools() {
    static auto* all = new MemoryPools;
    return *all;
}

static std::vector<MemoryPool*> pools_of(const Device& device) {
    std::vector<MemoryPool*> found;
    pools().each([&](MemoryPool& pool, uint64_t) {
        if (pool.device == device.ordinal) found.push_back(&pool);
    });
    return found;
}

static uint64_t unused_of(const std::vector<MemoryPool*>& pools) TNR_REQUIRES(amounts_mutex()) {
    uint64_t unused = 0;
    for (auto* pool : pools) unused += pool->amounts.unused();
    return unused;
}

static void fit_into_grant(const Device& device) TNR_REQUIRES(amounts_mutex()) {
    auto all = pools_of(device);
    if (unused_of(all) <= device.memory->idle_grant()) return;
    for (auto* pool : all) pool->amounts.shrink_to(0, pool_granule_small);
}

uint64_t create_pool(int device, bool is_default) {
    LockGuard lock(amounts_mutex());
    // Runs with the lock held, which clang does not see.
    return pools().create([&](MemoryPool& pool, uint64_t, uint64_t) TNR_NO_THREAD_SAFETY_ANALYSIS {
        pool.device = device;
        pool.is_default = is_default;
        pool.shareable = pool.managed = pool.imported = false;
        pool.stands_for = 0;
        for (auto& policy : pool.reuse) policy = 1;
        pool.release_threshold = pool.open_to = 0;
        pool.bytes_max = 0;
        pool.amounts = {};
    });
}

uint64_t default_pool(Device& device) {
    static Mutex making;
    LockGuard lock(making);
    if (device.pools.own == 0) device.pools.own = create_pool(device.ordinal, true);
    return device.pools.own;
}

uint64_t chosen_pool(Device& device) {
    uint64_t chosen = device.pools.chosen;
    return chosen != 0 ? chosen : default_pool(device);
}

bool has_room(MemoryPool& pool, uint64_t bytes) {
    LockGuard lock(amounts_mutex());
    return pool.bytes_max == 0 || bytes <= pool.bytes_max - std::min(pool.bytes_max, pool.amounts.used);
}

void take_from_pool(MemoryPool& pool, uint64_t bytes) {
    auto* device = find_device(pool.device);  // null: the host's
    LockGuard lock(amounts_mutex());
    if (pool.amounts.take(bytes) && device) fit_into_grant(*device);
    if (pool.amounts.unused() != 0 && device) device->pools.any_unused = true;
}

void return_to_pool(uint64_t handle, uint64_t bytes) {
    auto* pool = pools().find(handle);
    if (!pool) return;
    LockGuard lock(amounts_mutex());
    pool->amounts.put_back(bytes);
    if (auto* device = find_device(pool->device))
        device->pools.any_unused = true;
    else
        pool->amounts.shrink_to(pool->release_threshold, pool_granule);
}

void pools_after_wait(int ordinal) {
    auto& device = *find_device(ordinal);
    if (!device.pools.any_unused) return;
    LockGuard lock(amounts_mutex());
    bool left = false;
    for (auto* pool : pools_of(device)) {
        pool->amounts.shrink_to(pool->release_threshold, pool_granule);
        left |= pool->amounts.unused() != 0;
    }
    device.pools.any_unused = left;
}

void pools_make_room(int ordinal) {
    auto& device = *find_device(ordinal);
    if (!device.pools.any_unused) return;
    LockGuard lock(amounts_mutex());
    fit_into_grant(device);
}

uint64_t unused_in_pools(int ordinal) {
    auto& device = *find_device(ordinal);
    if (!device.pools.any_unused) return 0;
    LockGuard lock(amounts_mutex());
    return unused_of(pools_of(device));
}

}  // namespace tnr::cuda
