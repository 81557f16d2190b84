// Instructions against plain C++ on many values: video, conversions of tiny floats, bits, reductions and atomics of vectors.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <random>

#include "gpu_server/emulated_gpu/ptx/tensor_map.hpp"
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

constexpr size_t threads = 512;

// Runs `body` in each thread with three words in %a, %b, %c (as floats in %f, %g, %h), and compares %d with `expected`.
template <class F>
void compare(const std::string& body, F&& expected, uint32_t seed = 1) {
    std::string text =
        ".reg .b64 %in, %at; .reg .b32 %a, %b, %c, %d, %t; .reg .b16 %s; .reg .f32 %f, %g, %h; .reg .pred %p, %q;\n"
        "ld.param.u64 %in, [p0]; mov.u32 %t, %tid.x; mad.wide.u32 %at, %t, 16, %in;\n"
        "ld.global.v4.u32 {%a, %b, %c, %d}, [%at]; mov.b32 %f, %a; mov.b32 %g, %b; mov.b32 %h, %c; mov.b32 %d, 0;\n" +
        body + "\nst.global.u32 [%at+12], %d;";
    INFO(body);
    Bench bench(module_of(text, 1));
    std::mt19937 random(seed);
    std::vector<uint32_t> words(threads * 4);
    for (size_t i = 0; i < words.size(); ++i) {
        static constexpr uint32_t edges[] = {0,      1,      0x7f,       0x80,       0xff,
                                             0x7fff, 0x8000, 0x7fffffff, 0x80000000, 0xffffffff};
        words[i] = i % 3 == 0 ? edges[random() % std::size(edges)] : random();
    }
    auto memory = bench.array(words);
    bench.run("k", {1}, {threads}, memory);
    for (size_t i = 0; i < words.size(); i += 4) {
        INFO(std::hex << words[i] << " " << words[i + 1] << " " << words[i + 2]);
        REQUIRE(memory[i + 3] == static_cast<uint32_t>(expected(words[i], words[i + 1], words[i + 2])));
    }
}

int64_t clamp_to(int64_t value, int64_t low, int64_t high) {
    return std::clamp(value, low, high);
}

float as_float(uint32_t bits) {
    return std::bit_cast<float>(bits);
}

}  // namespace

TEST_CASE("video instructions on parts of registers", "[ptx][video]") {
    compare("vadd.u32.u32.s32.sat %d, %a.b0, %b.h1;", [](uint32_t a, uint32_t b, uint32_t) {
        return clamp_to(int64_t{a & 0xff} + static_cast<int16_t>(b >> 16), 0, 0xffffffff);
    });
    compare("vsub.s32.s32.s32.add %d, %a, %b, %c;", [](uint32_t a, uint32_t b, uint32_t c) { return a - b + c; });
    compare("vabsdiff.u32.u32.u32 %d.b1, %a.b0, %b.b3, %c;", [](uint32_t a, uint32_t b, uint32_t c) {
        auto difference = static_cast<uint32_t>(std::abs(int(a & 0xff) - int(b >> 24)));
        return (c & ~0xff00u) | difference << 8;
    });
    compare("vmin.s32.s32.s32 %d, %a, %b;",
            [](uint32_t a, uint32_t b, uint32_t) { return std::min(int32_t(a), int32_t(b)); });
    compare("vmax.u32.u32.u32.sat.min %d, %a, %b, %c;",
            [](uint32_t a, uint32_t b, uint32_t c) { return std::min(std::max(a, b), c); });
    compare("vshl.u32.u32.u32.clamp %d, %a, %b;", [](uint32_t a, uint32_t b, uint32_t) { return b < 32 ? a << b : 0; });
    compare("vshr.s32.s32.u32.wrap.add %d, %a, %b, %c;",
            [](uint32_t a, uint32_t b, uint32_t c) { return uint32_t(int32_t(a) >> (b & 31)) + c; });
    compare("vmad.s32.s32.s32.sat.shr15 %d, %a.h0, %b.h1, %c;", [](uint32_t a, uint32_t b, uint32_t c) {
        int64_t sum = int64_t{int16_t(a)} * int16_t(b >> 16) + int32_t(c);
        return clamp_to(sum >> 15, INT32_MIN, INT32_MAX);
    });
    compare("vset.u32.s32.lt %d, %a, %b;",
            [](uint32_t a, uint32_t b, uint32_t) { return int64_t{a} < int64_t{int32_t(b)}; });
}

