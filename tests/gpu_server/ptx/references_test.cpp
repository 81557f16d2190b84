// Single instructions on many operands, the corners of each type among them, beside references in plain C++ that are
// written from the PTX ISA's text and share nothing with the interpreter.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/gpu_server/ptx/bench.hpp"
#include "tests/gpu_server/ptx/reference.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

std::string to32(const std::string& instruction) {
    return instruction + " cvt.u64.u32 %o, %d;";
}
std::string to16(const std::string& instruction) {
    return instruction + " cvt.u64.u16 %o, %k;";
}
std::string to_predicate(const std::string& instruction) {
    return instruction + " selp.b64 %o, 1, 0, %p;";
}
uint64_t float_word(float value) {
    return value == value ? std::bit_cast<uint32_t>(value) : 0x7fffffffu;
}
uint64_t low32(int64_t value) {
    return static_cast<uint32_t>(value);
}
int64_t kept_between(__int128 value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : static_cast<int64_t>(value);
}

}  // namespace

TEST_CASE("integer instructions agree with plain C++", "[ptx][reference]") {
    auto cut24 = [](uint32_t v) { return int64_t{static_cast<int32_t>(v << 8) >> 8}; };
    constexpr int64_t low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
    using O = const OperandRow&;
    agrees(to32("mul24.hi.s32 %d, %a, %b;"), [&](O o) { return low32(cut24(o.a()) * cut24(o.b()) >> 16); });
    agrees(to32("mul24.lo.u32 %d, %a, %b;"), [](O o) { return low32((o.a() & 0xffffff) * (o.b() & 0xffffffull)); });
    agrees(to32("mad24.hi.u32 %d, %a, %b, %c;"),
           [](O o) { return low32(int64_t((o.a() & 0xffffff) * (o.b() & 0xffffffull) >> 16) + o.c()); });
    agrees(to32("mad24.hi.sat.s32 %d, %a, %b, %c;"), [&](O o) {
        return low32(kept_between((cut24(o.a()) * cut24(o.b()) >> 16 << 32 >> 32) + __int128{o.sc()}, low, high));
    });
    agrees(to32("mad.hi.sat.s32 %d, %a, %b, %c;"),
           [&](O o) { return low32(kept_between((int64_t{o.sa()} * o.sb() >> 32) + __int128{o.sc()}, low, high)); });
    agrees("mad.wide.s32 %o, %a, %b, %z;", [](O o) { return static_cast<uint64_t>(int64_t{o.sa()} * o.sb()) + o.z; });
    agrees("mul.hi.s64 %o, %x, %y;", [](O o) { return static_cast<uint64_t>(__int128{o.sx()} * o.sy() >> 64); });
    agrees(to32("sad.u32 %d, %a, %b, %c;"),
           [](O o) { return low32(std::max(o.a(), o.b()) - std::min(o.a(), o.b()) + o.c()); });
    for (bool s : {false, true})
        for (bool t : {false, true}) {
            std::string types = std::string(s ? ".s32" : ".u32") + (t ? ".s32" : ".u32");
            auto part = [](uint32_t v, uint32_t at, uint32_t bits, bool is_signed) {
                auto cut = v >> at & ((1u << bits) - 1);
                return int64_t{cut} - (is_signed && cut >> (bits - 1) ? int64_t{1} << bits : 0);
            };
            agrees(to32("dp4a" + types + " %d, %a, %b, %c;"), [=](O o) {
                int64_t sum = o.c();
                for (uint32_t at = 0; at < 32; at += 8) sum += part(o.a(), at, 8, s) * part(o.b(), at, 8, t);
                return low32(sum);
            });
            agrees(to32("dp2a.hi" + types + " %d, %a, %b, %c;"), [=](O o) {
                return low32(o.c() + part(o.a(), 0, 16, s) * part(o.b(), 16, 8, t) +
                             part(o.a(), 16, 16, s) * part(o.b(), 24, 8, t));
            });
        }
}

