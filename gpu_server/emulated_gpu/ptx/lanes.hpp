// How a handler applies one scalar function to the active lanes.
#pragma once

#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {

template <auto H>
TNR_FOR_WIDE_VECTORS void with_wide_vectors(Warp& w, const Instr& i) {
    H(w, i);
}

// The handler as it suits the processor: with wide vectors all of it is compiled for them, not the loop in it alone, which saves
// a call for each instruction, and that what the loop needs goes through memory.
template <auto H>
Handler fitted() {
    return wide_vectors ? with_wide_vectors<H> : H;
}

template <class D, class A, auto F>
void apply_unary(Warp& w, const Instr& i) {
    auto* a = w.reg<A>(i.a);
    assign_lanes(w.active, w.reg<D>(i.dst), [=](uint32_t l) -> D { return F(a[l]); });
}

template <class D, class A, class B, auto F>
void apply_binary(Warp& w, const Instr& i) {
    auto* a = w.reg<A>(i.a);
    auto* b = w.reg<B>(i.b);
    assign_lanes(w.active, w.reg<D>(i.dst), [=](uint32_t l) -> D { return F(a[l], b[l]); });
}

template <class D, class A, class B, class C, auto F>
void apply_ternary(Warp& w, const Instr& i) {
    auto* a = w.reg<A>(i.a);
    auto* b = w.reg<B>(i.b);
    auto* c = w.reg<C>(i.c);
    assign_lanes(w.active, w.reg<D>(i.dst), [=](uint32_t l) -> D { return F(a[l], b[l], c[l]); });
}

template <class D, class A, auto F>
Handler unary() {
    return fitted<apply_unary<D, A, F>>();
}
template <class D, class A, class B, auto F>
Handler binary() {
    return fitted<apply_binary<D, A, B, F>>();
}
template <class D, class A, class B, class C, auto F>
Handler ternary() {
    return fitted<apply_ternary<D, A, B, C, F>>();
}

}  // namespace tnr::ptx
