// Rounding by random bits, fma.oob and comparisons of pairs, beside references in plain C++ that are written from the PTX ISA's
// text.
#include <algorithm>
#include <array>
#include <cmath>

#include "gpu_server/emulated_gpu/ptx/half.hpp"
#include "gpu_server/emulated_gpu/ptx/tensor_map.hpp"
#include "tests/gpu_server/ptx/bench.hpp"
#include "tests/gpu_server/ptx/reference.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// All finite magnitudes of a format, by their bits.
std::vector<double> magnitudes(Format format) {
    std::vector<double> all;
    for (uint32_t bits = 0; bits < 1u << (format.exponent + format.mantissa); ++bits) {
        double value = decode_bits_of(bits, format);
        if (!std::isfinite(value)) break;
        all.push_back(value);
    }
    return all;
}

// The magnitude below `value`, or the one above it where the random bits, as a part of the way between them, and the value's own
// part of that way make one or more. Powers of two are exact in double, so is all of this.
uint32_t randomly_rounded(float value, Format format, const std::vector<double>& all, uint32_t random, int bits,
                          bool relu) {
    uint32_t sign = std::signbit(value) ? 1u << (format.exponent + format.mantissa) : 0;
    if (std::isnan(value)) return encode(value, format, Rounding::nearest);
    if (relu && value < 0) return 0;
    double size = std::fabs(double{value});
    auto above = std::upper_bound(all.begin(), all.end(), size);
    auto below = static_cast<uint32_t>(above - all.begin()) - 1;
    if (above == all.end()) return sign | below;
    double part = (size - all[below]) / (*above - all[below]);
    return sign | (below + (part + std::ldexp(random, -bits) >= 1));
}

std::string to_word(const std::string& instruction) {
    return instruction + " cvt.u64.u32 %o, %d;";
}

}  // namespace

// In each of these formats fewer bits are cut off than there are random ones, or as many, but for values near zero.
TEST_CASE("cvt.rs to pairs agrees with plain C++", "[ptx][reference]") {
    using O = const OperandRow&;
    const auto halves = magnitudes(half_format);
    for (bool relu : {false, true}) {
        std::string word = relu ? ".relu" : "";
        agrees(to_word("cvt.rs" + word + ".satfinite.f16x2.f32 %d, %f, %g, %c;"), [relu, &halves](O o) {
            auto one = [relu, &halves](float v, uint32_t random) {
                return uint64_t{randomly_rounded(v, half_format, halves, random & 0x1fff, 13, relu)};
            };
            return one(o.f(), o.c() >> 16) << 16 | one(o.g(), o.c());
        });
    }
    agrees(to_word("cvt.rs.bf16x2.f32 %d, %f, %g, %c;"), [](O o) {
        auto one = [](float v, uint32_t random) -> uint64_t {
            if (std::isnan(v)) return 0x7fff;
            if (std::isinf(v)) return std::bit_cast<uint32_t>(v) >> 16;
            return (std::bit_cast<uint32_t>(v) + random) >> 16;  // a carry into the exponent is right, also to infinity
        };
        // Subnormals of both formats have the same exponent, so that holds for them, too.
        return one(o.f(), o.c() >> 16) << 16 | one(o.g(), o.c() & 0xffff);
    });
}

TEST_CASE("cvt.rs to four small floats agrees with plain C++", "[ptx][reference]") {
    using O = const OperandRow&;
    struct Wanted {
        const char* name;
        Format format;
    };
    for (auto& [name, format] : {Wanted{"e4m3x4", e4m3_format}, Wanted{"e5m2x4", e5m2_format},
                                 Wanted{"e2m3x4", e2m3_format}, Wanted{"e3m2x4", e3m2_format}}) {
        agrees("mov.b32 %f, %a; " + to_word("cvt.rs.satfinite." + std::string(name) + ".f32 %d, {%f, %g, %l, %f}, %a;"),
               [format = format, known = magnitudes(format)](O o) {
                   uint64_t all = 0;
                   for (auto [v, random] : {std::pair(o.f(), o.a() >> 16), std::pair(o.g(), o.a() >> 16),
                                            std::pair(o.h(), o.a() & 0xffff), std::pair(o.f(), o.a() & 0xffff)})
                       all = all << 8 | randomly_rounded(v, format, known, random, 16, false);
                   return all;
               });
    }
    agrees(
        "cvt.rs.satfinite.e2m1x4.f32 %k, {%f, %g, %l, %f}, %b; cvt.u64.u16 %o, %k;",
        [known = magnitudes(e2m1_format)](O o) {
            uint64_t all = 0;
            for (auto [v, at] : {std::pair(o.f(), 24), std::pair(o.g(), 8), std::pair(o.h(), 16), std::pair(o.f(), 0)})
                all = all << 4 | randomly_rounded(v, e2m1_format, known, o.b() >> at & 255, 8, false);
            return all;
        });
}

