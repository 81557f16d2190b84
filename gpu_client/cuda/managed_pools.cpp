// See managed_pools.hpp.
#include "gpu_client/cuda/managed_pools.hpp"

#include <map>
#include <utility>

#include "gpu_client/cuda/contexts.hpp"
#include "gpu_client/cuda/managed_memory.hpp"

namespace tnr::cuda {

namespace {
struct PoolsOfPlace {
    uint64_t own = 0, chosen = 0;  // handles
};
struct ManagedPools {
    using Place = std::pair<int, int>;  // type and number
    Mutex mutex;
    std::map<Place, PoolsOfPlace> by_place TNR_GUARDED_BY(mutex);

    PoolsOfPlace& at(const CUmemLocation& place) TNR_REQUIRES(mutex) {
        bool numbered = place.type == CU_MEM_LOCATION_TYPE_DEVICE || place.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
        return by_place[{place.type, numbered ? place.id : 0}];
    }
};
ManagedPools& managed_pools() {
    static auto* all = new ManagedPools;
    return *all;
}

uint64_t create(const CUmemLocation& place, bool is_default) {
    auto made = create_pool(of_host, is_default);
    auto& pool = *pools().find(made);
    pool.managed = true;
    pool.managed_on = place.type == CU_MEM_LOCATION_TYPE_DEVICE ? place.id : of_host;
    pool.open_to = ~uint64_t{0};
    return made;
}
}  // namespace

uint64_t create_managed_pool(const CUmemLocation& place) {
    return create(place, false);
}

uint64_t default_managed_pool(const CUmemLocation& place) {
    auto& all = managed_pools();
    LockGuard lock(all.mutex);
    auto& here = all.at(place);
    if (here.own == 0) here.own = create(place, true);
    return here.own;
}

uint64_t chosen_managed_pool(const CUmemLocation& place) {
    {
        auto& all = managed_pools();
        LockGuard lock(all.mutex);
        if (auto chosen = all.at(place).chosen; chosen != 0) return chosen;
    }
    return default_managed_pool(place);
}

bool choose_managed_pool(const CUmemLocation& place, uint64_t handle) {
    auto* pool = pools().find(handle);
    if (!pool || !pool->managed) return false;
    auto& all = managed_pools();
    LockGuard lock(all.mutex);
    all.at(place).chosen = handle;
    return true;
}

void forget_managed_choice(uint64_t pool) {
    auto& all = managed_pools();
    LockGuard lock(all.mutex);
    for (auto& [place, here] : all.by_place)
        if (here.chosen == pool) here.chosen = 0;
}

CUresult allocate_managed(MemoryPool& pool, uint64_t handle, uint64_t bytes, Context& of_stream, CUdeviceptr* out) {
    if (!has_room(pool, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    auto& device = *find_device(pool.managed_on != of_host ? pool.managed_on : of_stream.device);
    auto* primary = contexts().find(device.primary_context);
    auto& context = primary && primary->active ? *primary : of_stream;
    uint64_t address = 0;
    if (auto result = allocate_shared(context, SharedKind::managed, bytes, handle, address); result != CUDA_SUCCESS)
        return result;
    take_from_pool(pool, bytes);
    *out = address;
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda
