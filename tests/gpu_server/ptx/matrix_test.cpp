// mma, ldmatrix, stmatrix and movmatrix against products computed here (matrix_bench.hpp).
#include <numeric>

#include "tests/gpu_server/ptx/matrix_bench.hpp"
#include "tests/gpu_server/ptx/tiles_bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

TEST_CASE("mma: halves", "[ptx][matrix]") {
    Matrix a16{16, 16, 16, 8, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                   bool upper = i < 2 || (i >= 4 && i < 6);
                   return {upper ? g : g + 8, t * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
               }};
    Matrix b16{16, 8, 16, 4, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                   return {t * 2 + (i & 1) + (i >= 2 ? 8 : 0), g};
               }};
    Matrix a8{16, 8, 16, 4, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                  return {i < 2 ? g : g + 8, t * 2 + (i & 1)};
              }};
    Matrix b8{8, 8, 16, 2, [](uint32_t g, uint32_t t, uint32_t i) -> Place { return {t * 2 + i, g}; }};
    multiplies({"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", a16, b16, sums16(32), half, single});
    multiplies({"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", a16, b16, sums16(16), half, half});
    multiplies({"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", a16, b16, sums16(32), bfloat, single});
    multiplies({"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", a8, b8, sums16(32), half, single});
    multiplies({"mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", a8, b8, sums16(32), bfloat, single});
}

TEST_CASE("mma: tf32, double precision, eight bits", "[ptx][matrix]") {
    Matrix a4{16, 4, 32, 2, [](uint32_t g, uint32_t t, uint32_t i) -> Place { return {i == 0 ? g : g + 8, t}; }};
    Matrix b4{4, 8, 32, 1, [](uint32_t g, uint32_t t, uint32_t) -> Place { return {t, g}; }};
    Matrix a8{16, 8, 32, 4, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                  return {i == 0 || i == 2 ? g : g + 8, i < 2 ? t : t + 4};
              }};
    Matrix b8{8, 8, 32, 2, [](uint32_t g, uint32_t t, uint32_t i) -> Place { return {i == 0 ? t : t + 4, g}; }};
    multiplies({"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", a4, b4, sums16(32), single, single});
    multiplies({"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", a8, b8, sums16(32), single, single});

    Matrix ad{8, 4, 64, 1, [](uint32_t g, uint32_t t, uint32_t) -> Place { return {g, t}; }};
    Matrix bd{4, 8, 64, 1, [](uint32_t g, uint32_t t, uint32_t) -> Place { return {t, g}; }};
    multiplies({"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", ad, bd, sums8(64), twice_as_wide, twice_as_wide});
    Matrix ad16{16, 16, 64, 8, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                    return {i % 2 == 0 ? g : g + 8, i / 2 * 4 + t};
                }};
    Matrix bd16{16, 8, 64, 4, [](uint32_t g, uint32_t t, uint32_t i) -> Place { return {t + i * 4, g}; }};
    multiplies(
        {"mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", ad16, bd16, sums16(64), twice_as_wide, twice_as_wide});

    Matrix ab{16, 32, 8, 16, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                  bool upper = i < 4 || (i >= 8 && i < 12);
                  return {upper ? g : g + 8, t * 4 + (i & 3) + (i >= 8 ? 16 : 0)};
              }};
    Matrix bb{32, 8, 8, 8, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                  return {t * 4 + (i & 3) + (i >= 4 ? 16 : 0), g};
              }};
    auto e4m3 = [](int x) -> uint64_t { return encode(x, e4m3_format, Rounding::nearest); };
    multiplies({"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", ab, bb, sums16(32), e4m3, single});
    multiplies({"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32", ab, bb, sums16(32), e4m3, single});
    multiplies(
        {"mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32", ab, bb, sums16(32), byte, whole, -128, 127});
    multiplies({"mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32", ab, bb, sums16(32), byte, whole, 0, 255});
}

