// Sums and products of sizes that strangers name: UINT64_MAX where they do not fit.
#pragma once

#include <cstdint>

namespace tnr::worker {

inline uint64_t saturating_sum(uint64_t a, uint64_t b) {
    uint64_t result = 0;
    return __builtin_add_overflow(a, b, &result) ? UINT64_MAX : result;
}

inline uint64_t saturating_product(uint64_t a, uint64_t b) {
    uint64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

}  // namespace tnr::worker
