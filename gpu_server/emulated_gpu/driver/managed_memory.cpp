// Advice on managed memory. It is plain host memory here, always everywhere: advice is kept for those who ask.
#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"
#include "gpu_server/emulated_gpu/driver/per_thread.hpp"

#include "gpu_client/protocol/memory_advice.hpp"

using namespace tnr::emulated;

namespace {

struct Advice {
    tnr::Mutex mutex;
    tnr::MemoryAdvice said TNR_GUARDED_BY(mutex);

    static Advice& get() {
        static Advice& advice = *new Advice;
        return advice;
    }
};

CUresult check_managed(CUdeviceptr address, size_t size) {
    auto found = driver().addresses.find(address);
    bool managed = size && found && found->type == MemoryType::managed && size <= found->end() - address;
    return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_place(const CUmemLocation& location) {
    switch (location.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            return device_of(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
        case CU_MEM_LOCATION_TYPE_HOST:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult prefetch(CUdeviceptr address, size_t size, const CUmemLocation& location, unsigned long long flags,
                  CUstream handle) {
    return on_stream(handle, [&](Stream&) -> CUresult {
        if (flags) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = check_managed(address, size)) return error;
        if (CUresult error = check_place(location)) return error;
        tnr::LockGuard lock(Advice::get().mutex);
        Advice::get().said.prefetched(address, size, location);
        return CUDA_SUCCESS;
    });
}

CUresult check_batch(const CUdeviceptr* addresses, const size_t* sizes, size_t count, unsigned long long flags,
                     CUstream handle) {
    if (!addresses || !sizes || count == 0 || flags) return CUDA_ERROR_INVALID_VALUE;
    if (!handle || handle == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
    return on_stream(handle, [&](Stream&) -> CUresult {
        for (size_t i = 0; i < count; ++i)
            if (CUresult error = check_managed(addresses[i], sizes[i])) return error;
        return CUDA_SUCCESS;
    });
}

CUresult prefetch_all(const CUdeviceptr* addresses, const size_t* sizes, size_t count, const CUmemLocation* locations,
                      const size_t* first, size_t locations_count, unsigned long long flags, CUstream stream) {
    if (!tnr::sound_batch(addresses, sizes, count, locations, first, locations_count)) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = check_batch(addresses, sizes, count, flags, stream)) return error;
    for (size_t i = 0; i < count; ++i) {
        auto where = tnr::location_in_batch(i, locations, first, locations_count);
        if (CUresult error = prefetch(addresses[i], sizes[i], where, 0, stream)) return error;
    }
    return CUDA_SUCCESS;
}

// Only checked: the memory can be used from everywhere at any time.
CUresult attach(CUdeviceptr address, size_t size, unsigned flags, CUstream handle) {
    return on_stream(handle, [&](Stream&) -> CUresult {
        auto found = driver().addresses.find(address);
        bool whole = found && found->type == MemoryType::managed && found->begin == address &&
                     (size == 0 || size == found->size);
        // A module's variables are one allocation; how large each of them is, is not looked up.
        if (found && found->type == MemoryType::managed && found->in_module)
            whole = size <= found->begin + found->size - address;
        bool single = flags == CU_MEM_ATTACH_SINGLE && handle && handle != CU_STREAM_LEGACY;
        bool sound = whole && (single || flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
        return sound ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

}  // namespace

namespace tnr::emulated {

void forget_advice(const Allocation& allocation) {
    LockGuard lock(Advice::get().mutex);
    Advice::get().said.forget(allocation.begin, allocation.size);
}

}  // namespace tnr::emulated

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location) {
    return in_context([&](Context&) -> CUresult {
        if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
            return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = check_managed(address, size)) return error;
        bool placed = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice >= CU_MEM_ADVISE_SET_ACCESSED_BY;
        if (CUresult error = placed ? check_place(location) : CUDA_SUCCESS) return error;
        if (!tnr::fits_advice(advice, location)) return CUDA_ERROR_INVALID_VALUE;
        tnr::LockGuard lock(Advice::get().mutex);
        Advice::get().said.advise(address, size, advice, location);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device) {
    return cuMemAdvise_v2(address, size, advice, tnr::location_of(device));
}

CUresult cuMemRangeGetAttribute(void* data, size_t data_size, CUmem_range_attribute attribute, CUdeviceptr address,
                                size_t size) {
    return in_context([&](Context&) -> CUresult {
        if (CUresult error = check_managed(address, size)) return error;
        tnr::LockGuard lock(Advice::get().mutex);
        return Advice::get().said.answer(data, data_size, attribute, address, size);
    });
}

CUresult cuMemRangeGetAttributes(void** data, size_t* sizes, CUmem_range_attribute* attributes, size_t count,
                                 CUdeviceptr address, size_t size) {
    if (!data || !sizes || !attributes || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i)
        if (CUresult error = cuMemRangeGetAttribute(data[i], sizes[i], attributes[i], address, size)) return error;
    return CUDA_SUCCESS;
}

TNR_LATER(cuMemPrefetchAsync_v2,
          (CUdeviceptr address, size_t size, CUmemLocation location, unsigned flags, CUstream stream),
          prefetch(address, size, location, flags, stream))
TNR_LATER(cuMemPrefetchAsync, (CUdeviceptr address, size_t size, CUdevice device, CUstream stream),
          prefetch(address, size, tnr::location_of(device), 0, stream))
TNR_LATER(cuMemPrefetchBatchAsync,
          (CUdeviceptr * addresses, size_t* sizes, size_t count, CUmemLocation* locations, size_t* first,
           size_t locations_count, unsigned long long flags, CUstream stream),
          prefetch_all(addresses, sizes, count, locations, first, locations_count, flags, stream))
// What is discarded may hold anything, so also what it did.
TNR_LATER(cuMemDiscardBatchAsync,
          (CUdeviceptr * addresses, size_t* sizes, size_t count, unsigned long long flags, CUstream stream),
          check_batch(addresses, sizes, count, flags, stream))
TNR_LATER(cuMemDiscardAndPrefetchBatchAsync,
          (CUdeviceptr * addresses, size_t* sizes, size_t count, CUmemLocation* locations, size_t* first,
           size_t locations_count, unsigned long long flags, CUstream stream),
          prefetch_all(addresses, sizes, count, locations, first, locations_count, flags, stream))
TNR_LATER(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr address, size_t size, unsigned flags),
          attach(address, size, flags, stream))
