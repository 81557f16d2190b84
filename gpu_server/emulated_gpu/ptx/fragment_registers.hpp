// Between a fragment's registers and its matrix, element by element; and the product of two such matrices.
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

// Rows of `a`, each depth long; rows of `b` and of `sums`, each of so many columns.
struct ProductShape {
    uint32_t rows, depth, columns;
};
// sums += a * b; `add(sum, left, right)` adds one product.
template <class T, class Sum, class Add>
void add_products(const ProductShape& shape, const T* a, const T* b, Sum* sums, Add&& add) {
    for (uint32_t row = 0; row < shape.rows; ++row)
        for (uint32_t k = 0; k < shape.depth; ++k) {
            const T left = a[row * shape.depth + k];
            const T* right = b + k * shape.columns;
            Sum* sum = sums + row * shape.columns;
            for (uint32_t column = 0; column < shape.columns; ++column) add(sum[column], left, right[column]);
        }
}

}  // namespace tnr::ptx