TEST_CASE("mma: small whole numbers and bits", "[ptx][matrix]") {
    Matrix ab{8, 16, 8, 4, [](uint32_t g, uint32_t t, uint32_t i) -> Place { return {g, t * 4 + i}; }};
    Matrix bb{16, 8, 8, 4, [](uint32_t g, uint32_t t, uint32_t i) -> Place { return {t * 4 + i, g}; }};
    multiplies({"mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", ab, bb, sums8(32), byte, whole, -128, 127});
    Matrix a4{16, 64, 4, 32, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                  bool upper = i < 8 || (i >= 16 && i < 24);
                  return {upper ? g : g + 8, t * 8 + (i & 7) + (i >= 16 ? 32 : 0)};
              }};
    Matrix b4{64, 8, 4, 16, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                  return {t * 8 + (i & 7) + (i >= 8 ? 32 : 0), g};
              }};
    multiplies({"mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", a4, b4, sums16(32), four_bits, whole, -8, 7});
    multiplies({"mma.sync.aligned.m16n8k64.row.col.s32.u4.u4.s32", a4, b4, sums16(32), four_bits, whole, 0, 15});
    Matrix a1{16, 256, 1, 128, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                  bool upper = i < 32 || (i >= 64 && i < 96);
                  return {upper ? g : g + 8, t * 32 + (i & 31) + (i >= 64 ? 128 : 0)};
              }};
    Matrix b1{256, 8, 1, 64, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                  return {t * 32 + (i & 31) + (i >= 32 ? 128 : 0), g};
              }};
    multiplies({"mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", a1, b1, sums16(32), whole, whole, 0, 1,
                [](int x, int y) { return x ^ y; }});
    multiplies({"mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc", a1, b1, sums16(32), whole, whole, 0, 1,
                [](int x, int y) { return x & y; }});
}

TEST_CASE("mma: floats of six and four bits, and blocks with scales", "[ptx][matrix]") {
    Matrix a8{16, 32, 8, 16, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                  bool upper = i < 4 || (i >= 8 && i < 12);
                  return {upper ? g : g + 8, t * 4 + (i & 3) + (i >= 8 ? 16 : 0)};
              }};
    Matrix b8{32, 8, 8, 8, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                  return {t * 4 + (i & 3) + (i >= 4 ? 16 : 0), g};
              }};
    auto e3m2 = [](int x) -> uint64_t { return encode(x, e3m2_format, Rounding::nearest); };
    auto e2m3 = [](int x) -> uint64_t { return encode(x, e2m3_format, Rounding::nearest); };
    auto e2m1 = [](int x) -> uint64_t { return encode(x, e2m1_format, Rounding::nearest); };
    auto in_byte = [=](int x) { return e2m1(x) << 2; };
    auto e5m2 = [](int x) -> uint64_t { return encode(x, e5m2_format, Rounding::nearest); };
    const std::string narrow = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.";
    for (auto& [type, code] : {std::pair<std::string, Encode>{"e3m2", e3m2}, {"e2m3", e2m3}, {"e2m1", in_byte}}) {
        std::string instruction = narrow;
        instruction.append(type).append(".").append(type).append(".f32");
        multiplies({instruction.c_str(), a8, b8, sums16(32), code, single});
    }
    multiplies({"mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f16.e3m2.e3m2.f16", a8, b8, sums16(16), e3m2, half});

    // Of each four lanes, two beside each other hold the scales of rows r and r + 8, and one that of a column.
    auto power = [](uint32_t lane, uint32_t byte) {
        return 1 << (byte % 2 + static_cast<uint32_t>(std::popcount(lane & 7)));
    };
    auto scales = [=](uint32_t pair, uint32_t byte_a, uint32_t lane, uint32_t byte_b, uint32_t part) {
        return [=](uint32_t row, uint32_t column, uint32_t k) {
            return power(row % 8 * 4 + pair * 2 + row / 8, byte_a + k / part) *
                   power(column * 4 + lane, byte_b + k / part);
        };
    };
    auto same = [](int x, int y) { return x * y; };
    multiplies({"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e5m2.e5m2.f32.ue8m0",
                a8, b8, sums16(32), e5m2, single, -4, 4, same, ", {%scale}, {3, 1}, {%scale}, {2, 3}",
                scales(1, 3, 3, 2, 32)});
    Matrix a4{16, 64, 4, 32, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                  bool upper = i < 8 || (i >= 16 && i < 24);
                  return {upper ? g : g + 8, t * 8 + (i & 7) + (i >= 16 ? 32 : 0)};
              }};
    Matrix b4{64, 8, 4, 16, [](uint32_t g, uint32_t t, uint32_t i) -> Place {
                  return {t * 8 + (i & 7) + (i >= 8 ? 32 : 0), g};
              }};
    multiplies({"mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0", a4, b4, sums16(32),
                e2m1, single, -4, 4, same, ", %scale, {2, 0}, %scale, {0, 1}", scales(0, 2, 1, 0, 32)});
    multiplies({"mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0",
                a4, b4, sums16(32), e2m1, single, -4, 4, same, ", %scale, {0, 1}, %scale, {0, 0}",
                scales(1, 0, 0, 0, 16)});
}