TEST_CASE("instructions on bits agree with plain C++", "[ptx][reference]") {
    using O = const OperandRow&;
    auto extract = [](uint64_t value, uint32_t width, uint32_t place, uint32_t length, bool is_signed) {
        place &= 255, length &= 255;
        uint64_t result = 0;
        uint32_t last = std::min(place + length - 1, width - 1);
        bool sign = is_signed && length && (value >> last & 1);
        for (uint32_t bit = 0; bit < width; ++bit) {
            bool set = bit < length && place + bit < width ? value >> (place + bit) & 1 : sign;
            result |= uint64_t{set} << bit;
        }
        return result;
    };
    agrees(to32("bfe.u32 %d, %a, %b, %c;"), [=](O o) { return extract(o.a(), 32, o.b(), o.c(), false); });
    agrees(to32("bfe.s32 %d, %a, %b, %c;"), [=](O o) { return extract(o.a(), 32, o.b(), o.c(), true); });
    agrees("bfe.s64 %o, %x, %b, %c;", [=](O o) { return extract(o.x, 64, o.b(), o.c(), true); });
    agrees("bfi.b64 %o, %x, %y, %c, 20;", [](O o) {
        uint64_t result = o.y;
        for (uint32_t bit = 0, place = o.c() & 255; bit < 20 && place + bit < 64; ++bit)
            result = (result & ~(uint64_t{1} << (place + bit))) | (o.x >> bit & 1) << (place + bit);
        return result;
    });
    agrees(to32("prmt.b32 %d, %a, %b, %c;"), [](O o) {
        uint64_t bytes = uint64_t{o.b()} << 32 | o.a(), result = 0;
        for (uint32_t k = 0; k < 4; ++k) {
            uint32_t selector = o.c() >> (4 * k) & 15;
            uint64_t byte = bytes >> (8 * (selector & 7)) & 255;
            result |= (selector < 8 ? byte : byte >> 7 ? 255 : 0) << (8 * k);
        }
        return result;
    });
    agrees(to32("fns.b32 %d, %a, %b, %c;"), [](O o) -> uint64_t {
        int64_t left = std::abs(int64_t{o.sc()});
        if (o.b() > 31) return 0xffffffff;
        if (left == 0) return o.a() >> o.b() & 1 ? o.b() : 0xffffffff;
        for (int64_t at = o.b(); at >= 0 && at < 32; at += o.sc() < 0 ? -1 : 1)
            if ((o.a() >> at & 1) && --left == 0) return static_cast<uint64_t>(at);
        return 0xffffffff;
    });
    agrees(to32("shf.l.clamp.b32 %d, %a, %b, %c;"), [](O o) {
        return low32(static_cast<int64_t>((uint64_t{o.b()} << 32 | o.a()) << std::min(o.c(), 32u) >> 32));
    });
    agrees(to32("shf.r.wrap.b32 %d, %a, %b, %c;"),
           [](O o) { return low32(static_cast<int64_t>((uint64_t{o.b()} << 32 | o.a()) >> (o.c() & 31))); });
    agrees("shl.b64 %o, %x, %b;", [](O o) { return o.b() > 63 ? 0 : o.x << o.b(); });
    agrees("shr.s64 %o, %x, %b;", [](O o) { return static_cast<uint64_t>(o.sx() >> std::min(o.b(), 63u)); });
    agrees(to32("bfind.s64 %d, %x;"), [](O o) -> uint64_t {
        for (int bit = 63; bit >= 0; --bit)
            if ((o.x >> bit & 1) != (o.x >> 63)) return static_cast<uint64_t>(bit);
        return 0xffffffff;
    });
    agrees(to32("szext.clamp.s32 %d, %a, %b;"), [=](O o) { return extract(o.a(), 32, 0, std::min(o.b(), 32u), true); });
    agrees(to32("bmsk.clamp.b32 %d, %a, %b;"), [](O o) {
        uint64_t ones = (uint64_t{1} << std::min(o.b(), 32u)) - 1;
        return low32(static_cast<int64_t>(ones << std::min(o.a(), 32u)));
    });
}

