// Loops over the lanes of a warp. With all 32 the loop has a fixed trip count and no condition, so the compiler turns
// it into vector code: once for any x86-64, and once for processors with AVX2 and FMA, which is what nearly all are.
#pragma once

#include <emmintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "gpu_server/emulated_gpu/ptx/matrix.hpp"

// Operands may be the very same register, never partly overlap: lanes do not depend on each other.
#if defined(__clang__)
#define TNR_LANES_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TNR_LANES_INDEPENDENT _Pragma("GCC ivdep")
#endif
// `flatten`: what the loop calls must be compiled for the same processor, or it is a call for each lane.
#define TNR_FOR_WIDE_VECTORS [[gnu::target("avx2,fma,bmi,bmi2"), gnu::flatten]]

namespace tnr::ptx {

inline constexpr uint32_t all_lanes = ~0u;

// False while static objects are made: slower, not wrong.
inline const bool wide_vectors = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                 __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");

template <class F>
TNR_FOR_WIDE_VECTORS void for_all_lanes_wide(F f) {
    TNR_LANES_INDEPENDENT
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) f(lane);
}

template <class F>
inline void for_all_lanes(F f) {
    if (wide_vectors) return for_all_lanes_wide(f);
    TNR_LANES_INDEPENDENT
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) f(lane);
}

template <class F>
inline void for_lanes(uint32_t lanes, F f) {
    if (lanes == all_lanes) return for_all_lanes(f);
    for (; lanes; lanes &= lanes - 1) f(static_cast<uint32_t>(std::countr_zero(lanes)));
}

// d[lane] = f(lane). f must have no other effect: when some lanes are missing it is still asked for all, unless
// they are so few that one at a time is quicker.
template <class D, class F>
inline void assign_lanes(uint32_t lanes, D* d, F f) {
    if (lanes == all_lanes) return for_all_lanes([=](uint32_t l) { d[l] = f(l); });
    uint32_t but_four = lanes;
    for (int k = 0; k < 4; ++k) but_four &= but_four - 1;
    if (!but_four) return for_lanes(lanes, [=](uint32_t l) { d[l] = f(l); });
    for_all_lanes([=](uint32_t l) {
        auto value = f(l);
        d[l] = lanes >> l & 1 ? value : d[l];
    });
}

// All f(lane) of all 32 lanes, or'ed.
template <class T, class F>
TNR_FOR_WIDE_VECTORS T bits_of_lanes_wide(F f) {
    T bits = 0;
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) bits |= f(lane);
    return bits;
}

template <class T, class F>
inline T bits_of_lanes(F f) {
    if (wide_vectors) return bits_of_lanes_wide<T>(f);
    T bits = 0;
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) bits |= f(lane);
    return bits;
}

// The lanes for which f is true: computed as bytes, which vectorises, then one bit of each. f must have no effect.
template <class F>
inline uint32_t lanes_where(uint32_t lanes, F f) {
    alignas(32) uint8_t truth[warp_lanes];
    for_all_lanes([&truth, f](uint32_t l) { truth[l] = f(l) ? 0xff : 0; });
    auto* halves = reinterpret_cast<const __m128i*>(truth);
    auto low = static_cast<uint32_t>(_mm_movemask_epi8(_mm_load_si128(halves)));
    auto high = static_cast<uint32_t>(_mm_movemask_epi8(_mm_load_si128(halves + 1)));
    return (low | high << 16) & lanes;
}

}  // namespace tnr::ptx
