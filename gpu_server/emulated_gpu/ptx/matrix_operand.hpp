// What mma, wmma, ldmatrix and their kin have in common in the decoder: shapes, elements, and the registers of a
// fragment.
#pragma once

#include <vector>

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/matrix.hpp"

namespace tnr::ptx {

matrix::Shape take_shape(Decoder& d);
std::vector<matrix::Element> take_elements(Decoder& d);  // all there are, in order

// `count` registers of 32 or 64 bits, in braces or (if it is one) without: their place in Program::registers.
enum class Use : uint8_t { source, destination };
uint32_t register_list(Decoder& d, const ast::Operand& operand, uint32_t count, uint32_t bits, Use use);

inline void read_fragment(Decoder& d, const ast::Operand& operand, matrix::Fragment& f) {
    f.registers = register_list(d, operand, f.register_count, matrix::register_bits(f.element), Use::source);
}
inline void write_fragment(Decoder& d, const ast::Operand& operand, matrix::Fragment& f) {
    f.registers = register_list(d, operand, f.register_count, matrix::register_bits(f.element), Use::destination);
}

}  // namespace tnr::ptx
