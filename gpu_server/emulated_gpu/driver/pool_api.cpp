// Stream-ordered allocation (cuMemAllocAsync) and cuMemPool*.
#include "api_client/base/numa.hpp"
#include "gpu_client/protocol/memory_places.hpp"
#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/graph_memory.hpp"
#include "gpu_server/emulated_gpu/driver/per_thread.hpp"
#include "gpu_server/emulated_gpu/driver/pool.hpp"

using namespace tnr::emulated;

namespace {

CUresult allocate_once(Pool& pool, uint64_t size, uint64_t& address) {
    uint64_t bytes = granules(size);
    if (!pool.take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    Allocation like;
    like.owner = pool.handle();
    like.access = pool.access;
    like.type = pool.type;
    CUresult result = pool.type == MemoryType::host ? place_on_host(size, like, address)
                                                    : place_on_device(pool.device, size, like, address);
    if (result != CUDA_SUCCESS) pool.put_back(bytes);
    return result;
}

CUresult allocate(Stream& stream, Pool& pool, uint64_t size, CUdeviceptr* out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (size == 0) return *out = 0, CUDA_SUCCESS;
    if (size > pool.device.memory_total) return CUDA_ERROR_OUT_OF_MEMORY;  // also keeps granules() from overflowing
    if (pool.type != MemoryType::device && is_capturing(stream)) return CUDA_ERROR_NOT_SUPPORTED;
    bool captured = false;
    CUresult capturing = capture_allocation(stream, pool, size, *out, captured);
    if (capturing || captured) return capturing;
    uint64_t address = 0;
    CUresult result = allocate_once(pool, size, address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {  // what is missing may be on its way back in some stream
        stream.context.synchronize();
        result = allocate_once(pool, size, address);
    }
    if (result == CUDA_SUCCESS) *out = address;
    return result;
}

// What the stream does when it gets there. Memory goes back even after a fault.
void release(uint64_t address, uint64_t buffer_id) {
    auto taken = driver().addresses.take(address, [&](const Allocation& a) { return a.buffer_id == buffer_id; });
    if (taken) give_back(*taken);
}

CUresult free_in_order(Stream& stream, CUdeviceptr address) {
    if (address == 0) return CUDA_SUCCESS;
    bool captured = false;
    CUresult capturing = capture_free(stream, address, captured);
    if (capturing || captured) return capturing;
    auto found = driver().addresses.find(address);
    if (found && found->in_graph) {
        auto allocation = found->begin == address ? free_outside(address) : nullptr;
        if (!allocation) return CUDA_ERROR_INVALID_VALUE;
        stream.context.submit(stream, [allocation] {});  // held until the stream gets here
        return CUDA_SUCCESS;
    }
    if (!found || found->begin != address || found->in_module) return CUDA_ERROR_INVALID_VALUE;
    bool of_pool = (found->type == MemoryType::host || found->type == MemoryType::managed) && found->owner;
    if (found->type != MemoryType::device && !of_pool) return CUDA_ERROR_INVALID_VALUE;
    bool first = false;
    driver().addresses.update(address, 1, [&](Allocation& allocation) {
        first = !allocation.freed && allocation.buffer_id == found->buffer_id;
        allocation.freed = true;
    });
    if (!first) return CUDA_ERROR_INVALID_VALUE;
    stream.context.submit(stream, [address, id = found->buffer_id] { release(address, id); });
    return CUDA_SUCCESS;
}

CUresult pool_attribute(Pool& pool, CUmemPool_attribute attribute, void* value) {
    auto* number = static_cast<cuuint64_t*>(value);
    auto* flag = static_cast<int*>(value);
    switch (attribute) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
            *flag = pool.reuse_event;
            break;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
            *flag = pool.reuse_opportunistic;
            break;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
            *flag = pool.reuse_internal;
            break;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
            *number = pool.release_threshold;
            break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
            *number = pool.amounts().reserved;
            break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
            *number = pool.amounts().reserved_high;
            break;
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
            *number = pool.amounts().used;
            break;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
            *number = pool.amounts().used_high;
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult set_pool_attribute(Pool& pool, CUmemPool_attribute attribute, void* value) {
    auto number = [&] { return *static_cast<cuuint64_t*>(value); };
    auto flag = [&] { return *static_cast<int*>(value); };
    switch (attribute) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
            pool.reuse_event = flag();
            break;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
            pool.reuse_opportunistic = flag();
            break;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
            pool.reuse_internal = flag();
            break;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
            pool.release_threshold = number();
            break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
            if (number() != 0) return CUDA_ERROR_INVALID_VALUE;  // it can only be reset
            attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool.reset_used_high() : pool.reset_reserved_high();
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

// Which may always use it.
bool is_own_place(const Pool& pool, const CUmemLocation& location) {
    if (pool.type != MemoryType::device && location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    return pool.type != MemoryType::host && location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           location.id == pool.device.ordinal;
}

template <class Call>
CUresult on_pool(CUmemoryPool handle, Call&& call) {
    return initialized([&]() -> CUresult {
        auto pool = find<Pool>(handle);
        return pool ? call(*pool) : CUDA_ERROR_INVALID_VALUE;
    });
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t size, CUstream handle) {
    return on_stream(
        handle, [&](Stream& stream) { return allocate(stream, *current_pool(stream.context.device), size, address); });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t size, CUmemoryPool pool_handle, CUstream handle) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        auto pool = find<Pool>(pool_handle);
        return pool ? allocate(stream, *pool, size, address) : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
    return on_stream(handle, [&](Stream& stream) { return free_in_order(stream, address); });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t size, CUstream stream) {
    return cuMemAllocAsync(address, size, per_thread(stream));
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, size_t size, CUmemoryPool pool, CUstream stream) {
    return cuMemAllocFromPoolAsync(address, size, pool, per_thread(stream));
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    return cuMemFreeAsync(address, per_thread(stream));
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice ordinal) {
    return initialized([&]() -> CUresult {
        Device* device = device_of(ordinal);
        if (!pool) return CUDA_ERROR_INVALID_VALUE;
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        *pool = default_pool(*device)->as<CUmemoryPool>();
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice ordinal) {
    return initialized([&]() -> CUresult {
        Device* device = device_of(ordinal);
        if (!pool) return CUDA_ERROR_INVALID_VALUE;
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        *pool = current_pool(*device)->as<CUmemoryPool>();
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
    return on_pool(handle, [&](Pool& pool) -> CUresult {
        Device* device = device_of(ordinal);
        if (pool.type != MemoryType::device || &pool.device != device) return CUDA_ERROR_INVALID_VALUE;
        if (auto chosen = find<Pool>(handle)) set_current_pool(std::move(chosen));
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
    return initialized([&]() -> CUresult {
        if (!pool || !properties) return CUDA_ERROR_INVALID_VALUE;
        const auto place = properties->location.type;
        const bool shared = properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
        const bool managed = properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
        if (place < CU_MEM_LOCATION_TYPE_INVALID || place > CU_MEM_LOCATION_TYPE_HOST_NUMA)
            return CUDA_ERROR_INVALID_VALUE;
        if (!managed && properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
        if (place == CU_MEM_LOCATION_TYPE_HOST && shared) return CUDA_ERROR_INVALID_VALUE;
        constexpr unsigned handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_WIN32 |
                                          CU_MEM_HANDLE_TYPE_WIN32_KMT | CU_MEM_HANDLE_TYPE_FABRIC;
        if (static_cast<unsigned>(properties->handleTypes) & ~handle_types) return CUDA_ERROR_INVALID_VALUE;
        if (shared) return CUDA_ERROR_NOT_SUPPORTED;
        const bool of_node = place == CU_MEM_LOCATION_TYPE_HOST_NUMA;
        if (of_node && !tnr::is_numa_node(properties->location.id)) return CUDA_ERROR_INVALID_VALUE;
        const bool of_device = place == CU_MEM_LOCATION_TYPE_DEVICE;
        if (!of_device && !managed && place != CU_MEM_LOCATION_TYPE_HOST && !of_node) return CUDA_ERROR_INVALID_VALUE;
        Device* device = of_device ? device_of(properties->location.id) : driver().devices.front().get();
        if (!device) return managed ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
        auto type = managed ? MemoryType::managed : of_device ? MemoryType::device : MemoryType::host;
        auto made = create_pool(*device, properties->maxSize, type);
        if (managed) made->access = ~uint64_t{0};
        *pool = made->as<CUmemoryPool>();
        return CUDA_SUCCESS;
    });
}

// What was allocated from it lives on until it is freed.
CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    return on_pool(handle, [](Pool& pool) { return destroy_pool(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes) {
    return on_pool(handle, [&](Pool& pool) -> CUresult {
        pool.shrink_to(bytes);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
    return on_pool(
        handle, [&](Pool& pool) { return value ? pool_attribute(pool, attribute, value) : CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
    return on_pool(handle, [&](Pool& pool) {
        return value ? set_pool_attribute(pool, attribute, value) : CUDA_ERROR_INVALID_VALUE;
    });
}

// Holds for what has been allocated as well as for what will be.
CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* descriptions, size_t count) {
    return on_pool(handle, [&](Pool& pool) -> CUresult {
        if (!descriptions && count) return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < count; ++i) {
            const CUmemLocation& location = descriptions[i].location;
            const auto flags = descriptions[i].flags;
            if (!tnr::is_access(flags)) return CUDA_ERROR_INVALID_VALUE;
            if (is_own_place(pool, location)) {
                if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_DEVICE;
                continue;
            }
            if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_of(location.id))
                return CUDA_ERROR_INVALID_DEVICE;
            uint64_t bit = uint64_t{1} << location.id;
            if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
                pool.access &= ~bit;
            } else {
                pool.access |= bit;
            }
        }
        driver().addresses.update(0, UINT64_MAX, [&](Allocation& allocation) {
            if (allocation.owner == pool.handle() && !allocation.in_graph) allocation.access = pool.access;
        });
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
    return on_pool(handle, [&](Pool& pool) -> CUresult {
        if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
        bool own = is_own_place(pool, *location);
        if (!own && (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !device_of(location->id)))
            return CUDA_ERROR_INVALID_VALUE;
        bool granted = own || pool.access >> location->id & 1;
        *flags = granted ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    });
}