TEST_CASE("cvt.rs over many random words comes out between its neighbours as often as the value says",
          "[ptx][reference]") {
    // 1.25 + 1/16 lies a quarter of the way from 1.25 to 1.5 in e5m2.
    Bench bench(module_of(R"(
.reg .b64 %out; .reg .b32 %t, %random, %d; .reg .f32 %f;
ld.param.u64 %out, [p0]; mov.u32 %t, %tid.x; mul.lo.u32 %random, %t, 0x01010101; mov.f32 %f, 0f3fa80000;
cvt.rs.satfinite.e5m2x4.f32 %d, {%f, %f, %f, %f}, %random; and.b32 %d, %d, 255;
mul.wide.u32 %out, %t, 4; .reg .b64 %base; ld.param.u64 %base, [p0]; add.u64 %out, %out, %base; st.global.u32 [%out], %d;)",
                          1));
    auto out = bench.array<uint32_t>(256);
    bench.run("k", {1}, {256}, out);
    uint32_t below = encode(1.25, e5m2_format, Rounding::zero);
    CHECK(std::count(out.data(), out.data() + 256, below + 1) == 64);
    CHECK(std::count(out.data(), out.data() + 256, below) == 192);
}

TEST_CASE("fma.oob takes what lies outside a tensor for zero", "[ptx][reference]") {
    using O = const OperandRow&;
    auto half = [](uint64_t word) { return double{half_to_float(static_cast<uint16_t>(word))}; };
    auto product = [=](O o, bool forced) -> uint64_t {
        if (forced) return 0;
        return to_half(fma_to_odd(half(o.x), half(o.y), half(o.z)));
    };
    agrees("fma.rn.oob.f16 %k, %h, %i, %j; cvt.u64.u16 %o, %k;", [=](O o) {
        return product(o, static_cast<uint16_t>(o.x) == oob_nan || static_cast<uint16_t>(o.y) == oob_nan);
    });
    std::string marker = "mov.b32 %c, " + std::to_string(oob_nan) + "; ";
    agrees(marker + "cvt.u16.u32 %h, %c; fma.rn.oob.relu.bf16 %k, %h, %i, %j; cvt.u64.u16 %o, %k;",
           [](O) { return uint64_t{0}; });
    // Each half by itself, and only the factors count.
    agrees(marker +
               "mov.b32 %a, {%h, %h}; cvt.u16.u32 %i, %c; mov.b32 %b, {%h, %i}; mov.b32 %c, {%j, %j}; "
               "fma.rn.oob.f16x2 %d, %a, %b, %c; cvt.u64.u32 %o, %d;",
           [=](O o) {
               auto factor = half(o.x);
               bool forced = static_cast<uint16_t>(o.x) == oob_nan;
               return forced ? 0 : uint64_t{to_half(fma_to_odd(factor, factor, half(o.z)))};
           });
}

TEST_CASE("set of pairs takes a predicate along", "[ptx][reference]") {
    using O = const OperandRow&;
    for (auto* combine : {"and", "or", "xor"})
        agrees(
            "setp.lt.u32 %p, %c, 70; set.le." + std::string(combine) + ".u32.f16x2 %d, %a, %b, %p; cvt.u64.u32 %o, %d;",
            [=](O o) {
                uint64_t result = 0;
                for (int at = 0; at < 32; at += 16) {
                    bool other = o.c() < 70;
                    bool truth = half_to_float(static_cast<uint16_t>(o.a() >> at)) <=
                                 half_to_float(static_cast<uint16_t>(o.b() >> at));
                    bool all = combine[0] == 'a' ? truth && other : combine[0] == 'o' ? truth || other : truth != other;
                    result |= uint64_t{all ? 0xffffu : 0} << at;
                }
                return result;
            });
}

TEST_CASE("pairs of halves become pairs of four bits", "[ptx][reference]") {
    agrees("cvt.rn.satfinite.e2m1x2.f16x2 %m, %a; cvt.u64.u8 %o, %m;", [](const OperandRow& o) {
        auto one = [](uint32_t bits) -> uint64_t {
            return encode(half_to_float(static_cast<uint16_t>(bits)), e2m1_format, Rounding::nearest, true);
        };
        return one(o.a() >> 16) << 4 | one(o.a());
    });
}

TEST_CASE("special registers fit into 16 bits, as in code for the first PTX", "[ptx]") {
    Bench bench(
        module_of(".reg .b64 %out, %at; .reg .b32 %t; .reg .u16 %h; ld.param.u64 %out, [p0]; mov.u16 %h, %tid.x;\n"
                  "mul.wide.u16 %t, %h, 2; cvt.u64.u32 %at, %t; add.u64 %out, %out, %at; st.global.u16 [%out], %h;",
                  1));
    auto out = bench.array<uint16_t>(100);
    bench.run("k", {1}, {100}, out);
    for (uint16_t t = 0; t < 100; ++t) CHECK(out[t] == t);
}
