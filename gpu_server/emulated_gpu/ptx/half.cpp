// See half.hpp.
#include "gpu_server/emulated_gpu/ptx/half.hpp"

#include <cfenv>

namespace tnr::ptx {

int host_rounding(Rounding rounding) {
    switch (rounding) {
        case Rounding::zero:
            return FE_TOWARDZERO;
        case Rounding::down:
            return FE_DOWNWARD;
        case Rounding::up:
            return FE_UPWARD;
        default:
            return FE_TONEAREST;
    }
}

double decode_bits_of(uint32_t bits, Format f) {
    uint32_t sign = bits >> (f.exponent + f.mantissa) & 1;
    uint32_t exponent = bits >> f.mantissa & ((1u << f.exponent) - 1);
    uint32_t mantissa = bits & ((1u << f.mantissa) - 1);
    int bias = (1 << (f.exponent - 1)) - 1;
    uint32_t top = (1u << f.exponent) - 1;
    double value;
    if (exponent == top && !f.finite)
        value = mantissa ? NAN : INFINITY;
    else if (exponent == top && !f.numbers_only && mantissa == (1u << f.mantissa) - 1)
        value = NAN;
    else if (exponent == 0)
        value = std::ldexp(mantissa, 1 - bias - f.mantissa);
    else
        value = std::ldexp(mantissa | 1u << f.mantissa, static_cast<int>(exponent) - bias - f.mantissa);
    return sign ? -value : value;
}

float half_to_float(uint16_t half) {
    uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 1023u;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
    float small = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(small));
}

namespace {

// Whether a magnitude cut at `shift` bits must be raised by one.
bool rounds_up(uint64_t magnitude, int shift, bool negative, Rounding rounding) {
    uint64_t rest = magnitude & ((uint64_t{1} << shift) - 1), half = uint64_t{1} << (shift - 1);
    if (rest == 0) return false;
    switch (rounding) {
        case Rounding::nearest:
            return rest > half || (rest == half && (magnitude >> shift & 1));
        case Rounding::away:
            return rest >= half;
        case Rounding::up:
            return !negative;
        case Rounding::down:
            return negative;
        case Rounding::zero:
            return false;
    }
    return false;
}

}  // namespace

uint32_t encode(double value, Format f, Rounding rounding, bool saturate) {
    auto bits = std::bit_cast<uint64_t>(value);
    bool negative = bits >> 63;
    uint32_t sign = negative ? 1u << (f.exponent + f.mantissa) : 0;
    uint32_t top = (1u << f.exponent) - 1;
    uint32_t infinity = top << f.mantissa;
    uint32_t nan = (1u << (f.exponent + f.mantissa)) - 1;
    uint32_t largest = f.numbers_only ? nan : f.finite ? nan - 1 : infinity - 1;
    // NaN is the canonical positive one, as the hardware makes.
    if (value != value) return nan;
    if (std::isinf(value)) return sign | (saturate ? largest : f.finite ? nan : infinity);
    int bias = (1 << (f.exponent - 1)) - 1;
    int exponent = static_cast<int>(bits >> 52 & 2047) - 1023;
    if (exponent == -1023) return sign;  // below anything the format can tell from zero, but for directed rounding
    uint64_t magnitude = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
    int shift = 52 - f.mantissa;
    if (exponent < 1 - bias) shift += 1 - bias - exponent;
    if (shift > 62) shift = 62;
    uint64_t kept = magnitude >> shift;
    if (rounds_up(magnitude, shift, negative, rounding)) ++kept;
    // A normal number's leading one carries into the exponent field, which makes every case one addition.
    uint64_t result = exponent < 1 - bias ? kept : kept + (static_cast<uint64_t>(exponent + bias - 1) << f.mantissa);
    if (result <= largest) return sign | static_cast<uint32_t>(result);
    bool stays = saturate || rounding == Rounding::zero || (rounding == Rounding::up && negative) ||
                 (rounding == Rounding::down && !negative);
    return sign | (stays ? largest : f.finite ? nan : infinity);
}

double fma_to_odd(double a, double b, double c) {
    double product = a * b;  // exact: halves and bfloats have few bits
    double sum = product + c;
    if (!std::isfinite(sum)) return sum;
    double shadow = sum - product;
    double error = (product - (sum - shadow)) + (c - shadow);
    auto bits = std::bit_cast<uint64_t>(sum);
    if (error == 0 || (bits & 1)) return sum;
    bits += (error > 0) == (sum > 0) ? 1 : ~uint64_t{0};
    return std::bit_cast<double>(bits);
}

}  // namespace tnr::ptx
