// Carves pieces out of ranges of addresses: best fit; free neighbours merge when they are given back. Knows nothing of
// devices or threads.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace tnr::cuda {

class RangeAllocator {
public:
    void add(uint64_t address, uint64_t bytes);  // also gives a piece back
    // The start of a piece of `bytes` at a multiple of `alignment` (a power of two); 0 when none is large enough.
    uint64_t take(uint64_t bytes, uint64_t alignment);
    // Exactly this piece, if all of it is free.
    bool take_at(uint64_t address, uint64_t bytes);
    uint64_t free_bytes() const { return free_bytes_; }

private:
    void insert(uint64_t address, uint64_t bytes);
    void remove(std::map<uint64_t, uint64_t>::iterator piece);
    void cut(std::map<uint64_t, uint64_t>::iterator piece, uint64_t address, uint64_t bytes);

    std::map<uint64_t, uint64_t> by_address_;          // address → bytes
    std::set<std::pair<uint64_t, uint64_t>> by_size_;  // bytes, address
    uint64_t free_bytes_ = 0;
};

}  // namespace tnr::cuda
