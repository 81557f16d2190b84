// How a handler applies one scalar function to the active lanes. With all 32 active the loop has a fixed
// trip count and no condition, so the compiler turns it into vector code.
#pragma once

#include "gpu_server/emulated_gpu/ptx/machine.hpp"

// Operands may be the very same register, never partly overlap: lanes do not depend on each other.
#if defined(__clang__)
#define TNR_LANES_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TNR_LANES_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace tnr::ptx {

template <class F>
inline void for_lanes(uint32_t lanes, F&& f) {
    if (lanes == all_lanes) {
        TNR_LANES_INDEPENDENT
        for (uint32_t lane = 0; lane < warp_lanes; ++lane) f(lane);
    } else {
        for (; lanes; lanes &= lanes - 1) f(static_cast<uint32_t>(std::countr_zero(lanes)));
    }
}

template <class D, class A, auto F>
void unary(Warp& w, const Instr& i) {
    auto* d = w.reg<D>(i.dst);
    auto* a = w.reg<A>(i.a);
    for_lanes(w.active, [=](uint32_t l) { d[l] = F(a[l]); });
}

template <class D, class A, class B, auto F>
void binary(Warp& w, const Instr& i) {
    auto* d = w.reg<D>(i.dst);
    auto* a = w.reg<A>(i.a);
    auto* b = w.reg<B>(i.b);
    for_lanes(w.active, [=](uint32_t l) { d[l] = F(a[l], b[l]); });
}

template <class D, class A, class B, class C, auto F>
void ternary(Warp& w, const Instr& i) {
    auto* d = w.reg<D>(i.dst);
    auto* a = w.reg<A>(i.a);
    auto* b = w.reg<B>(i.b);
    auto* c = w.reg<C>(i.c);
    for_lanes(w.active, [=](uint32_t l) { d[l] = F(a[l], b[l], c[l]); });
}

// A result per lane as a predicate: computed as bytes, which vectorises, then packed.
template <class F>
inline uint32_t lanes_where(uint32_t lanes, F&& f) {
    uint32_t bits = 0;
    if (lanes == all_lanes) {
        alignas(32) uint8_t truth[warp_lanes];
        TNR_LANES_INDEPENDENT
        for (uint32_t lane = 0; lane < warp_lanes; ++lane) truth[lane] = f(lane) ? 1 : 0;
        for (uint32_t at = 0; at < warp_lanes; at += 8) {
            uint64_t eight;
            std::memcpy(&eight, truth + at, 8);
            bits |= static_cast<uint32_t>((eight * 0x0102040810204080u) >> 56) << at;
        }
    } else {
        for (; lanes; lanes &= lanes - 1) {
            auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
            bits |= f(lane) ? 1u << lane : 0u;
        }
    }
    return bits;
}

}  // namespace tnr::ptx
