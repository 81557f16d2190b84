// Who may use how much of one GPU's memory. The sum of what is granted never exceeds what the GPU has, less a reserve, nor
// what its claim may use.
//
// A session starts with nothing and asks rarely: it gets more than it asked for while there is plenty, and exactly that
// when there is not. All it gets on top leaves half of the memory to the machine's other processes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

class MemoryLedger {
public:
    void set_size(uint64_t memory_bytes) {
        size_ = memory_bytes - std::min(memory_bytes / reserve_share, reserve_bytes_max);
    }
    // What the claim that has the GPU may use of it; it holds until the next claim's.
    void limit_claim(uint64_t bytes) { claim_max_ = bytes; }
    uint64_t left() const { return size() - std::min(size(), granted_); }
    uint64_t size() const { return std::min(size_, claim_max_); }

    // All or nothing.
    uint64_t answer_exactly(uint64_t wanted) const { return wanted > left() ? 0 : wanted; }
    // Likewise, with something on top while there is plenty. `before`: what the session has already.
    uint64_t answer(uint64_t wanted, uint64_t before) const {
        if (wanted > left()) return 0;
        uint64_t half = round_down(size() / 2);
        return std::max(wanted, std::min(round_down(left() / 2), half - std::min(half, before)));
    }
    void grant(uint64_t bytes) { granted_ += bytes; }
    void take_back(uint64_t bytes) { granted_ -= std::min(bytes, granted_); }

private:
    static uint64_t round_down(uint64_t bytes) { return bytes & ~((uint64_t{2} << 20) - 1); }  // the driver's blocks
    uint64_t size_ = 0;
    uint64_t claim_max_ = UINT64_MAX;
    uint64_t granted_ = 0;
};

}  // namespace tnr::server
