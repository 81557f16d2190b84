// See host_pools.hpp.
#include "gpu_client/cuda/host_pools.hpp"

#include <map>

#include "gpu_client/cuda/background_thread.hpp"
#include "gpu_client/cuda/host_memory.hpp"

namespace tnr::cuda {

namespace {
struct HostAllocation {
    uint64_t pool, bytes;
};
struct HostPools {
    Mutex mutex;
    uint64_t own TNR_GUARDED_BY(mutex) = 0, chosen TNR_GUARDED_BY(mutex) = 0;  // handles
    std::map<uint64_t, HostAllocation> by_address TNR_GUARDED_BY(mutex);
    size_t being_freed TNR_GUARDED_BY(mutex) = 0;
    Condition freed;
};
HostPools& host_pools() {
    static auto* all = new HostPools;
    return *all;
}
}  // namespace

uint64_t create_host_pool(bool is_default) {
    return create_pool(of_host, is_default);
}

uint64_t default_host_pool() {
    LockGuard lock(host_pools().mutex);
    if (host_pools().own == 0) host_pools().own = create_host_pool(true);
    return host_pools().own;
}

uint64_t chosen_host_pool() {
    {
        LockGuard lock(host_pools().mutex);
        if (host_pools().chosen != 0) return host_pools().chosen;
    }
    return default_host_pool();
}

bool choose_host_pool(uint64_t handle) {
    auto* pool = pools().find(handle);
    if (!pool || pool->device != of_host || pool->managed) return false;
    LockGuard lock(host_pools().mutex);
    host_pools().chosen = handle;
    return true;
}

void forget_choice(uint64_t pool) {
    LockGuard lock(host_pools().mutex);
    if (host_pools().chosen == pool) host_pools().chosen = 0;
}

CUresult allocate_from_host(MemoryPool& pool, uint64_t handle, uint64_t bytes, CUdeviceptr* out) {
    void* memory = nullptr;
    if (!has_room(pool, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    constexpr unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    if (auto result = allocate_pinned(&memory, bytes, flags, handle); result != CUDA_SUCCESS) return result;
    *out = value_of(memory);
    take_from_pool(pool, bytes);
    LockGuard lock(host_pools().mutex);
    host_pools().by_address[*out] = {handle, bytes};
    return CUDA_SUCCESS;
}

bool free_to_host(uint64_t address) {
    HostAllocation freed{};
    {
        LockGuard lock(host_pools().mutex);
        auto found = host_pools().by_address.find(address);
        if (found == host_pools().by_address.end()) return false;
        freed = found->second;
        host_pools().by_address.erase(found);
        ++host_pools().being_freed;
    }
    return_to_pool(freed.pool, freed.bytes);
    start_background_thread([address] {
        (void)free_pinned(handle_of<void*>(address));
        LockGuard lock(host_pools().mutex);
        --host_pools().being_freed;
        host_pools().freed.notify_all();
    });
    return true;
}

void await_frees_to_host() {
    UniqueLock lock(host_pools().mutex);
    host_pools().freed.wait(host_pools().mutex,
                            []() TNR_REQUIRES(host_pools().mutex) { return host_pools().being_freed == 0; });
}

}  // namespace tnr::cuda