TEST_CASE("mma: scales of a half and more, e4m3 without a sign", "[ptx][matrix]") {
    // All of `a` and `b` are 1, the scales 1.5 and 0.5: of each product, which is the sum of 64.
    Bench bench(R"(
.version 8.7
.target sm_120a
.address_size 64
.entry k(.param .u64 out)
{
    .reg .b32 %one, %sa, %sb, %lane; .reg .f32 %z, %d<4>; .reg .b64 %out, %o;
    ld.param.u64 %out, [out]; mov.u32 %lane, %laneid; mul.wide.u32 %o, %lane, 4; add.u64 %out, %out, %o;
    mov.b32 %one, 0x22222222; mov.b32 %sa, 0x3c3c3c3c; mov.b32 %sb, 0x30303030; mov.f32 %z, 0f00000000;
    mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3
        {%d0, %d1, %d2, %d3}, {%one, %one, %one, %one}, {%one, %one}, {%z, %z, %z, %z}, {%sa}, {0, 0}, {%sb}, {0, 0};
    st.global.f32 [%out], %d3;
    ret;
})");
    auto out = bench.array<float>(32);
    bench.run("k", {1}, {32}, out);
    for (int lane = 0; lane < 32; ++lane) CHECK(out[lane] == 64 * 1.5f * 0.5f);
}

TEST_CASE("ldmatrix gives elements of four and six bits a byte each", "[ptx][matrix]") {
    for (uint32_t bits : {4u, 6u}) {
        std::vector<uint8_t> rows(512), expected(512);
        for (uint32_t row = 0; row < 32; ++row)
            for (uint32_t e = 0; e < 16; ++e) {
                uint32_t value = (row * 5 + e * 3 + 1) & ((1u << bits) - 1), at = e * bits, lane = row % 8 * 4 + e / 4;
                rows[row * 16 + at / 8] |= static_cast<uint8_t>(value << at % 8);
                rows[row * 16 + at / 8 + 1] |= static_cast<uint8_t>(value << at % 8 >> 8);
                expected[lane * 16 + row / 8 * 4 + e % 4] = static_cast<uint8_t>(value);
            }
        auto out =
            through_tiles("ldmatrix.sync.aligned.m8n16.x4.shared.b8x16." +
                              std::string(bits == 4 ? "b4x16_p64" : "b6x16_p32") + " {%r0, %r1, %r2, %r3}, [%t];",
                          rows);
        CHECK(std::vector<uint8_t>(out.begin(), out.begin() + 512) == expected);
    }
}