TEST_CASE("video instructions on halves and bytes", "[ptx][video]") {
    auto each = [](uint32_t bits, auto&& f) {
        return [=](uint32_t a, uint32_t b, uint32_t) {
            uint32_t result = 0, mask = bits == 8 ? 0xff : 0xffff;
            for (uint32_t at = 0; at < 32; at += bits)
                result |= (static_cast<uint32_t>(f(a >> at & mask, b >> at & mask)) & mask) << at;
            return result;
        };
    };
    compare("vadd2.u32.u32.u32.sat %d, %a, %b, %c;",
            each(16, [](int64_t a, int64_t b) { return std::min<int64_t>(a + b, 0xffff); }));
    compare("vsub4.s32.s32.s32.sat %d, %a, %b, %c;",
            each(8, [](int64_t a, int64_t b) { return clamp_to(int8_t(a) - int8_t(b), -128, 127); }));
    compare("vavrg2.s32.s32.s32 %d, %a, %b, %c;", each(16, [](int64_t a, int64_t b) {
                int sum = int16_t(a) + int16_t(b);
                return (sum + (sum >= 0)) >> 1;
            }));
    compare("vmax4.u32.u32.u32 %d, %a, %b, %c;", each(8, [](int64_t a, int64_t b) { return std::max(a, b); }));
    compare("vset4.u32.u32.ne %d, %a, %b, %c;", each(8, [](int64_t a, int64_t b) { return a != b; }));
    compare("vabsdiff4.u32.u32.u32.add %d, %a, %b, %c;", [](uint32_t a, uint32_t b, uint32_t c) {
        for (uint32_t at = 0; at < 32; at += 8) c += uint32_t(std::abs(int(a >> at & 255) - int(b >> at & 255)));
        return c;
    });
}

TEST_CASE("integers are packed with saturation", "[ptx][convert]") {
    compare("cvt.pack.sat.s16.s32 %d, %a, %b;", [](uint32_t a, uint32_t b, uint32_t) {
        return uint32_t(clamp_to(int32_t(a), -32768, 32767)) << 16 | (clamp_to(int32_t(b), -32768, 32767) & 0xffff);
    });
    compare("cvt.pack.sat.u8.s32.b32 %d, %a, %b, %c;", [](uint32_t a, uint32_t b, uint32_t c) {
        return c << 16 | clamp_to(int32_t(a), 0, 255) << 8 | clamp_to(int32_t(b), 0, 255);
    });
    compare("cvt.pack.sat.s4.s32.b32 %d, %a, %b, %c;", [](uint32_t a, uint32_t b, uint32_t c) {
        return c << 8 | (clamp_to(int32_t(a), -8, 7) & 15) << 4 | (clamp_to(int32_t(b), -8, 7) & 15);
    });
}

TEST_CASE("powers of two and other tiny floats", "[ptx][convert]") {
    auto power = [](uint32_t bits, bool up) -> uint32_t {
        float value = std::fabs(as_float(bits));
        if (value != value) return 0xff;
        for (uint32_t code = 0; code <= 0xfe; ++code) {  // the first that is not smaller
            double here = std::ldexp(1.0, int(code) - 127);
            if (here >= value) return up || here == value || code == 0 ? code : code - 1;
        }
        return 0xfe;
    };
    compare("cvt.rp.satfinite.ue8m0x2.f32 %s, %f, %g; cvt.u32.u16 %d, %s;",
            [&](uint32_t a, uint32_t b, uint32_t) { return power(a, true) << 8 | power(b, true); });
    compare("cvt.rz.satfinite.ue8m0x2.f32 %s, %f, %g; cvt.u32.u16 %d, %s;",
            [&](uint32_t a, uint32_t b, uint32_t) { return power(a, false) << 8 | power(b, false); });
    // e2m1 has eight magnitudes: the nearest, and of two as near the one with an even code.
    static constexpr std::array<float, 8> magnitudes = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    auto nearest = [](uint32_t bits) -> uint32_t {
        float value = as_float(bits), size = std::fabs(value);
        if (value != value) return 7;
        uint32_t best = 0;
        for (uint32_t code = 1; code < 8; ++code) {
            float here = std::fabs(magnitudes[code] - size), there = std::fabs(magnitudes[best] - size);
            if (here < there || (here == there && code % 2 == 0)) best = code;
        }
        return best | (std::signbit(value) ? 8 : 0);
    };
    auto scaled = [](uint32_t bits) { return std::bit_cast<uint32_t>(static_cast<float>(int32_t(bits)) * 0x1p-28f); };
    compare(
        "{.reg .b8 %e; cvt.rn.f32.s32 %f, %a; cvt.rn.f32.s32 %g, %b; mul.f32 %f, %f, 0f31800000; mul.f32 %g, %g, "
        "0f31800000;"
        "cvt.rn.satfinite.e2m1x2.f32 %e, %f, %g; cvt.u32.u8 %d, %e;}",
        [&](uint32_t a, uint32_t b, uint32_t) { return nearest(scaled(a)) << 4 | nearest(scaled(b)); });
    // Every code of the six-bit formats, there and back.
    for (auto [name, exponent, mantissa] : {std::tuple{"e2m3x2", 2, 3}, std::tuple{"e3m2x2", 3, 2}}) {
        std::string back = std::string("and.b32 %a, %a, 0x3f3f; cvt.u16.u32 %s, %a; cvt.rn.f16x2.") + name + " %d, %s;";
        compare(back, [=, e = exponent, m = mantissa](uint32_t a, uint32_t, uint32_t) {
            uint32_t packed = 0;
            for (int at = 8; at >= 0; at -= 8) {
                uint32_t bits = a >> at & 0x3f, field = bits >> m & ((1u << e) - 1), low = bits & ((1u << m) - 1);
                int bias = (1 << (e - 1)) - 1;
                double size =
                    field ? std::ldexp(low + (1u << m), int(field) - bias - m) : std::ldexp(low, 1 - bias - m);
                int power = size == 0 ? 0 : std::ilogb(size);  // exact in half precision, where all of them are normal
                uint32_t half =
                    size == 0 ? 0 : uint32_t(power + 15) << 10 | uint32_t((std::ldexp(size, -power) - 1) * 1024);
                packed = packed << 16 | half | (bits >> 5) << 15;
            }
            return packed;
        });
    }
}

