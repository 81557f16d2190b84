// Small floating point formats by hand: C++20 has no type for them that both our compilers know.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tnr::ptx {

enum class Rounding : uint8_t { nearest, zero, down, up, away };
int host_rounding(Rounding rounding);  // for std::fesetround

// .ftz: a subnormal counts as zero of its sign.
inline float flushed(float value) {
    auto bits = std::bit_cast<uint32_t>(value);
    return (bits & 0x7f800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : value;
}

float half_to_float(uint16_t half);
inline float bfloat_to_float(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// A format of a sign, `exponent` and `mantissa` bits. `finite`: e4m3, which has no infinity. `numbers_only`: nor NaN.
struct Format {
    int exponent;
    int mantissa;
    bool finite = false;
    bool numbers_only = false;
};
inline constexpr Format half_format{5, 10}, bfloat_format{8, 7}, tf32_format{8, 10}, e5m2_format{5, 2},
    e4m3_format{4, 3, true}, e2m3_format{2, 3, true, true}, e3m2_format{3, 2, true, true},
    e2m1_format{2, 1, true, true};

// The nearest value of the format, as its bits. `saturate`: beyond the largest finite value gives that one.
uint32_t encode(double value, Format format, Rounding rounding, bool saturate = false);
double decode_bits_of(uint32_t bits, Format format);

inline uint16_t to_half(double value) {
    return static_cast<uint16_t>(encode(value, half_format, Rounding::nearest));
}
inline uint16_t to_bfloat(double value) {
    return static_cast<uint16_t>(encode(value, bfloat_format, Rounding::nearest));
}

// a*b+c such that rounding it once more to half or bfloat is right: rounded to odd in double.
double fma_to_odd(double a, double b, double c);

}  // namespace tnr::ptx
