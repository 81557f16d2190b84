// How a handler applies one scalar function to the active lanes.
#pragma once

#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {

template <class D, class A, auto F>
void unary(Warp& w, const Instr& i) {
    auto* a = w.reg<A>(i.a);
    assign_lanes(w.active, w.reg<D>(i.dst), [=](uint32_t l) -> D { return F(a[l]); });
}

template <class D, class A, class B, auto F>
void binary(Warp& w, const Instr& i) {
    auto* a = w.reg<A>(i.a);
    auto* b = w.reg<B>(i.b);
    assign_lanes(w.active, w.reg<D>(i.dst), [=](uint32_t l) -> D { return F(a[l], b[l]); });
}

template <class D, class A, class B, class C, auto F>
void ternary(Warp& w, const Instr& i) {
    auto* a = w.reg<A>(i.a);
    auto* b = w.reg<B>(i.b);
    auto* c = w.reg<C>(i.c);
    assign_lanes(w.active, w.reg<D>(i.dst), [=](uint32_t l) -> D { return F(a[l], b[l], c[l]); });
}

}  // namespace tnr::ptx
