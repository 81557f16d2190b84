// What programs say about managed memory: where it will be used. It moves when somebody touches it, so advice is kept for
// those who ask; memory that was prefetched to the host comes over in larger pieces.
#include "gpu_client/cuda/managed_advice.hpp"
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/shared_pages.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/protocol/memory_advice.hpp"

namespace tnr::cuda {

namespace {
struct Advice {
    Mutex mutex;
    MemoryAdvice said TNR_GUARDED_BY(mutex);
};
Advice& advice() {
    static auto* all = new Advice;
    return *all;
}

CUresult find_managed(uint64_t address, uint64_t bytes, SharedMemory& found) {
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    bool there =
        bytes != 0 && find_shared(address, found) && found.is_managed() && bytes <= found.host + found.bytes - address;
    return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_place(const CUmemLocation& where) {
    switch (where.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            return find_device(where.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
        case CU_MEM_LOCATION_TYPE_HOST:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult advise(uint64_t address, uint64_t bytes, CUmem_advise what, CUmemLocation where) {
    if (what < CU_MEM_ADVISE_SET_READ_MOSTLY || what > CU_MEM_ADVISE_UNSET_ACCESSED_BY) return CUDA_ERROR_INVALID_VALUE;
    SharedMemory found;
    if (auto result = find_managed(address, bytes, found); result != CUDA_SUCCESS) return result;
    bool placed = what == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || what == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                  what == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (placed)
        if (auto result = check_place(where); result != CUDA_SUCCESS) return result;
    if (!fits_advice(what, where)) return CUDA_ERROR_INVALID_VALUE;
    LockGuard lock(advice().mutex);
    advice().said.advise(address, bytes, what, where);
    return CUDA_SUCCESS;
}

CUresult check_stream(CUstream handle) {
    StreamRef stream;
    if (auto result = resolve_stream(handle, stream); result != CUDA_SUCCESS) return result;
    return is_captured(stream) ? refuse_in_capture(stream) : refuse_work(stream);
}

CUresult prefetch(uint64_t address, uint64_t bytes, CUmemLocation where, unsigned long long flags, CUstream stream) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = check_stream(stream); result != CUDA_SUCCESS) return result;
    SharedMemory found;
    if (auto result = find_managed(address, bytes, found); result != CUDA_SUCCESS) return result;
    if (auto result = check_place(where); result != CUDA_SUCCESS) return result;
    expect_touches(address, bytes, where.type != CU_MEM_LOCATION_TYPE_DEVICE);
    LockGuard lock(advice().mutex);
    advice().said.prefetched(address, bytes, where);
    return CUDA_SUCCESS;
}

CUresult check_batch(const CUdeviceptr* addresses, const size_t* sizes, size_t count, unsigned long long flags,
                     CUstream stream) {
    if (!addresses || !sizes || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!stream || stream == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
        SharedMemory found;
        if (auto result = find_managed(addresses[i], sizes[i], found); result != CUDA_SUCCESS) return result;
    }
    return check_stream(stream);
}

CUresult prefetch_all(const CUdeviceptr* addresses, const size_t* sizes, size_t count, const CUmemLocation* locations,
                      const size_t* first, size_t locations_count, unsigned long long flags, CUstream stream) {
    if (!sound_batch(addresses, sizes, count, locations, first, locations_count)) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = check_batch(addresses, sizes, count, flags, stream); result != CUDA_SUCCESS) return result;
    for (size_t i = 0; i < count; ++i) {
        auto where = location_in_batch(i, locations, first, locations_count);
        if (auto result = prefetch(addresses[i], sizes[i], where, 0, stream); result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

}  // namespace

void forget_advice(uint64_t address, uint64_t bytes) {
    LockGuard lock(advice().mutex);
    advice().said.forget(address, bytes);
}

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise what, CUmemLocation where) {
    return guarded("cuMemAdvise", [&] { return advise(address, bytes, what, where); });
}
CUresult CUDAAPI cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise what, CUdevice device) {
    return guarded("cuMemAdvise", [&] { return advise(address, bytes, what, location_of(device)); });
}

CUresult CUDAAPI cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation where, unsigned int flags,
                                       CUstream stream) {
    return guarded("cuMemPrefetchAsync", [&] { return prefetch(address, bytes, where, flags, stream); });
}
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
    return guarded("cuMemPrefetchAsync", [&] { return prefetch(address, bytes, location_of(device), 0, stream); });
}

CUresult CUDAAPI cuMemPrefetchBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count, CUmemLocation* locations,
                                         size_t* first, size_t locations_count, unsigned long long flags,
                                         CUstream stream) {
    return guarded("cuMemPrefetchBatchAsync", [&] {
        return prefetch_all(addresses, sizes, count, locations, first, locations_count, flags, stream);
    });
}

// What is discarded may hold anything, so also what it did.
CUresult CUDAAPI cuMemDiscardBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count, unsigned long long flags,
                                        CUstream stream) {
    return guarded("cuMemDiscardBatchAsync", [&] { return check_batch(addresses, sizes, count, flags, stream); });
}
CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                                   CUmemLocation* locations, size_t* first, size_t locations_count,
                                                   unsigned long long flags, CUstream stream) {
    return guarded("cuMemDiscardAndPrefetchBatchAsync", [&] {
        return prefetch_all(addresses, sizes, count, locations, first, locations_count, flags, stream);
    });
}

CUresult CUDAAPI cuMemRangeGetAttribute(void* data, size_t size, CUmem_range_attribute attribute, CUdeviceptr address,
                                        size_t bytes) {
    return guarded("cuMemRangeGetAttribute", [&]() -> CUresult {
        SharedMemory found;
        if (auto result = find_managed(address, bytes, found); result != CUDA_SUCCESS) return result;
        LockGuard lock(advice().mutex);
        return advice().said.answer(data, size, attribute, address, bytes);
    });
}

CUresult CUDAAPI cuMemRangeGetAttributes(void** data, size_t* sizes, CUmem_range_attribute* attributes, size_t count,
                                         CUdeviceptr address, size_t bytes) {
    if (!data || !sizes || !attributes || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
        auto result = cuMemRangeGetAttribute(data[i], sizes[i], attributes[i], address, bytes);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

}  // extern "C"