TEST_CASE("bits: extension, and logic with a predicate", "[ptx][bits]") {
    compare("szext.clamp.s32 %d, %a, %b;", [](uint32_t a, uint32_t b, uint32_t) {
        return b == 0 ? 0u : b >= 32 ? a : uint32_t(int32_t(a << (32 - b)) >> (32 - b));
    });
    compare("szext.wrap.u32 %d, %a, %b;", [](uint32_t a, uint32_t b, uint32_t) { return a & ((1u << (b & 31)) - 1); });
    compare("setp.lt.u32 %q, %a, %b; lop3.or.b32 %d|%p, %a, %b, %c, 0x80, %q; selp.b32 %d, %d, 77, %p;",
            [](uint32_t a, uint32_t b, uint32_t c) { return (a & b & c) || a < b ? a & b & c : 77; });
}

TEST_CASE("reductions of floats over a warp", "[ptx][collective]") {
    auto run = [](const std::string& op) {
        std::vector<float> values(32);
        for (size_t i = 0; i < 32; ++i) values[i] = static_cast<float>(i) - 20.5f;
        values[3] = NAN;
        Bench bench(
            module_of(".reg .b64 %in, %at; .reg .b32 %t; .reg .f32 %f; ld.param.u64 %in, [p0];"
                      "mov.u32 %t, %tid.x; mad.wide.u32 %at, %t, 4, %in; ld.global.f32 %f, [%at];"
                      "redux.sync." +
                          op + ".f32 %f, %f, -1; st.global.f32 [%at], %f;",
                      1));
        auto memory = bench.array(values);
        bench.run("k", {1}, {32}, memory);
        for (size_t i = 1; i < 32; ++i)
            REQUIRE(std::bit_cast<uint32_t>(memory[i]) == std::bit_cast<uint32_t>(memory[0]));
        return memory[0];
    };
    CHECK(run("min") == -20.5f);
    CHECK(run("max") == 10.5f);
    CHECK(run("min.abs") == 0.5f);
    CHECK(run("max.abs") == 20.5f);
    CHECK(std::isnan(run("max.NaN")));
    CHECK(std::isnan(run("min.abs.NaN")));
}

TEST_CASE("atomic operations on vectors", "[ptx][atomic]") {
    Bench bench(
        module_of(".reg .b64 %in; .reg .b32 %t, %j; .reg .f32 %f, %g, %h, %i; .reg .b16 %s, %u; ld.param.u64 %in, [p0];"
                  "atom.global.v4.f32.add {%f, %g, %h, %i}, [%in], {0f3f800000, 0f40000000, 0f40400000, 0f3f800000};"
                  "mov.u32 %t, %tid.x; cvt.rn.f16.u32 %s, %t; neg.f16 %u, %s;"
                  "red.global.v2.f16.max.noftz [%in+16], {%s, %u}; red.global.v2.f16.min.noftz [%in+20], {%s, %u};"
                  "mov.b32 %j, 0x3f803f80; red.global.v2.bf16x2.add.noftz [%in+24], {%j, %j};",
                  1));
    auto memory = bench.array(std::vector<uint32_t>(8));
    bench.run("k", {1}, {32}, memory);
    CHECK(std::array{as_float(memory[0]), as_float(memory[1]), as_float(memory[2]), as_float(memory[3])} ==
          std::array{32.0f, 64.0f, 96.0f, 32.0f});
    CHECK(memory[4] == 0x4fc0);        // 31, and 0 stays above every -t
    CHECK(memory[5] >> 16 == 0xcfc0);  // -31
    CHECK(memory[6] == 0x42004200);    // 32 times 1
    CHECK(memory[7] == 0x42004200);
}