TEST_CASE("video instructions agree with plain C++", "[ptx][reference]") {
    using O = const OperandRow&;
    auto half = [](uint32_t v, int at) { return int64_t{static_cast<int16_t>(v >> (16 * at))}; };
    auto byte = [](uint32_t v, int at) { return int64_t{static_cast<uint8_t>(v >> (8 * at))}; };
    agrees(to32("vmad.u32.u32.u32.shr15 %d, %a, %b, %c;"), [](O o) {
        return low32(static_cast<int64_t>((static_cast<unsigned __int128>(o.a()) * o.b() + o.c()) >> 15));
    });
    agrees(to32("vmad.s32.s32.s32.sat.shr7 %d, %a.h1, %b.h0, %c;"), [=](O o) {
        return low32(kept_between((half(o.a(), 1) * half(o.b(), 0) + o.sc()) >> 7, -(1ll << 31), (1ll << 31) - 1));
    });
    agrees(to32("vadd.s32.u32.s32.sat.min %d, %a.b3, %b, %c;"), [=](O o) {
        int64_t sum = kept_between(byte(o.a(), 3) + o.sb(), -(1ll << 31), (1ll << 31) - 1);
        return low32(std::min(sum, int64_t{o.sc()}));
    });
    agrees(to32("vabsdiff.u32.s32.s32.add %d, %a, %b, %c;"),
           [](O o) { return low32(std::abs(int64_t{o.sa()} - o.sb()) + o.c()); });
    agrees(to32("vshr.s32.s32.u32.wrap %d, %a, %b;"), [](O o) { return low32(o.sa() >> (o.b() & 31)); });
    agrees(to32("vsub4.s32.s32.s32.sat %d, %a, %b, %c;"), [](O o) {
        uint64_t all = 0;
        for (int k = 0; k < 32; k += 8) {
            int64_t difference = static_cast<int8_t>(o.a() >> k) - static_cast<int8_t>(o.b() >> k);
            all |= (static_cast<uint64_t>(kept_between(difference, -128, 127)) & 255) << k;
        }
        return all;
    });
    agrees(to32("vabsdiff4.u32.u32.u32.add %d, %a, %b, %c;"), [=](O o) {
        int64_t sum = o.c();
        for (int k = 0; k < 4; ++k) sum += std::abs(byte(o.a(), k) - byte(o.b(), k));
        return low32(sum);
    });
}

