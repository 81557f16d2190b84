// See limit_memory.hpp.
#include "gpu_server/worker/limit_memory.hpp"

#include <algorithm>

#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/saturating.hpp"

namespace tnr::worker {

// CUDA's guide on dynamic parallelism: a level of depth may take 150 MB.
static constexpr uint64_t sync_level_bytes = uint64_t{150} << 20;
// Local memory of a thread, on each GPU since compute capability 3.0.
static constexpr uint64_t stack_bytes_max = 512 << 10;

// Threads that the GPU of the current context can have at once: the driver keeps a stack for each, whatever is launched.
static uint64_t resident_threads() {
    CUdevice device = 0;
    int multiprocessors = 0, threads = 0;
    auto& gpu = driver();
    if (gpu.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        gpu.cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS ||
        gpu.cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device) != CUDA_SUCCESS)
        return 0;
    return static_cast<uint64_t>(multiprocessors) * static_cast<uint64_t>(threads);
}

// 0: the limit makes the driver hold nothing that can be told beforehand.
static uint64_t bytes_per_unit(CUlimit limit) {
    switch (limit) {
        case CU_LIMIT_PRINTF_FIFO_SIZE:
        case CU_LIMIT_MALLOC_HEAP_SIZE:
            return 1;
        case CU_LIMIT_STACK_SIZE:
            return resident_threads();
        case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
            return sync_level_bytes;
        default:
            return 0;
    }
}

CUresult LimitMemory::set(CUcontext context, uint32_t device, CUlimit limit, uint64_t value) {
    // The driver refuses such a stack, and says that it is no value rather than that there is no memory for it.
    const bool no_stack = limit == CU_LIMIT_STACK_SIZE && value > stack_bytes_max;
    if (no_stack || bytes_per_unit(limit) == 0) return driver().cuCtxSetLimit(limit, value);
    auto found = charges_.find({context, limit});
    if (found == charges_.end()) {
        size_t first = 0;
        if (!driver().cuCtxGetLimit) return CUDA_ERROR_NOT_SUPPORTED;
        if (auto result = driver().cuCtxGetLimit(&first, limit); result != CUDA_SUCCESS) return result;
        found = charges_.emplace(std::pair{context, limit}, Charge{device, first}).first;
    }
    return set_charged(found->second, limit, value);
}

CUresult LimitMemory::set_charged(Charge& charge, CUlimit limit, uint64_t value) {
    const uint64_t had = charge.bytes;
    const uint64_t wants = saturating_product(value - std::min(value, charge.uncharged), bytes_per_unit(limit));
    if (wants > had) {
        if (ask_and_wait(supervisor_, charge.device, wants - had, SupervisorLink::Exactly::yes) == 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        charge.bytes = wants;
    }
    auto result = driver().cuCtxSetLimit(limit, value);
    const uint64_t needs = result == CUDA_SUCCESS ? wants : had;
    if (needs < charge.bytes) supervisor_.give_back_memory(charge.device, charge.bytes - needs);
    charge.bytes = needs;
    return result;
}

void LimitMemory::forget(CUcontext context) {
    std::erase_if(charges_, [&](const auto& entry) {
        auto& [whose, charge] = entry;
        if (whose.first != context) return false;
        if (charge.bytes > 0) supervisor_.give_back_memory(charge.device, charge.bytes);
        return true;
    });
}

uint64_t LimitMemory::charged(uint32_t device) const {
    uint64_t bytes = 0;
    for (auto& [whose, charge] : charges_)
        if (charge.device == device) bytes += charge.bytes;
    return bytes;
}

}  // namespace tnr::worker
