// Stream-ordered allocation. Our allocator is stream-ordered by nature (addresses are chosen here, mappings travel in
// order), so a pool is little more than a set of counters and preferences: memory_pools.hpp says what is counted.
#include <cstring>

#include "api_client/base/numa.hpp"
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/graph_memory.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/handles_for_others.hpp"
#include "gpu_client/cuda/host_pools.hpp"
#include "gpu_client/cuda/managed_pools.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/memory_pools.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/cuda/thread_state.hpp"
#include "gpu_client/protocol/memory_places.hpp"

namespace tnr::cuda {

namespace {

struct StreamInContext {
    StreamRef stream;
    Context* context = nullptr;
};
CUresult find_stream(CUstream handle, StreamInContext& found) {
    auto result = resolve_stream(handle, found.stream);
    if (result == CUDA_SUCCESS) result = context_of_stream(found.stream, found.context);
    return result == CUDA_SUCCESS ? refuse_work(found.stream) : result;
}

// The pool's device may be another than the stream's: then no stream of that one has it in order.
CUresult allocate_on(Device& device, uint64_t pool, uint64_t bytes, const StreamInContext& in, CUdeviceptr* out) {
    if (in.context->session.load()->lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    bool own = in.context->device == device.ordinal;
    auto* primary = own ? nullptr : contexts().find(device.primary_context);
    auto& owner = primary && primary->active ? *primary : *in.context;
    uint64_t address = 0;
    auto result = device.memory->allocate(owner, bytes, own ? in.stream.number + 1 : 0, pool, address);
    if (result == CUDA_SUCCESS) *out = address;
    return result;
}

CUresult allocate_from(uint64_t pool_handle, CUdeviceptr* out, size_t bytes, const StreamInContext& in) {
    auto* pool = pools().find(pool_handle);
    auto& stream = in.stream;
    if (!out || !pool || pool->imported) return CUDA_ERROR_INVALID_VALUE;
    bool in_host = pool->device == of_host;
    if (is_captured(stream)) return in_host ? CUDA_ERROR_NOT_SUPPORTED : capture_allocation(stream, bytes, *out);
    if (bytes == 0) {
        *out = 0;
        return CUDA_SUCCESS;
    }
    if (pool->managed) return allocate_managed(*pool, pool_handle, bytes, *in.context, out);
    if (in_host) return allocate_from_host(*pool, pool_handle, bytes, out);
    if (!has_room(*pool, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (auto result = allocate_on(*find_device(pool->device), pool_handle, bytes, in, out); result != CUDA_SUCCESS)
        return result;
    take_from_pool(*pool, bytes);
    return CUDA_SUCCESS;
}

CUresult number(CUmemPool_attribute attribute, MemoryPool& pool, void* value) {
    uint64_t answer = 0;
    LockGuard lock(amounts_mutex());
    switch (attribute) {
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
            answer = pool.release_threshold;
            break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
            answer = pool.amounts.reserved;
            break;
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
            answer = pool.amounts.used;
            break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
            answer = pool.amounts.reserved_high;
            break;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
            answer = pool.amounts.used_high;
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    std::memcpy(value, &answer, sizeof answer);
    return CUDA_SUCCESS;
}

bool is_of_host(const CUmemLocation& location) {
    return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

CUresult check_access(const MemoryPool& pool, const CUmemAccessDesc& wanted) {
    if (!is_access(wanted.flags)) return CUDA_ERROR_INVALID_VALUE;
    if (is_of_host(wanted.location) && pool.device == of_host)
        return wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
    bool sound = wanted.location.type == CU_MEM_LOCATION_TYPE_DEVICE && find_device(wanted.location.id);
    if (!sound) return CUDA_ERROR_INVALID_DEVICE;
    if (wanted.location.id == pool.device)  // its own device always may
        return wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
    int reachable = 0;
    if (pool.device == of_host) return CUDA_SUCCESS;
    if (wanted.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
        if (auto result = cuDeviceCanAccessPeer(&reachable, wanted.location.id, pool.device); result != CUDA_SUCCESS)
            return result;
    return reachable != 0 || wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// The worker opens all of the device's memory that is not the program's own mapping: allocations of several pools share
// blocks. It counts how often it was asked to.
CUresult set_access(MemoryPool& pool, const CUmemAccessDesc& wanted) {
    const int ordinal = wanted.location.id;
    const auto flags = wanted.flags;
    if (is_of_host(wanted.location)) return CUDA_SUCCESS;
    const uint64_t bit = uint64_t{1} << ordinal;
    bool open = flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (pool.device == of_host) open ? pool.open_to.fetch_or(bit) : pool.open_to.fetch_and(~bit);
    if (pool.device == of_host || ordinal == pool.device) return CUDA_SUCCESS;
    uint64_t before = open ? pool.open_to.fetch_or(bit) : pool.open_to.fetch_and(~bit);
    if (((before & bit) != 0) == open) return CUDA_SUCCESS;
    auto &owner = *find_device(pool.device), &other = *find_device(ordinal);
    if (open) owner.memory->reached_from(ordinal);
    RemoteCall call(wire::MemoryAccess<>{owner.number, other.number, static_cast<uint32_t>(flags)});
    call.on(owner);
    return call.send();
}

// What cuda.h knows; GPUs, too, support only some of it.
bool is_pool_kind(const CUmemPoolProps& properties) {
    auto type = properties.allocType;
    auto where = properties.location.type;
    return (type == CU_MEM_ALLOCATION_TYPE_PINNED || type == CU_MEM_ALLOCATION_TYPE_MANAGED) &&
           where <= CU_MEM_LOCATION_TYPE_HOST_NUMA &&
           (where >= CU_MEM_LOCATION_TYPE_DEVICE || type == CU_MEM_ALLOCATION_TYPE_MANAGED);
}

// A NUMA node's pool is like any other of the program's memory: the system decides where that lies.
CUresult check_pool_place(const CUmemLocation* location, CUmemAllocationType type) {
    if (!location) return CUDA_ERROR_INVALID_VALUE;
    CUmemPoolProps properties{};
    properties.allocType = type;
    properties.location = *location;
    if (!is_pool_kind(properties)) return CUDA_ERROR_INVALID_VALUE;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && !find_device(location->id)) return CUDA_ERROR_INVALID_DEVICE;
    if (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA && !is_numa_node(location->id))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

uint64_t create_pool_at(const CUmemLocation& location, CUmemAllocationType type) {
    if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) return create_managed_pool(location);
    return is_of_host(location) ? create_host_pool(false) : create_pool(location.id, false);
}

bool is_policy(CUmemPool_attribute attribute) {
    return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

// Only 0 may be set: the high watermark then counts from what is there now.
CUresult restart_watermark(CUmemPool_attribute attribute, MemoryPool& pool, uint64_t wanted) {
    bool of_used = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    if ((!of_used && attribute != CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) || wanted != 0) return CUDA_ERROR_INVALID_VALUE;
    LockGuard lock(amounts_mutex());
    if (of_used)
        pool.amounts.used_high = pool.amounts.used;
    else
        pool.amounts.reserved_high = pool.amounts.reserved;
    return CUDA_SUCCESS;
}

}  // namespace

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
    return guarded("cuDeviceGetDefaultMemPool", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        auto* found = find_device(device);
        if (!found) return CUDA_ERROR_INVALID_DEVICE;
        *out = handle_of<CUmemoryPool>(default_pool(*found));
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
    return guarded("cuDeviceGetMemPool", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        auto* found = find_device(device);
        if (!found) return CUDA_ERROR_INVALID_DEVICE;
        *out = handle_of<CUmemoryPool>(chosen_pool(*found));
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
    return guarded("cuDeviceSetMemPool", [&]() -> CUresult {
        auto* found = find_device(device);
        auto* pool = find_pool(handle);
        if (!found || !pool || pool->device != device || pool->imported) return CUDA_ERROR_INVALID_VALUE;
        found->pools.chosen = value_of(handle);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
    return guarded("cuMemGetDefaultMemPool", [&]() -> CUresult {
        if (auto result = check_pool_place(location, type); result != CUDA_SUCCESS) return result;
        bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
        if (!managed && !is_of_host(*location)) return cuDeviceGetDefaultMemPool(out, location->id);
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        *out = handle_of<CUmemoryPool>(managed ? default_managed_pool(*location) : default_host_pool());
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
    return guarded("cuMemGetMemPool", [&]() -> CUresult {
        if (auto result = check_pool_place(location, type); result != CUDA_SUCCESS) return result;
        bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
        if (!managed && !is_of_host(*location)) return cuDeviceGetMemPool(out, location->id);
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        *out = handle_of<CUmemoryPool>(managed ? chosen_managed_pool(*location) : chosen_host_pool());
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
    return guarded("cuMemSetMemPool", [&]() -> CUresult {
        if (check_pool_place(location, type) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
        bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
        if (!managed && !is_of_host(*location)) return cuDeviceSetMemPool(location->id, pool);
        bool chosen = managed ? choose_managed_pool(*location, value_of(pool)) : choose_host_pool(value_of(pool));
        return chosen ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
    return guarded("cuMemPoolCreate", [&]() -> CUresult {
        if (!out || !properties || !is_pool_kind(*properties)) return CUDA_ERROR_INVALID_VALUE;
        auto& location = properties->location;
        const bool managed = properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
        if (auto result = check_pool_place(&location, properties->allocType); result != CUDA_SUCCESS)
            return managed ? result : CUDA_ERROR_INVALID_VALUE;
        auto handles = static_cast<unsigned>(properties->handleTypes);
        constexpr unsigned handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_WIN32 |
                                          CU_MEM_HANDLE_TYPE_WIN32_KMT | CU_MEM_HANDLE_TYPE_FABRIC;
        if ((handles & ~handle_types) != 0) return CUDA_ERROR_INVALID_VALUE;
        if (location.type == CU_MEM_LOCATION_TYPE_HOST && handles != 0) return CUDA_ERROR_INVALID_VALUE;
        const bool can_share = location.type == CU_MEM_LOCATION_TYPE_DEVICE && !managed;
        const unsigned known = can_share ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
        if ((handles & ~known) != 0) return CUDA_ERROR_NOT_SUPPORTED;
        uint64_t made = create_pool_at(location, properties->allocType);
        auto& pool = *pools().find(made);
        pool.shareable = properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
        pool.bytes_max = properties->maxSize;
        *out = handle_of<CUmemoryPool>(made);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle) {
    return guarded("cuMemPoolDestroy", [&]() -> CUresult {
        auto* pool = find_pool(handle);
        if (!pool || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
        uint64_t chosen = value_of(handle);
        if (auto* device = find_device(pool->device))
            device->pools.chosen.compare_exchange_strong(chosen, 0);
        else
            pool->managed ? forget_managed_choice(chosen) : forget_choice(chosen);
        pools().destroy(value_of(handle));
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    return guarded("cuMemPoolTrimTo", [&]() -> CUresult {
        auto* pool = find_pool(handle);
        if (!pool) return CUDA_ERROR_INVALID_VALUE;
        auto* device = find_device(pool->device);
        {
            LockGuard lock(amounts_mutex());
            const uint64_t at_work = device ? device->memory->freed_bytes(value_of(handle)) : 0;
            pool->amounts.shrink_to(std::max<uint64_t>(keep, pool->amounts.used + at_work), pool_granule);
        }
        if (device) device->memory->trim_if_idle();
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
    return guarded("cuMemPoolSetAttribute", [&]() -> CUresult {
        auto* pool = find_pool(handle);
        if (!pool || !value) return CUDA_ERROR_INVALID_VALUE;
        if (is_policy(attribute)) {
            pool->reuse[attribute] = *static_cast<int*>(value) != 0;
            return CUDA_SUCCESS;
        }
        uint64_t wanted = *static_cast<uint64_t*>(value);
        if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
            pool->release_threshold = wanted;
            return CUDA_SUCCESS;
        }
        return restart_watermark(attribute, *pool, wanted);
    });
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
    return guarded("cuMemPoolGetAttribute", [&]() -> CUresult {
        auto* pool = find_pool(handle);
        if (!pool || !value) return CUDA_ERROR_INVALID_VALUE;
        if (!is_policy(attribute)) return number(attribute, *pool, value);
        *static_cast<int*>(value) = pool->reuse[attribute];
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* wanted, size_t count) {
    return guarded("cuMemPoolSetAccess", [&]() -> CUresult {
        auto* pool = find_pool(handle);
        if (!pool || (count > 0 && !wanted)) return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < count; ++i)
            if (auto result = check_access(*pool, wanted[i]); result != CUDA_SUCCESS) return result;
        for (size_t i = 0; i < count; ++i)
            if (auto result = set_access(*pool, wanted[i]); result != CUDA_SUCCESS) return result;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
    return guarded("cuMemPoolGetAccess", [&]() -> CUresult {
        auto* pool = find_pool(handle);
        if (!pool || !flags || !location) return CUDA_ERROR_INVALID_VALUE;
        bool of_program = is_of_host(*location) && pool->device == of_host;
        if (!of_program && (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !find_device(location->id)))
            return CUDA_ERROR_INVALID_VALUE;
        bool open = of_program || location->id == pool->device || (pool->open_to >> location->id & 1) != 0;
        *flags = open ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
    return guarded("cuMemAllocAsync", [&]() -> CUresult {
        StreamInContext in;
        if (auto result = find_stream(stream, in); result != CUDA_SUCCESS) return result;
        return allocate_from(chosen_pool(*find_device(in.context->device)), out, bytes, in);
    });
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream) {
    return guarded("cuMemAllocFromPoolAsync", [&]() -> CUresult {
        StreamInContext in;
        if (auto result = find_stream(stream, in); result != CUDA_SUCCESS) return result;
        return allocate_from(value_of(pool), out, bytes, in);
    });
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
    return guarded("cuMemFreeAsync", [&]() -> CUresult {
        StreamInContext in;
        if (auto result = find_stream(handle, in); result != CUDA_SUCCESS) return result;
        auto& stream = in.stream;
        if (is_captured(stream) || is_graph_memory(address)) return free_graph_memory(stream, address);
        if (is_opened_from_pool(address)) return close_memory(address);  // another process's: it only goes from here
        if (free_to_host(address)) return CUDA_SUCCESS;
        return free_memory(address, stream, *in.context);
    });
}

}  // extern "C"
