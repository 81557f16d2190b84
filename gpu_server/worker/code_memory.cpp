// See code_memory.hpp.
#include "gpu_server/worker/code_memory.hpp"

#include <algorithm>

#include "gpu_server/worker/saturating.hpp"

namespace tnr::worker {

// In which the driver reserves memory. The supervisor is asked for whole ones, so that small images seldom need it.
static constexpr uint64_t code_block_bytes = uint64_t{2} << 20;

// UINT64_MAX: more than there can be.
static uint64_t needed_for(uint64_t bytes, uint64_t contexts) {
    const uint64_t all = saturating_product(bytes, std::max<uint64_t>(contexts, 1));
    return all > UINT64_MAX - code_block_bytes ? UINT64_MAX
                                               : (all + code_block_bytes - 1) / code_block_bytes * code_block_bytes;
}

bool CodeMemory::has_room_to_load(uint64_t bytes) const {
    return std::all_of(of_.begin(), of_.end(), [&](const OfDevice& of) {
        return needed_for(saturating_sum(bytes_, bytes), of.contexts) <= of.granted;
    });
}

bool CodeMemory::has_room_to_enter(uint32_t device) const {
    return needed_for(bytes_, of_[device].contexts + 1) <= of_[device].granted;
}

bool CodeMemory::load(uint64_t library, uint64_t bytes) {
    if (bytes == 0) return true;
    const uint64_t before = bytes_;
    bytes_ = saturating_sum(bytes_, bytes);
    if (charge() && libraries_.emplace(library, bytes).second) return true;
    bytes_ = before;
    give_back();
    return false;
}

bool CodeMemory::enter(CUcontext context, uint32_t device) {
    if (!contexts_.emplace(context, device).second) return true;  // by another number
    ++of_[device].contexts;
    if (charge()) return true;
    leave(context);
    return false;
}

void CodeMemory::unload(uint64_t library) {
    auto found = libraries_.find(library);
    if (found == libraries_.end()) return;
    bytes_ -= found->second;
    libraries_.erase(found);
    give_back();
}

void CodeMemory::leave(CUcontext context) {
    auto found = contexts_.find(context);
    if (found == contexts_.end()) return;
    --of_[found->second].contexts;
    contexts_.erase(found);
    give_back();
}

bool CodeMemory::charge() {
    for (uint32_t device = 0; device < of_.size(); ++device) {
        auto& [contexts, granted] = of_[device];
        const uint64_t needed = needed_for(bytes_, contexts);
        if (needed <= granted) continue;
        const uint64_t more = ask_and_wait(supervisor_, device, needed - granted, SupervisorLink::Exactly::yes);
        granted += more;
        if (needed > granted) return false;
    }
    return true;
}

void CodeMemory::give_back() {
    for (uint32_t device = 0; device < of_.size(); ++device) {
        auto& [contexts, granted] = of_[device];
        const uint64_t needed = needed_for(bytes_, contexts);
        if (needed >= granted) continue;
        supervisor_.give_back_memory(device, granted - needed);
        granted = needed;
    }
}

}  // namespace tnr::worker
