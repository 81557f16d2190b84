// What atom, red and multimem make of the old value and the operand.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "gpu_server/emulated_gpu/ptx/half.hpp"

namespace tnr::ptx {

// U: the unsigned type of the memory's size; F makes the new bits from the old and the operand's.
template <class U, auto F>
U update(std::byte* p, U operand) {
    U old = __atomic_load_n(reinterpret_cast<U*>(p), __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(reinterpret_cast<U*>(p), &old, F(old, operand), true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
    return old;
}

template <class U, class S>
U smaller(U a, U b) {
    return static_cast<S>(a) < static_cast<S>(b) ? a : b;
}
template <class U, class S>
U larger(U a, U b) {
    return static_cast<S>(a) > static_cast<S>(b) ? a : b;
}

inline uint32_t increment(uint32_t a, uint32_t limit) {
    return a >= limit ? 0 : a + 1;
}
inline uint32_t decrement(uint32_t a, uint32_t limit) {
    return a == 0 || a > limit ? limit : a - 1;
}

inline uint32_t add_f32(uint32_t a, uint32_t b) {
    return std::bit_cast<uint32_t>(std::bit_cast<float>(a) + std::bit_cast<float>(b));
}
inline uint64_t add_f64(uint64_t a, uint64_t b) {
    return std::bit_cast<uint64_t>(std::bit_cast<double>(a) + std::bit_cast<double>(b));
}
inline uint16_t add_f16(uint16_t a, uint16_t b) {
    return to_half(half_to_float(a) + half_to_float(b));
}
inline uint16_t add_bf16(uint16_t a, uint16_t b) {
    return to_bfloat(bfloat_to_float(a) + bfloat_to_float(b));
}

// A NaN loses.
template <bool Max, float (*Load)(uint16_t)>
uint16_t extreme(uint16_t a, uint16_t b) {
    float x = Load(a), y = Load(b);
    if (x != x) return b;
    if (y != y) return a;
    if (x == y) return (a >> 15) == Max ? b : a;  // -0 is below +0
    return (x < y) == Max ? b : a;
}

template <uint16_t (*F)(uint16_t, uint16_t)>
uint32_t on_halves(uint32_t a, uint32_t b) {
    return F(static_cast<uint16_t>(a), static_cast<uint16_t>(b)) |
           static_cast<uint32_t>(F(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16))) << 16;
}

}  // namespace tnr::ptx
