// What the files of the conversion group share: ops_convert.cpp (one value to another), ops_convert_packed.cpp (two values in
// one register, and formats too small for registers of their own) and ops_convert_stochastic.cpp (random rounding).
#pragma once

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"
#include "gpu_server/emulated_gpu/ptx/half.hpp"

namespace tnr::ptx::convert {

// sat: to [0, 1], or to the range of an integer; finite: to the largest value of the format, instead of infinity.
enum Flag : uint8_t { flag_ftz = 1, flag_sat = 2, flag_relu = 4, flag_finite = 8 };

// Rounding of a conversion, to a float's precision or (`integral`) to an integer value. It travels in Instr::count.
struct Mode {
    Rounding rounding = Rounding::nearest;
    bool integral = false;
};
inline Mode mode_of(const Instr& i) {
    return {static_cast<Rounding>(i.count & 7), (i.count & 8) != 0};
}
inline void finish(Instr& instr, RegRef dst, RegRef a, uint8_t flags, Mode mode) {
    instr.dst = dst;
    instr.a = a;
    instr.flags = flags;
    instr.count = static_cast<uint16_t>(static_cast<uint16_t>(mode.rounding) | (mode.integral ? 8 : 0));
}

// A pair of floats of a byte or less.
bool is_tiny(Type type);
// To f16x2 or bf16x2, and to and from such pairs.
void decode_packed(Decoder& d, Type to, Type from, uint8_t flags, Mode mode);
void decode_pack(Decoder& d);        // cvt.pack
void decode_stochastic(Decoder& d);  // cvt.rs
// To tf32, which lies in 32 bits.
void decode_tf32(Decoder& d, uint8_t flags, Mode mode);

}  // namespace tnr::ptx::convert
