// Memory pools that the processes of a claim share. A pool is a count of bytes and nothing that could be lent, so an
// event stands for it; what it allocates is lent like other memory.
#include "gpu_client/cuda/events.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/handles_for_others.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/memory_pools.hpp"
#include "gpu_client/cuda/thread_state.hpp"

using namespace tnr;
using namespace tnr::cuda;
using Kind = HandleForOthers::Kind;

namespace {

// Pools need no context, events do: where the thread has none, it is the primary one of the pool's device.
template <class Call>
CUresult in_a_context(int device, Call&& call) {
    if (current_context_handle() != 0) return call();
    CUcontext primary = nullptr;
    if (auto result = cuDevicePrimaryCtxRetain(&primary, device); result != CUDA_SUCCESS) return result;
    auto result = cuCtxPushCurrent_v2(primary);
    if (result == CUDA_SUCCESS) {
        result = call();
        (void)cuCtxPopCurrent_v2(&primary);
    }
    (void)cuDevicePrimaryCtxRelease_v2(device);
    return result;
}

CUresult event_of(MemoryPool& pool, CUevent& event) {
    event = handle_of<CUevent>(pool.stands_for.load());
    if (event) return CUDA_SUCCESS;
    auto result = in_a_context(pool.device,
                               [&] { return cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING); });
    uint64_t none = 0;
    if (result != CUDA_SUCCESS || pool.stands_for.compare_exchange_strong(none, value_of(event))) return result;
    (void)cuEventDestroy_v2(event);  // another thread was first
    event = handle_of<CUevent>(none);
    return CUDA_SUCCESS;
}

// The same each time.
CUresult name_of(MemoryPool& pool, wire::ThingName& name) {
    CUevent event = nullptr;
    auto result = event_of(pool, event);
    return result == CUDA_SUCCESS ? lend_event(event, name) : result;
}

CUresult export_pool(void* out, MemoryPool& pool) {
    HandleForOthers handle;
    handle.kind = Kind::pool;
    handle.offset = find_device(pool.device)->number;
    if (auto result = name_of(pool, handle.name); result != CUDA_SUCCESS) return result;
    int descriptor = to_descriptor(handle);
    if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(out) = descriptor;
    return CUDA_SUCCESS;
}

CUresult import_pool(CUmemoryPool* out, const HandleForOthers& handle) {
    for (auto* device : devices()) {
        if (device->number != handle.offset) continue;
        CUevent event = nullptr;
        auto result = in_a_context(device->ordinal, [&] { return borrow_event(handle.name, event); });
        if (result != CUDA_SUCCESS) return result;
        (void)cuEventDestroy_v2(event);
        uint64_t made = create_pool(device->ordinal, false);
        auto* pool = pools().find(made);
        pool->imported = true;
        pool->name = handle.name;
        *out = handle_of<CUmemoryPool>(made);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemPoolExportToShareableHandle(void* out, CUmemoryPool handle, CUmemAllocationHandleType type,
                                                  unsigned long long flags) {
    return guarded("cuMemPoolExportToShareableHandle", [&]() -> CUresult {
        auto* pool = find_pool(handle);
        if (!out || !pool || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (auto result = check_handle_type(type); result != CUDA_SUCCESS) return result;
        return pool->shareable ? export_pool(out, *pool) : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult CUDAAPI cuMemPoolImportFromShareableHandle(CUmemoryPool* out, void* os_handle, CUmemAllocationHandleType type,
                                                    unsigned long long flags) {
    return guarded("cuMemPoolImportFromShareableHandle", [&]() -> CUresult {
        if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (auto result = check_handle_type(type); result != CUDA_SUCCESS) return result;
        HandleForOthers handle;
        bool sound = from_descriptor(static_cast<int>(reinterpret_cast<intptr_t>(os_handle)), handle);
        return sound && handle.is(Kind::pool) ? import_pool(out, handle) : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult CUDAAPI cuMemPoolExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr address) {
    return guarded("cuMemPoolExportPointer", [&]() -> CUresult {
        Allocation found;
        if (!out || !find_allocation(address, found)) return CUDA_ERROR_INVALID_VALUE;
        auto* pool = pools().find(found.pool);
        if (!pool || !pool->shareable) return CUDA_ERROR_INVALID_VALUE;
        HandleForOthers handle;
        auto result = lend_memory(address, Kind::pool_memory, handle);
        if (result == CUDA_SUCCESS) result = name_of(*pool, handle.of_pool);
        if (result == CUDA_SUCCESS) std::memcpy(out, &handle, sizeof handle);
        return result;
    });
}

CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr* out, CUmemoryPool handle, CUmemPoolPtrExportData* data) {
    return guarded("cuMemPoolImportPointer", [&]() -> CUresult {
        auto* pool = find_pool(handle);
        if (!out || !data || !pool || !pool->imported) return CUDA_ERROR_INVALID_VALUE;
        auto given = handle_in(*data);
        // Programs try pointers on their pools until one takes it.
        bool its = given.is(Kind::pool_memory) && given.of_pool == pool->name;
        return its ? open_memory(given, *out) : CUDA_ERROR_INVALID_VALUE;
    });
}

}  // extern "C"