TEST_CASE("asynchronous stores and reductions complete a barrier in shared memory", "[ptx][async]") {
    Bench bench(module_of(
        ".shared .align 16 .b32 %data[4]; .shared .align 8 .b64 %barrier; .reg .b64 %in, %state; .reg .b32 %a, %b, "
        "%to, %bar;"
        ".reg .pred %p, %q; ld.param.u64 %in, [p0]; mov.u32 %to, %data; mov.u32 %bar, %barrier;"
        "mbarrier.init.shared.b64 [%bar], 1; mov.u32 %a, 5; mov.u32 %b, 7; st.shared.u32 [%to+8], 40;"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%to], {%a, %b}, [%bar];"
        "mbarrier.arrive.expect_tx.shared.b64 %state, [%bar], 12;"
        "mbarrier.test_wait.shared.b64 %p, [%bar], %state;"
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%to+8], %a, [%bar];"
        "mbarrier.test_wait.shared.b64 %q, [%bar], %state;"
        "ld.shared.u32 %a, [%to]; ld.shared.u32 %b, [%to+4]; st.global.u32 [%in], %a; st.global.u32 [%in+4], %b;"
        "ld.shared.u32 %a, [%to+8]; st.global.u32 [%in+8], %a;"
        "selp.u32 %a, 1, 0, %p; selp.u32 %b, 1, 0, %q; st.global.u32 [%in+12], %a; st.global.u32 [%in+16], %b;",
        1));
    auto memory = bench.array<uint32_t>(5);
    bench.run("k", {1}, {1}, memory);
    CHECK(std::vector<uint32_t>(memory.data(), memory.data() + 5) == std::vector<uint32_t>{5, 7, 45, 0, 1});
}

TEST_CASE("fields of a tensor map are replaced", "[ptx][tensor]") {
    TensorMap map;
    map.mark = TensorMap::ours;
    map.rank = 1;
    map.strides[0] = 4;
    Bench bench(
        module_of(".reg .b64 %in, %v; .reg .b32 %w; ld.param.u64 %in, [p0]; mov.u64 %v, 0x12340; mov.u32 %w, 100;"
                  "tensormap.replace.tile.global_address.global.b1024.b64 [%in], %v;"
                  "tensormap.replace.tile.rank.global.b1024.b32 [%in], 1;"
                  "tensormap.replace.tile.global_dim.global.b1024.b32 [%in], 1, %w;"
                  "tensormap.replace.tile.box_dim.global.b1024.b32 [%in], 0, 16;"
                  "tensormap.replace.tile.global_stride.global.b1024.b64 [%in], 0, %v;"
                  "tensormap.replace.tile.element_stride.global.b1024.b32 [%in], 1, 2;"
                  "tensormap.replace.tile.elemtype.global.b1024.b32 [%in], 6;"
                  "tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%in], 3;"
                  "tensormap.replace.tile.fill_mode.global.b1024.b32 [%in], 1;",
                  1));
    auto memory = bench.array<std::byte>(256);
    uint64_t aligned = (memory.address + 63) & ~uint64_t{63};
    std::memcpy(reinterpret_cast<void*>(aligned), &map, sizeof map);
    bench.run("k", {1}, {1}, aligned);
    std::memcpy(&map, reinterpret_cast<void*>(aligned), sizeof map);
    CHECK(map.address == 0x12340);
    CHECK(map.rank == 2);
    CHECK(map.last[1] == 99);
    CHECK(map.box[0] == 16);
    CHECK(map.strides[1] == 0x12340);
    CHECK(map.strides[0] == 2);
    CHECK(map.steps[1] == 2);
    CHECK(map.swizzle_chunks == 8);
    CHECK(map.nan_bytes == 2);
    CHECK(map.element == Type::f16);
    // A GPU does not look whether it is a map that it changes (numba-cuda's suite changes what is none).
    std::memset(reinterpret_cast<void*>(aligned), 0, 128);
    CHECK(bench.launch("k", {1}, {1}, {}, aligned).outcome == Outcome::done);
    std::memcpy(&map, reinterpret_cast<void*>(aligned), sizeof map);
    CHECK(map.mark != TensorMap::ours);

    Bench wrong(module_of(
        ".reg .b64 %in; ld.param.u64 %in, [p0]; tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%in], 9;", 1));
    map.mark = TensorMap::ours;
    auto other = wrong.array<std::byte>(256);
    aligned = (other.address + 63) & ~uint64_t{63};
    std::memcpy(reinterpret_cast<void*>(aligned), &map, sizeof map);
    CHECK(wrong.launch("k", {1}, {1}, {}, aligned).outcome == Outcome::illegal_instruction);
}