namespace {

long double rounded_as(long double value, char mode) {
    return mode == 'z'   ? std::trunc(value)
           : mode == 'm' ? std::floor(value)
           : mode == 'p' ? std::ceil(value)
                         : std::rint(value);
}

// NaN: 0, but with 64 bits on either side the highest bit alone.
template <class D>
uint64_t as_integer(double value, char mode, bool from_double) {
    using U = std::make_unsigned_t<D>;
    constexpr int bits = 8 * sizeof(D);
    if (value != value) return from_double || bits == 64 ? uint64_t{1} << (bits - 1) : 0;
    long double whole = rounded_as(value, mode);
    if (whole <= static_cast<long double>(std::numeric_limits<D>::min()))
        return static_cast<U>(std::numeric_limits<D>::min());
    if (whole >= static_cast<long double>(std::numeric_limits<D>::max()))
        return static_cast<U>(std::numeric_limits<D>::max());
    return static_cast<U>(static_cast<D>(whole));
}

// The neighbour of `nearest`, the float nearest to an exact value, that the mode wants. `above`: nearest > exact, and so on.
float directed(float nearest, bool above, bool below, bool negative, char mode) {
    bool toward_zero = mode == 'z';
    if (above && (mode == 'm' || (toward_zero && !negative))) return std::nextafter(nearest, -INFINITY);
    if (below && (mode == 'p' || (toward_zero && negative))) return std::nextafter(nearest, INFINITY);
    return nearest;
}

// The value of a small float's bits, and the bits of the one that `mode` wants for a value, by looking among all of them.
double small_value(uint32_t bits, int exponent_bits, int mantissa_bits) {
    int exponent = static_cast<int>(bits >> mantissa_bits), bias = (1 << (exponent_bits - 1)) - 1;
    double mantissa = bits & ((1u << mantissa_bits) - 1);
    return exponent ? std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)
                    : std::ldexp(mantissa, 1 - bias - mantissa_bits);
}
uint64_t small_float(double value, int exponent_bits, int mantissa_bits, char mode, bool finite) {
    uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits, sign = 1u << (exponent_bits + mantissa_bits);
    if (value != value) return sign - 1;
    bool negative = std::signbit(value);
    double size = std::fabs(value);
    uint32_t below = 0, beyond = infinity + 1;
    while (beyond - below > 1) {
        uint32_t middle = (below + beyond) / 2;
        (small_value(middle, exponent_bits, mantissa_bits) <= size ? below : beyond) = middle;
    }
    uint32_t chosen = std::min(below, infinity);
    if (below < infinity) {
        long double down = size - static_cast<long double>(small_value(below, exponent_bits, mantissa_bits));
        long double up = static_cast<long double>(small_value(below + 1, exponent_bits, mantissa_bits)) - size;
        bool raised = mode == 'n'   ? up < down || (up == down && below % 2)
                      : mode == 'p' ? !negative
                                    : mode == 'm' && negative;
        if (down > 0 && raised) ++chosen;
    } else if (!std::isinf(size) && (mode == 'z' || (mode == 'p' && negative) || (mode == 'm' && !negative))) {
        chosen = infinity - 1;
    }
    if (finite) chosen = std::min(chosen, infinity - 1);
    return chosen | (negative ? sign : 0);
}

}  // namespace

TEST_CASE("conversions agree with plain C++", "[ptx][reference]") {
    using O = const OperandRow&;
    for (char mode : {'n', 'z', 'm', 'p'}) {
        auto name = std::string("cvt.r") + mode;
        auto whole = name + "i";
        agrees(to32(whole + ".s32.f32 %d, %f;"), [=](O o) { return as_integer<int32_t>(o.f(), mode, false); });
        agrees(to32(whole + ".u32.f64 %d, %u;"), [=](O o) { return as_integer<uint32_t>(o.u(), mode, true); });
        agrees(to32(whole + ".s32.f64 %d, %u;"), [=](O o) { return as_integer<int32_t>(o.u(), mode, true); });
        agrees(whole + ".s64.f32 %o, %f;", [=](O o) { return as_integer<int64_t>(o.f(), mode, false); });
        agrees(whole + ".u64.f64 %o, %u;", [=](O o) { return as_integer<uint64_t>(o.u(), mode, true); });
        agrees(to16(whole + ".u16.f32 %k, %f;"), [=](O o) { return as_integer<uint16_t>(o.f(), mode, false); });
        agrees(to32(name + ".f32.f64 %f, %u; mov.b32 %d, %f;"), [=](O o) {
            auto nearest = static_cast<float>(o.u());
            return float_word(directed(nearest, nearest > o.u(), nearest < o.u(), o.u() < 0, mode));
        });
        agrees(to32(name + ".f32.u64 %f, %x; mov.b32 %d, %f;"), [=](O o) {
            auto nearest = static_cast<float>(o.x);
            auto whole_of_it = static_cast<unsigned __int128>(nearest);
            return float_word(directed(nearest, whole_of_it > o.x, whole_of_it < o.x, false, mode));
        });
        agrees(to16(name + ".f16.f32 %k, %f;"), [=](O o) { return small_float(o.f(), 5, 10, mode, false); });
        agrees(to16(name + ".bf16.f32 %k, %f;"), [=](O o) { return small_float(o.f(), 8, 7, mode, false); });
    }
    for (char mode : {'n', 'z'}) {
        auto name = std::string("cvt.r") + mode + ".satfinite";
        agrees(to16(name + ".f16.f32 %k, %f;"), [=](O o) { return small_float(o.f(), 5, 10, mode, true); });
        agrees(to16(name + ".bf16.f32 %k, %f;"), [=](O o) { return small_float(o.f(), 8, 7, mode, true); });
        agrees(to32(name + ".f16x2.f32 %d, %f, %g;"), [=](O o) {
            return small_float(o.f(), 5, 10, mode, true) << 16 | small_float(o.g(), 5, 10, mode, true);
        });
        agrees(to32(name + ".tf32.f32 %d, %f;"), [=](O o) { return small_float(o.f(), 8, 10, mode, true) << 13; });
    }
    agrees(to32("cvt.sat.s8.s32 %d, %a;"), [](O o) { return low32(std::clamp(o.sa(), -128, 127)); });
    agrees(to32("cvt.sat.u8.s64 %d, %x;"), [](O o) { return low32(std::clamp<int64_t>(o.sx(), 0, 255)); });
    agrees("cvt.sat.s64.u64 %o, %x;", [](O o) { return std::min<uint64_t>(o.x, std::numeric_limits<int64_t>::max()); });
}