TEST_CASE("mma: what does not fit is refused", "[ptx][matrix]") {
    auto refused = [](const std::string& line) {
        auto loaded = load(".version 8.7\n.target sm_90\n.address_size 64\n.entry k()\n{\n.reg .b32 %r<20>;\n" + line +
                           "\nret;\n}");
        INFO(line);
        CHECK_FALSE(loaded);
    };
    refused(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r0,%r1,%r2,%r3}, {%r4,%r5,%r6}, {%r8,%r9}, "
        "{%r0,%r1,%r2,%r3};");
    refused(
        "mma.sync.aligned.m16n8k99.row.col.f32.f16.f16.f32 {%r0,%r1,%r2,%r3}, {%r4,%r5,%r6,%r7}, {%r8,%r9}, "
        "{%r0,%r1,%r2,%r3};");
    refused(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%r0,%r1,%r2,%r3}, {%r4,%r5,%r6,%r7}, {%r8,%r9}, "
        "{%r0,%r1,%r2,%r3};");
    refused(
        "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32 {%r0,%r1,%r2,%r3}, {%r4,%r5,%r6,%r7}, {%r8,%r9}, "
        "{%r0,%r1,%r2,%r3};");
    refused("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0,%r1}, [%r2];");
}

TEST_CASE("ldmatrix, stmatrix and movmatrix", "[ptx][matrix]") {
    // The tile is loaded twice, as it lies and turned; what was turned is turned back by each of the others.
    Bench bench(R"(
.version 8.3
.target sm_90
.address_size 64
.shared .align 16 .b8 tiles[512];
.shared .align 16 .b8 copy[512];
.entry k(.param .u64 in, .param .u64 out)
{
    .reg .b64 %in, %out, %o; .reg .b32 %lane, %t, %s, %c, %r<4>, %u<4>, %v<4>; 
    mov.u32 %lane, %laneid;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
    mul.wide.u32 %o, %lane, 16; add.u64 %in, %in, %o; add.u64 %out, %out, %o;
    mov.u32 %t, tiles; mov.u32 %c, copy; shl.b32 %s, %lane, 4; add.u32 %t, %t, %s; add.u32 %c, %c, %s;
    ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%in];
    st.shared.v4.u32 [%t], {%r0, %r1, %r2, %r3};
    bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%u0, %u1, %u2, %u3}, [%t];
    ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 {%v0, %v1, %v2, %v3}, [%t];
    st.global.v4.u32 [%out], {%u0, %u1, %u2, %u3};
    st.global.v4.u32 [%out+512], {%v0, %v1, %v2, %v3};
    movmatrix.sync.aligned.m8n8.trans.b16 %v0, %v0;
    st.global.u32 [%out+1024], %v0;
    movmatrix.sync.aligned.m8n8.trans.b16 %v0, %v0;
    stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%c], {%v0, %v1, %v2, %v3};
    bar.sync 0;
    ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%c];
    st.global.v4.u32 [%out+1536], {%r0, %r1, %r2, %r3};
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 %u0, [%t];
    st.global.u32 [%out+2048], %u0;
    ret;
})");
    std::vector<uint16_t> tiles(256);
    std::iota(tiles.begin(), tiles.end(), uint16_t{100});
    auto out = bench.array<uint16_t>(5 * 256);
    bench.run("k", {1}, {32}, bench.array(tiles), out);
    for (uint32_t lane = 0; lane < 32; ++lane)
        for (uint32_t e = 0; e < 8; ++e) {
            INFO("lane " << lane << ", element " << e);
            uint32_t tile = e / 2, row = lane / 4, column = lane % 4 * 2 + e % 2;
            CHECK(out[lane * 8 + e] == tiles[tile * 64 + row * 8 + column]);
            CHECK(out[256 + lane * 8 + e] == tiles[tile * 64 + column * 8 + row]);
            CHECK(out[768 + lane * 8 + e] == tiles[lane * 8 + e]);
            if (tile) continue;
            CHECK(out[512 + lane * 8 + e] == tiles[row * 8 + column]);
            CHECK(out[1024 + lane * 8 + e] == tiles[row * 8 + column]);
        }
}
