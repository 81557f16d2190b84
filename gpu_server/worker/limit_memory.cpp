// See limit_memory.hpp.
#include "gpu_server/worker/limit_memory.hpp"

#include <algorithm>

#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/saturating.hpp"

namespace tnr::worker {

// CUDA's guide on dynamic parallelism: a level of depth may take 150 MB.
static constexpr uint64_t sync_level_bytes = uint64_t{150} << 20;

// 0: the limit makes the driver hold nothing that can be told beforehand.
static uint64_t bytes_per_unit(CUlimit limit) {
    switch (limit) {
        case CU_LIMIT_PRINTF_FIFO_SIZE:
        case CU_LIMIT_MALLOC_HEAP_SIZE:
            return 1;
        case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
            return sync_level_bytes;
        default:
            return 0;
    }
}

CUresult LimitMemory::set(CUcontext context, uint32_t device, CUlimit limit, uint64_t value) {
    if (bytes_per_unit(limit) == 0) return driver().cuCtxSetLimit(limit, value);
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