TEST_CASE("instructions on floats agree with plain C++", "[ptx][reference]") {
    using O = const OperandRow&;
    auto flush = [](float v) { return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0f, v) : v; };
    auto least = [](float v, float w) {
        if (v != v || w != w) return v != v ? w : v;
        return v < w || (v == w && std::signbit(v)) ? v : w;
    };
    // Whatever NaN goes in, the canonical one comes out.
    agrees(to32("add.f32 %f, %f, %g; mov.b32 %d, %f;"), [](O o) { return float_word(o.f() + o.g()); });
    agrees(to32("mul.rn.f32 %f, %f, %g; mov.b32 %d, %f;"), [](O o) { return float_word(o.f() * o.g()); });
    agrees(to32("fma.rn.f32 %f, %f, %g, %l; mov.b32 %d, %f;"),
           [](O o) { return float_word(std::fma(o.f(), o.g(), o.h())); });
    for (char mode : {'z', 'm', 'p'})
        agrees(to32(std::string("mul.r") + mode + ".f32 %f, %f, %g; mov.b32 %d, %f;"), [=](O o) {
            double exact = double{o.f()} * o.g();
            auto nearest = static_cast<float>(exact);
            return float_word(directed(nearest, nearest > exact, nearest < exact, exact < 0, mode));
        });
    agrees(to32("add.ftz.f32 %f, %f, %g; mov.b32 %d, %f;"),
           [=](O o) { return float_word(flush(flush(o.f()) + flush(o.g()))); });
    agrees(to32("min.f32 %f, %f, %g; mov.b32 %d, %f;"), [=](O o) { return float_word(least(o.f(), o.g())); });
    agrees(to32("min.f32 %f, %f, %g, %l; mov.b32 %d, %f;"),
           [=](O o) { return float_word(least(least(o.f(), o.g()), o.h())); });
    agrees(to32("max.NaN.abs.f32 %f, %f, %g, %l; mov.b32 %d, %f;"), [](O o) {
        bool nan = o.f() != o.f() || o.g() != o.g() || o.h() != o.h();
        return nan ? float_word(NAN) : float_word(std::max({std::fabs(o.f()), std::fabs(o.g()), std::fabs(o.h())}));
    });
    agrees(to32("add.f32.bf16 %f, %h, %g; mov.b32 %d, %f;"),
           [](O o) { return float_word(std::bit_cast<float>(o.a() << 16) + o.g()); });
    agrees(to32("fma.rn.f32.bf16 %f, %h, %i, %l; mov.b32 %d, %f;"), [](O o) {
        return float_word(std::fma(std::bit_cast<float>(o.a() << 16), std::bit_cast<float>(o.b() << 16), o.h()));
    });
    agrees(to32("copysign.f32 %f, %f, %g; mov.b32 %d, %f;"),
           [](O o) { return uint64_t{(o.b() & 0x7fffffff) | (o.a() & 0x80000000)}; });
    agrees(to32("neg.f32 %f, %f; mov.b32 %d, %f;"), [](O o) { return uint64_t{o.a() ^ 0x80000000}; });
    agrees(to_predicate("testp.subnormal.f64 %p, %u;"),
           [](O o) { return uint64_t{std::fpclassify(o.u()) == FP_SUBNORMAL}; });
    agrees(to_predicate("testp.normal.f32 %p, %f;"), [](O o) { return uint64_t{std::isnormal(o.f())}; });
    agrees(to_predicate("setp.lt.ftz.f16 %p, %h, 0x0000;"),
           [](O o) { return uint64_t{(o.a() & 0x8000) && (o.a() & 0x7c00) && (o.a() & 0x7fff) <= 0x7c00}; });
    agrees(to_predicate("setp.geu.f32 %p, %f, %g;"), [](O o) { return uint64_t{!(o.f() < o.g())}; });
    agrees(to32("slct.b32.f32 %d, %a, %b, %l;"), [](O o) { return uint64_t{o.h() >= 0 ? o.a() : o.b()}; });
}

