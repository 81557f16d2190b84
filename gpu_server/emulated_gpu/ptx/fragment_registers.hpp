// Between a fragment's registers and its matrix, element by element.
#pragma once

#include <algorithm>
#include <bit>

#include "gpu_server/emulated_gpu/ptx/collective.hpp"
#include "gpu_server/emulated_gpu/ptx/matrix.hpp"

namespace tnr::ptx {

// Elements in order, what lanes that do not take part would hold as zero.
template <class T, class Read>
void gather(Warp& w, const matrix::Fragment& f, uint32_t lanes, T* matrix, Read&& read) {
    std::fill_n(matrix, f.parts * f.rows * f.columns, T{});
    uint32_t per = f.per_register(), bits = matrix::bits_of(f.element);
    uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* place = &f.places[lane * f.elements];
        for (uint32_t r = 0; r < f.register_count; ++r) {
            RegRef ref = w.program->registers[f.registers + r];
            uint64_t word = bits == 64 ? w.reg_of<uint64_t>(lane, ref)[lane] : w.reg_of<uint32_t>(lane, ref)[lane];
            for (uint32_t e = 0; e < per; ++e, word >>= bits % 64) matrix[*place++] = read(word & mask);
        }
    }
}

template <class Bits>
void scatter(Warp& w, const matrix::Fragment& f, uint32_t lanes, Bits&& bits_at) {
    uint32_t per = f.per_register(), bits = matrix::bits_of(f.element);
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        auto lane = static_cast<uint32_t>(std::countr_zero(rest));
        auto* place = &f.places[lane * f.elements];
        for (uint32_t r = 0; r < f.register_count; ++r) {
            RegRef ref = w.program->registers[f.registers + r];
            uint64_t word = 0;
            for (uint32_t e = 0; e < per; ++e) word |= bits_at(*place++) << (bits * e);
            if (bits == 64)
                put(w, ref, lane, word);
            else
                put(w, ref, lane, static_cast<uint32_t>(word));
        }
    }
}

}  // namespace tnr::ptx
