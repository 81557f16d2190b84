// Accesses of 16 bytes that nobody sees half of. The compiler would ask a library for them, which takes locks; every
// processor that runs this has cmpxchg16b (-mcx16), and makes aligned vector loads and stores at once if it has AVX; memory
// of one thread alone (frames) need not be aligned.
#pragma once

#include <emmintrin.h>

#include <cstddef>

#include "gpu_server/emulated_gpu/ptx/types.hpp"

namespace tnr::ptx {

inline Wide read_wide(const std::byte* p) {
    return (Wide)_mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

inline void write_wide(std::byte* p, Wide value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), (__m128i)value);
}

inline Wide exchange_wide_if(std::byte* p, Wide expected, Wide wanted) {
    return __sync_val_compare_and_swap(reinterpret_cast<Wide*>(p), expected, wanted);
}

inline Wide swap_wide(std::byte* p, Wide value) {
    Wide old = read_wide(p), found;
    while ((found = exchange_wide_if(p, old, value)) != old) old = found;
    return old;
}

}  // namespace tnr::ptx