TEST_CASE("approximations keep to the ISA's bounds", "[ptx][reference]") {
    // Errors that the ISA allows: absolute ones of sin, cos and lg2 in their ranges, relative ones of the rest.
    auto within = [](const std::string& body, auto exact, double from, double to, double absolute, double relative) {
        agrees(to32("and.b32 %a, %a, 0xffffff; cvt.rn.f32.u32 %f, %a; " + body + " mov.b32 %d, %f;"),
               [=](const OperandRow& o) {
                   float x = static_cast<float>(o.a() & 0xffffff) * 0x1p-24f * static_cast<float>(to - from) +
                             static_cast<float>(from);
                   auto got = std::bit_cast<float>(static_cast<uint32_t>(o.result));
                   double wanted = exact(double{x}), error = std::fabs(got - wanted);
                   return error <= absolute + relative * std::fabs(wanted) ? o.result
                                                                           : float_word(static_cast<float>(wanted));
               });
    };
    auto scaled = [](const char* step, const char* from, const char* name) {
        return std::string("mul.f32 %f, %f, 0f33800000; mul.f32 %f, %f, ") + step + "; add.f32 %f, %f, " + from + "; " +
               name + ".f32 %f, %f;";
    };
    using F = double (*)(double);
    within(scaled("0f40490fdb", "0f00000000", "sin.approx"), F{std::sin}, 0, 0x1.921fb6p+1, 0x1p-20, 0);
    within(scaled("0f40490fdb", "0f00000000", "cos.approx"), F{std::cos}, 0, 0x1.921fb6p+1, 0x1p-20, 0);
    within(scaled("0f40000000", "0f3f000000", "lg2.approx"), F{std::log2}, 0.5, 2.5, 0x1p-22, 0x1p-22);
    within(scaled("0f41200000", "0f00000000", "ex2.approx"), F{std::exp2}, 0, 10, 0, 0x1p-22);
    within(
        scaled("0f41200000", "0f3f800000", "rcp.approx"), [](double x) { return 1 / x; }, 1, 11, 0, 0x1p-23);
    within(
        scaled("0f41200000", "0f3f800000", "rsqrt.approx"), [](double x) { return 1 / std::sqrt(x); }, 1, 11, 0,
        0x1p-22);
    within(scaled("0f40800000", "0f00000000", "tanh.approx"), F{std::tanh}, 0, 4, 0, 0x1p-10);
}
