// What a device's memory pools hold, as reported to programs. A pool reserves memory in granules. Freed memory stays
// reserved until the program waits for the GPU (beyond the release threshold), until the pool is trimmed, or until an
// allocation needs the room. No more is reported as reserved than this process has been granted.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/handles.hpp"
#include "gpu_client/protocol/exchange_records.hpp"

namespace tnr::cuda {

// A pool reserves this much at a time: 32 MiB, as the driver does, or 2 MiB where less is granted.
inline constexpr uint64_t pool_granule = uint64_t{32} << 20, pool_granule_small = uint64_t{2} << 20;

// One pool's amounts of bytes. The caller's lock guards them.
struct PoolAmounts {
    uint64_t used = 0, used_high = 0;
    uint64_t reserved = 0, reserved_high = 0;

    uint64_t unused() const { return reserved - used; }
    // True if the pool had to reserve more.
    bool take(uint64_t bytes) {
        used += bytes;
        used_high = std::max(used_high, used);
        if (used <= reserved) return false;
        reserved += whole(used - reserved, pool_granule);
        reserved_high = std::max(reserved_high, reserved);
        return true;
    }
    void put_back(uint64_t bytes) { used -= std::min(bytes, used); }
    // Keeps what is in use, and at least `bytes`, in whole granules.
    void shrink_to(uint64_t bytes, uint64_t granule) {
        uint64_t kept = std::max(bytes, used);
        if (kept < reserved) reserved = std::min(reserved, whole(kept, granule));
    }

private:
    static uint64_t whole(uint64_t bytes, uint64_t granule) { return (bytes + granule - 1) / granule * granule; }
};

// Guards the amounts of all pools. DeviceMemory's lock and the registry's may be taken inside it.
Mutex& amounts_mutex();

// Stands for a device's ordinal: the pool is of memory that the program has, too (host_pools.hpp, managed_pools.hpp).
inline constexpr int of_host = -1;

struct MemoryPool {
    int device = 0;  // ordinal
    bool is_default = false;
    bool shareable = false;               // made to be exported
    bool managed = false;                 // of managed memory (managed_pools.hpp)
    int managed_on = of_host;             // ordinal of the device that its memory should be on, if any
    bool imported = false;                // of another process: only what that one allocates
    wire::ThingName name{};               // of an imported one, as its memory is marked
    std::atomic<uint64_t> stands_for{0};  // handle of the event that others know an exported pool by
    std::atomic<int> reuse[4] = {};       // CU_MEMPOOL_ATTR_REUSE_…: what the driver may do; we always may
    std::atomic<uint64_t> release_threshold{0};
    std::atomic<uint64_t> open_to{0};  // bit per other device
    uint64_t bytes_max = 0;            // 0: as much as there is
    PoolAmounts amounts TNR_GUARDED_BY(amounts_mutex());
};
using MemoryPools = HandleRegistry<MemoryPool, HandleKind::pool>;
MemoryPools& pools();  // never destroyed
inline MemoryPool* find_pool(CUmemoryPool handle) {
    return pools().find(reinterpret_cast<uint64_t>(handle));
}

// These return handles.
uint64_t create_pool(int device, bool is_default);
uint64_t default_pool(Device& device);
uint64_t chosen_pool(Device& device);  // cuDeviceSetMemPool

// False: it may not hold so much more.
bool has_room(MemoryPool& pool, uint64_t bytes);
// Counts `bytes` as allocated from the pool.
void take_from_pool(MemoryPool& pool, uint64_t bytes);
// Counts `bytes` that came from the pool with this handle as freed. The pool may have been destroyed.
void return_to_pool(uint64_t pool, uint64_t bytes);
// The program has waited for work on the device: its pools release what their thresholds do not keep.
void pools_after_wait(int device);
// More of the device's grant is in use: its pools release unused memory that the grant no longer covers.
void pools_make_room(int device);
// What the device's pools have reserved and do not use: cuMemGetInfo does not call it free.
uint64_t unused_in_pools(int device);

}  // namespace tnr::cuda
