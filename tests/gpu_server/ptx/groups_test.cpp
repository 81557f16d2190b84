// One table per instruction group: a line of PTX, its operands, and what must come out.
#include <bit>
#include <cmath>
#include <limits>

#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// Runs `body` with %x, %y, %z loaded from three 64-bit words and %o stored back; a-d are 32-bit, h 16-bit,
// f 32-bit and g 64-bit float registers.
uint64_t evaluate(const std::string& body, uint64_t x, uint64_t y = 0, uint64_t z = 0) {
    std::string text =
        ".reg .b64 %in, %x, %y, %z, %o; .reg .b32 %a, %b, %c, %d, %e; .reg .b16 %h, %i, %j, %k; .reg .pred %p, %q, %r;"
        ".reg .f32 %f, %g; .reg .f64 %u, %v, %w;\n"
        "ld.param.u64 %in, [p0];\n"
        "ld.global.b64 %x, [%in]; ld.global.b64 %y, [%in+8]; ld.global.b64 %z, [%in+16]; mov.b64 %o, 0;\n"
        "cvt.u32.u64 %a, %x; cvt.u32.u64 %b, %y; cvt.u32.u64 %c, %z; cvt.u16.u64 %h, %x; cvt.u16.u64 %i, %y;\n"
        "cvt.u16.u64 %j, %z; mov.b64 %u, %x; mov.b64 %v, %y; mov.b32 %f, %a; mov.b32 %g, %b;\n" +
        body + "\nst.global.b64 [%in+24], %o;";
    INFO(body);
    Bench bench(module_of(text, 1));
    auto words = bench.array<uint64_t>({x, y, z, 0});
    bench.run("k", {1}, {1}, words);
    return words[3];
}

struct Row {
    const char* body;
    uint64_t x, y, z, expected;
};

uint64_t word(float value) {
    return std::bit_cast<uint32_t>(value);
}
uint64_t word(double value) {
    return std::bit_cast<uint64_t>(value);
}

void check(std::initializer_list<Row> rows) {
    for (auto& row : rows) {
        INFO(row.body << std::hex << " x=" << row.x << " y=" << row.y << " z=" << row.z
                      << " expected=" << row.expected);
        CHECK(evaluate(row.body, row.x, row.y, row.z) == row.expected);
    }
}

}  // namespace

#define D32(instruction) instruction " cvt.u64.u32 %o, %d;"
#define D16(instruction) instruction " cvt.u64.u16 %o, %k;"
#define P(instruction) instruction " selp.b64 %o, 1, 0, %p;"
#define PQ(instruction) instruction " selp.b64 %o, 1, 0, %p; @%q add.u64 %o, %o, 2;"

TEST_CASE("integer arithmetic", "[ptx][integer]") {
    check({
        {D32("add.s32 %d, %a, %b;"), 0xffffffff, 3, 0, 2},
        {D32("add.sat.s32 %d, %a, %b;"), 0x7fffffff, 3, 0, 0x7fffffff},
        {D32("sub.sat.s32 %d, %a, %b;"), 0x80000000, 3, 0, 0x80000000},
        {D16("add.u16 %k, %h, %i;"), 0xffff, 2, 0, 1},
        {D32("mul.hi.u32 %d, %a, %b;"), 0xffffffff, 0xffffffff, 0, 0xfffffffe},
        {D32("mul.hi.s32 %d, %a, %b;"), 0xffffffff, 5, 0, 0xffffffff},
        {"mul.wide.s32 %o, %a, %b;", 0xffffffff, 5, 0, 0xfffffffffffffffb},
        {"mul.wide.u32 %o, %a, %b;", 0xffffffff, 5, 0, 0x4fffffffb},
        {"mul.hi.u64 %o, %x, %y;", ~0ull, ~0ull, 0, ~1ull},
        {"mad.wide.u32 %o, %a, %b, %z;", 0x10000, 0x10000, 7, 0x100000007},
        {"mad.lo.s64 %o, %x, %y, %z;", 3, 5, ~0ull, 14},
        {D32("mad.hi.u32 %d, %a, %b, %c;"), 0x80000000, 4, 1, 3},
        {D32("mul24.lo.u32 %d, %a, %b;"), 0x01000003, 5, 0, 15},
        {D32("mul24.lo.s32 %d, %a, %b;"), 0x00ffffff, 5, 0, 0xfffffffb},
        {D32("div.s32 %d, %a, %b;"), 0xfffffff9, 2, 0, 0xfffffffd},
        {D32("div.u32 %d, %a, %b;"), 7, 0, 0, 0xffffffff},
        {D32("rem.s32 %d, %a, %b;"), 0xfffffff9, 2, 0, 0xffffffff},
        {D32("div.s32 %d, %a, %b;"), 0x80000000, 0xffffffff, 0, 0x80000000},
        {"rem.u64 %o, %x, %y;", 1000000007, 10, 0, 7},
        {D32("abs.s32 %d, %a;"), 0xfffffff9, 0, 0, 7},
        {D32("neg.s32 %d, %a;"), 7, 0, 0, 0xfffffff9},
        {D32("min.s32 %d, %a, %b;"), 0xffffffff, 1, 0, 0xffffffff},
        {D32("min.u32 %d, %a, %b;"), 0xffffffff, 1, 0, 1},
        {"max.s64 %o, %x, %y;", ~0ull, 1, 0, 1},
        {D32("max.s32.relu %d, %a, %b;"), 0xfffffff0, 0xfffffffe, 0, 0},
        {D32("min.relu.s32 %d, %a, %b;"), 5, 9, 0, 5},
        {D32("max.s16x2.relu %d, %a, %b;"), 0x0005fffe, 0x0003fff0, 0, 0x00050000},
        {D32("min.s16x2.relu %d, %a, %b;"), 0x0005fffe, 0x0003fff0, 0, 0x00030000},
        {D32("sad.s32 %d, %a, %b, %c;"), 0xffffffff, 4, 10, 15},
        {D32("dp4a.s32.u32 %d, %a, %b, %c;"), 0xff020304, 0x01010101, 100, 108},
        {D32("dp4a.u32.u32 %d, %a, %b, %c;"), 0xff020304, 0x01010101, 100, 364},
        {D32("dp2a.lo.u32.u32 %d, %a, %b, %c;"), 0x00030002, 0x05040706, 1, 34},
        {D32("dp2a.hi.u32.u32 %d, %a, %b, %c;"), 0x00030002, 0x05040706, 1, 24},
    });
}

TEST_CASE("carries", "[ptx][carry]") {
    constexpr const char* add =
        "cvt.u32.u64 %a, %x; shr.u64 %z, %x, 32; cvt.u32.u64 %b, %z; cvt.u32.u64 %c, %y; shr.u64 %z, %y, 32; "
        "cvt.u32.u64 %d, %z;"
        "add.cc.u32 %a, %a, %c; addc.u32 %b, %b, %d; mov.b64 %o, {%a, %b};";
    constexpr const char* sub =
        "cvt.u32.u64 %a, %x; shr.u64 %z, %x, 32; cvt.u32.u64 %b, %z; cvt.u32.u64 %c, %y; shr.u64 %z, %y, 32; "
        "cvt.u32.u64 %d, %z;"
        "sub.cc.u32 %a, %a, %c; subc.u32 %b, %b, %d; mov.b64 %o, {%a, %b};";
    constexpr const char* mad = "mad.lo.cc.u32 %d, %a, %b, %c; madc.hi.u32 %e, %a, %b, 0; mov.b64 %o, {%d, %e};";
    for (uint64_t x : {0ull, 1ull, 0xffffffffull, 0x1234567890abcdefull, ~0ull})
        for (uint64_t y : {0ull, 1ull, 0xffffffffull, 0xfedcba9876543210ull, ~0ull}) {
            CHECK(evaluate(add, x, y) == x + y);
            CHECK(evaluate(sub, x, y) == x - y);
            CHECK(evaluate(mad, x, y, 0xffffffff) == (x & 0xffffffff) * (y & 0xffffffff) + 0xffffffff);
        }
}

// As nvcc's division of 128 bits has it.
TEST_CASE("a difference leaves a carry where it has borrowed nothing, as a sum with the complement", "[ptx][carry]") {
    check({
        {D32("sub.cc.u32 %e, %a, %b; addc.u32 %d, 0, 0;"), 5, 5, 0, 1},
        {D32("sub.cc.u32 %e, %a, %b; addc.u32 %d, 0, 0;"), 5, 6, 0, 0},
        {D32("sub.cc.u32 %e, %a, %b; subc.cc.u32 %e, %c, 0; addc.u32 %d, 0, 0;"), 5, 6, 0, 0},
        {D32("sub.cc.u32 %e, %a, %b; subc.cc.u32 %e, %c, 0; addc.u32 %d, 0, 0;"), 5, 6, 1, 1},
        {D32("add.cc.u32 %e, %a, %b; subc.u32 %d, %c, 0;"), 0xffffffff, 1, 7, 7},
        {D32("add.cc.u32 %e, %a, %b; subc.u32 %d, %c, 0;"), 1, 1, 7, 6},
    });
}

TEST_CASE("bits", "[ptx][bits]") {
    check({
        {D32("bfe.u32 %d, %a, 4, 8;"), 0x12345678, 0, 0, 0x67},
        {D32("bfe.s32 %d, %a, 4, 4;"), 0x12345698, 0, 0, 0xfffffff9},
        {D32("bfe.s32 %d, %a, 28, 8;"), 0x92345698, 0, 0, 0xfffffff9},
        {D32("bfi.b32 %d, %a, %b, 8, 8;"), 0xab, 0x11223344, 0, 0x1122ab44},
        {"bfi.b64 %o, %x, %y, 32, 32;", 0xdeadbeef, 0x12345678, 0, 0xdeadbeef12345678},
        {D32("bfind.u32 %d, %a;"), 0x00010000, 0, 0, 16},
        {D32("bfind.s32 %d, %a;"), 0xfffffffe, 0, 0, 0},
        {D32("bfind.shiftamt.u32 %d, %a;"), 0x00010000, 0, 0, 15},
        {D32("bfind.u32 %d, %a;"), 0, 0, 0, 0xffffffff},
        {D32("brev.b32 %d, %a;"), 1, 0, 0, 0x80000000},
        {D32("clz.b64 %d, %x;"), 1, 0, 0, 63},
        {D32("popc.b64 %d, %x;"), ~0ull, 0, 0, 64},
        {D32("shl.b32 %d, %a, %b;"), 1, 40, 0, 0},
        {D32("shr.s32 %d, %a, %b;"), 0x80000000, 40, 0, 0xffffffff},
        {D32("shf.l.wrap.b32 %d, %a, %b, %c;"), 0x80000000, 1, 33, 3},
        {D32("shf.r.clamp.b32 %d, %a, %b, %c;"), 0x80000000, 1, 33, 1},
        {D32("prmt.b32 %d, %a, %b, 0x7210;"), 0x03020100, 0x07060504, 0, 0x07020100},
        {D32("prmt.b32 %d, %a, %b, 0x888a;"), 0x00800000, 0, 0, 0x000000ff},
        {D32("lop3.b32 %d, %a, %b, %c, 0xe8;"), 0xf0, 0xcc, 0xaa, 0xe8},
        {D32("lop3.b32 %d, %a, %b, %c, 0x96;"), 0xf0, 0xcc, 0xaa, 0x96},
        {D32("not.b32 %d, %a;"), 0, 0, 0, 0xffffffff},
        {D32("cnot.b32 %d, %a;"), 0, 0, 0, 1},
        {D32("fns.b32 %d, %a, 4, 2;"), 0xaaaaaaaa, 0, 0, 7},
    });
}

TEST_CASE("comparisons and choices", "[ptx][compare]") {
    uint64_t nan = 0x7fc00000, one = word(1.0f), two = word(2.0f);
    check({
        {P("setp.lt.s32 %p, %a, %b;"), 0xffffffff, 1, 0, 1},
        {P("setp.lo.u32 %p, %a, %b;"), 0xffffffff, 1, 0, 0},
        {PQ("setp.lt.u32 %p|%q, %a, %b;"), 5, 1, 0, 2},
        {P("setp.eq.s32 %q, 0, 1; setp.eq.and.s32 %p, %a, %b, %q;"), 4, 4, 0, 0},
        {P("setp.eq.s32 %q, 0, 1; setp.eq.or.s32 %p, %a, %b, !%q;"), 3, 4, 0, 1},
        {P("setp.eq.s32 %q, 1, 1; setp.eq.xor.s32 %p, %a, %b, %q;"), 4, 4, 0, 0},
        {P("setp.lt.f32 %p, %f, %g;"), nan, one, 0, 0},
        {P("setp.ltu.f32 %p, %f, %g;"), nan, one, 0, 1},
        {P("setp.ne.f32 %p, %f, %g;"), nan, one, 0, 0},
        {P("setp.neu.f32 %p, %f, %g;"), nan, one, 0, 1},
        {P("setp.equ.f32 %p, %f, %g;"), nan, one, 0, 1},
        {P("setp.nan.f32 %p, %f, %g;"), nan, one, 0, 1},
        {P("setp.num.f32 %p, %f, %g;"), two, one, 0, 1},
        {P("setp.ge.f64 %p, %u, %v;"), word(2.0), word(2.0), 0, 1},
        {P("setp.gt.f16 %p, %h, %i;"), 0x4000, 0x3c00, 0, 1},
        {P("setp.eq.ftz.f32 %p, %f, %g;"), 1, 0, 0, 1},
        {D32("set.lt.u32.f32 %d, %f, %g;"), one, two, 0, 0xffffffff},
        {D32("set.gt.f32.s32 %e, %a, %b; mov.b32 %d, %e;"), 5, 2, 0, one},
        {D32("slct.b32.s32 %d, %a, %b, %c;"), 5, 2, 0xffffffff, 2},
        {P("setp.eq.s32 %q, 0, 0; not.pred %p, %q; or.pred %p, %p, %q;"), 0, 0, 0, 1},
    });
}

TEST_CASE("floats", "[ptx][float]") {
    uint64_t tenth = word(0.1f), third = word(1.0f / 3), nan = 0x7fc00000;
    auto towards = [](float v, float to) { return word(std::nextafter(v, to)); };
    check({
        {D32("add.rn.f32 %f, %f, %g; mov.b32 %d, %f;"), tenth, third, 0, word(0.1f + 1.0f / 3)},
        {D32("add.rp.f32 %f, %f, %g; mov.b32 %d, %f;"), word(1.0f), word(1e-20f), 0, towards(1, 2)},
        {D32("sub.rm.f32 %f, %f, %g; mov.b32 %d, %f;"), word(1.0f), word(1e-20f), 0, towards(1, 0)},
        {D32("add.rz.f32 %f, %f, %g; mov.b32 %d, %f;"), word(-1.0f), word(1e-20f), 0, towards(-1, 0)},
        {D32("mul.rz.f32 %f, %f, %g; mov.b32 %d, %f;"), word(1.0000001f), word(1.0000001f), 0, word(1.0000002f)},
        {D32("div.rn.f32 %f, %f, %g; mov.b32 %d, %f;"), word(1.0f), word(3.0f), 0, third},
        {D32("fma.rn.f32 %f, %f, %g, 0fBF800000; mov.b32 %d, %f;"), word(1.0000001f), word(1.0000001f), 0,
         word(std::fma(1.0000001f, 1.0000001f, -1.0f))},
        {D32("add.sat.f32 %f, %f, %g; mov.b32 %d, %f;"), word(0.7f), word(0.7f), 0, word(1.0f)},
        {D32("add.sat.f32 %f, %f, %g; mov.b32 %d, %f;"), nan, word(0.7f), 0, 0},
        {D32("add.ftz.f32 %f, %f, %g; mov.b32 %d, %f;"), 1, 2, 0, 0},
        {D32("add.f32 %f, %f, %g; mov.b32 %d, %f;"), 1, 2, 0, 3},
        {D32("sqrt.rn.f32 %f, %f; mov.b32 %d, %f;"), word(2.0f), 0, 0, word(std::sqrt(2.0f))},
        {D32("rcp.rn.f32 %f, %f; mov.b32 %d, %f;"), word(3.0f), 0, 0, third},
        {D32("ex2.approx.f32 %f, %f; mov.b32 %d, %f;"), word(10.0f), 0, 0, word(1024.0f)},
        {D32("lg2.approx.f32 %f, %f; mov.b32 %d, %f;"), word(1024.0f), 0, 0, word(10.0f)},
        {D32("rsqrt.approx.f32.ftz %f, %f; mov.b32 %d, %f;"), word(4.0f), 0, 0, word(0.5f)},
        {D32("ex2.approx.f32.ftz %f, %f; mov.b32 %d, %f;"), 1, 0, 0, word(1.0f)},
        {D32("min.f32 %f, %f, %g; mov.b32 %d, %f;"), nan, word(1.0f), 0, word(1.0f)},
        {D32("min.NaN.f32 %f, %f, %g; mov.b32 %d, %f;"), nan, word(1.0f), 0, 0x7fffffff},
        {D32("max.f32 %f, %f, %g; mov.b32 %d, %f;"), word(-0.0f), word(0.0f), 0, 0},
        {D32("abs.f32 %f, %f; mov.b32 %d, %f;"), word(-2.0f), 0, 0, word(2.0f)},
        {D32("copysign.f32 %f, %f, %g; mov.b32 %d, %f;"), word(-2.0f), word(3.0f), 0, word(-3.0f)},
        {P("testp.subnormal.f32 %p, %f;"), 1, 0, 0, 1},
        {P("testp.finite.f32 %p, %f;"), nan, 0, 0, 0},
        {"div.rn.f64 %w, %u, %v; mov.b64 %o, %w;", word(1.0), word(3.0), 0, word(1.0 / 3)},
        {"add.rp.f64 %w, %u, %v; mov.b64 %o, %w;", word(1.0), word(1e-30), 0, word(std::nextafter(1.0, 2.0))},
        {"fma.rm.f64 %w, %u, %v, 0dB000000000000000; mov.b64 %o, %w;", word(1.0), word(1.0), 0,
         word(std::nextafter(1.0, 0.0))},
        {"sqrt.rz.f64 %w, %u; mov.b64 %o, %w;", word(4.0), 0, 0, word(2.0)},
    });
}

TEST_CASE("halves", "[ptx][half]") {
    check({
        {D16("add.f16 %k, %h, %i;"), 0x3c00, 0x3c01, 0, 0x4000},  // 1 + 1.001 rounds to even
        {D16("mul.f16 %k, %h, %i;"), 0x4200, 0x4000, 0, 0x4600},
        {D16("fma.rn.f16 %k, %h, %i, %j;"), 0x4200, 0x4000, 0xbc00, 0x4500},
        {D16("fma.rn.relu.f16 %k, %h, %i, %j;"), 0xc200, 0x4000, 0xbc00, 0},
        {D16("add.sat.f16 %k, %h, %i;"), 0x3c00, 0x3c00, 0, 0x3c00},
        {D32("add.f16x2 %d, %a, %b;"), 0x3c004000, 0x3c003c00, 0, 0x40004200},
        {D32("fma.rn.bf16x2 %d, %a, %b, %c;"), 0x40003f80, 0x40003f80, 0x3f803f80, 0x40a04000},
        {D16("max.f16 %k, %h, %i;"), 0x7e00, 0x3c00, 0, 0x3c00},
        {D16("max.NaN.f16 %k, %h, %i;"), 0x7e00, 0x3c00, 0, 0x7fff},
        {D16("neg.f16 %k, %h;"), 0x3c00, 0, 0, 0xbc00},
        {D16("add.f16 %k, %h, %i;"), 0x7bff, 0x7bff, 0, 0x7c00},
        {D16("mul.f16 %k, %h, %i;"), 0x0400, 0x3800, 0, 0x0200},  // into the subnormals
    });
}

TEST_CASE("conversions", "[ptx][convert]") {
    check({
        {D32("cvt.rzi.s32.f32 %d, %f;"), word(-1.7f), 0, 0, 0xffffffff},
        {D32("cvt.rni.s32.f32 %d, %f;"), word(2.5f), 0, 0, 2},
        {D32("cvt.rpi.s32.f32 %d, %f;"), word(2.1f), 0, 0, 3},
        {D32("cvt.rmi.s32.f32 %d, %f;"), word(-2.1f), 0, 0, 0xfffffffd},
        {D32("cvt.rzi.u32.f32 %d, %f;"), word(-5.0f), 0, 0, 0},
        {D32("cvt.rzi.s32.f32 %d, %f;"), word(1e20f), 0, 0, 0x7fffffff},
        {D32("cvt.rzi.s32.f32 %d, %f;"), 0x7fc00000, 0, 0, 0},
        {D32("cvt.rmi.f32.f32 %f, %f; mov.b32 %d, %f;"), word(-2.1f), 0, 0, word(-3.0f)},
        {D32("cvt.sat.f32.f32 %f, %f; mov.b32 %d, %f;"), word(3.0f), 0, 0, word(1.0f)},
        {D32("cvt.rn.f32.s32 %f, %a; mov.b32 %d, %f;"), 0xffffffff, 0, 0, word(-1.0f)},
        {D32("cvt.rz.f32.u32 %f, %a; mov.b32 %d, %f;"), 0xffffffff, 0, 0, word(4294967040.0f)},
        {D32("cvt.rn.f32.u64 %f, %x; mov.b32 %d, %f;"), ~0ull, 0, 0, word(18446744073709551616.0f)},
        {"cvt.rn.f64.s64 %w, %x; mov.b64 %o, %w;", ~0ull, 0, 0, word(-1.0)},
        {"cvt.f64.f32 %w, %f; mov.b64 %o, %w;", word(1.5f), 0, 0, word(1.5)},
        {D32("cvt.rz.f32.f64 %f, %u; mov.b32 %d, %f;"), word(0.1), 0, 0, word(std::nextafter(0.1f, 0.0f))},
        {D32("cvt.sat.s8.s32 %d, %a;"), 1000, 0, 0, 127},
        {D32("cvt.s8.s32 %d, %a;"), 0x1ff, 0, 0, 0xffffffff},
        {"cvt.s64.s8 %o, %a;", 0x80, 0, 0, 0xffffffffffffff80},
        {"cvt.u64.u8 %o, %a;", 0x1280, 0, 0, 0x80},
        {D16("cvt.rn.f16.f32 %k, %f;"), word(1.0f / 3), 0, 0, 0x3555},
        {D16("cvt.rz.f16.f32 %k, %f;"), word(65600.0f), 0, 0, 0x7bff},
        {D16("cvt.rn.bf16.f32 %k, %f;"), word(1.0f / 3), 0, 0, 0x3eab},
        {D32("cvt.f32.f16 %f, %h; mov.b32 %d, %f;"), 0x0001, 0, 0, word(0x1p-24f)},
        {D32("cvt.rn.f16x2.f32 %d, %f, %g;"), word(1.0f), word(2.0f), 0, 0x3c004000},
        {D32("cvt.rn.bf16x2.f32 %d, %f, %g;"), word(1.0f), word(2.0f), 0, 0x3f804000},
        {D32("cvt.rna.tf32.f32 %d, %f;"), word(1.0f + 0x1p-11f), 0, 0, word(1.0f + 0x1p-10f)},
        {D16("cvt.rn.satfinite.e4m3x2.f32 %k, %f, %g;"), word(1000.0f), word(1.0f), 0, 0x7e38},
        {D32("cvt.rn.f16x2.e4m3x2 %d, %h;"), 0x7e38, 0, 0, 0x5f003c00},
    });
}

TEST_CASE("moves, packing and windows", "[ptx][move]") {
    check({
        {"mov.b64 {%a, %b}, %x; mov.b64 %o, {%b, %a};", 0x1122334455667788, 0, 0, 0x5566778811223344},
        {D32("mov.b32 {%h, %i}, %a; mov.b32 %d, {%i, %h};"), 0x12345678, 0, 0, 0x56781234},
        {P(".shared .b32 s; mov.u64 %y, s; cvta.shared.u64 %z, %y; isspacep.shared %p, %z;"), 0, 0, 0, 1},
        {P("isspacep.global %p, %in;"), 0, 0, 0, 1},
        {D32(".shared .b32 s[4]; mov.u32 %b, s; st.shared.u32 [%b+4], %a; mov.u64 %y, s; cvta.shared.u64 %z, %y; "
             "ld.u32 %d, [%z+4];"),
         77, 0, 0, 77},
        {D32(".shared .b32 s[4]; mov.u32 %b, s+12; mov.u32 %c, s+-4; mov.u32 %d, s-4; sub.u32 %b, %b, %c; "
             "sub.u32 %c, %c, %d; add.u32 %d, %b, %c;"),
         0, 0, 0, 16},
        {D32(".shared .b32 s[4]; mov.u32 %b, s[2]; st.shared.u32 [s+8], %a; ld.shared.u32 %d, [%b];"), 79, 0, 0, 79},
        {D32(".local .b32 l[4]; mov.u64 %y, l; st.local.u32 [%y+8], %a; cvta.local.u64 %z, %y; ld.u32 %d, [%z+8];"), 78,
         0, 0, 78},
        {D32(".reg .v2 .u32 %v; mov.v2.u32 %v, {%a, %b}; mov.v2.u32 %v, {%v.y, %v.x}; sub.u32 %d, %v.x, %v.y;"), 3, 10,
         0, 7},
        {".reg .v2 .u64 %v; .reg .v4 .u16 %n; mov.v2.u64 %v, {1, %x}; mov.v4.u16 %n, {0, %h, %i, -1}; "
         "mov.b64 %o, {%n.w, %n.z, %n.y, %n.x}; add.u64 %o, %o, %v.y;",
         5, 3, 0, 0x50003ffff + 5},
        {D32("mov.u32 %d, %laneid;"), 0, 0, 0, 0},
        {D32("mad.lo.s32 %d, %ctaid.x, %ntid.x, %a;"), 9, 0, 0, 9},
        {D32("mov.u32 %d, WARP_SZ;"), 0, 0, 0, 32},
    });
}

TEST_CASE("memory and atomics", "[ptx][memory]") {
    check({
        {"st.global.v2.u32 [%in+8], {%a, %b}; ld.global.u64 %o, [%in+8];", 1, 2, 0, 0x200000001},
        {D32("st.global.u8 [%in+8], %a; ld.global.s8 %d, [%in+8];"), 0x1ff, 0, 0, 0xffffffff},
        {"ld.volatile.global.u16 %o, [%in];", 0xabcd1234, 0, 0, 0x1234},
        {D32("atom.global.add.u32 %d, [%in+8], %a; ld.global.u64 %o, [%in+8]; cvt.u32.u64 %d, %o;"), 3, 4, 0, 7},
        {D32("atom.global.cas.b32 %d, [%in+8], 4, %a;"), 3, 4, 0, 4},
        {"atom.global.cas.b32 %d, [%in+8], 4, %a; ld.global.u64 %o, [%in+8];", 3, 4, 0, 3},
        {"atom.global.inc.u32 %d, [%in+8], %a; ld.global.u64 %o, [%in+8];", 4, 4, 0, 0},
        {"atom.global.dec.u32 %d, [%in+8], %a; ld.global.u64 %o, [%in+8];", 9, 0, 0, 9},
        {"atom.global.min.s32 %d, [%in+8], %a; ld.global.u64 %o, [%in+8];", 0xffffffff, 4, 0, 0xffffffff},
        {"red.global.max.u32 [%in+8], %a; ld.global.u64 %o, [%in+8];", 3, 4, 0, 4},
        {"red.global.xor.b32 [%in+8], %a; ld.global.u64 %o, [%in+8];", 3, 5, 0, 6},
        {"atom.add.f32 %f, [%in+8], 0f3F800000; ld.global.u64 %o, [%in+8];", 0, word(2.0f), 0, word(3.0f)},
        {"atom.global.add.f64 %u, [%in+8], 0d3FF0000000000000; ld.global.u64 %o, [%in+8];", 0, word(2.0), 0, word(3.0)},
        {"atom.global.add.noftz.f16x2 %d, [%in+8], 0x3c003c00; ld.global.u64 %o, [%in+8];", 0, 0x40003c00, 0,
         0x42004000},
        {"atom.global.cas.b16 %k, [%in+8], 4, %h; ld.global.u64 %o, [%in+8];", 3, 4, 0, 3},
    });
}

TEST_CASE("two floats in one register", "[ptx][float]") {
    auto two = [](float low, float high) { return word(low) | word(high) << 32; };
    float above = std::nextafter(1.0f, 2.0f), below = std::nextafter(-1.0f, 0.0f);
    check({
        {"add.rn.f32x2 %o, %x, %y;", two(1, 2), two(0.5f, -4), 0, two(1.5f, -2)},
        {"sub.f32x2 %o, %x, %y;", two(1, 2), two(0.5f, -4), 0, two(0.5f, 6)},
        {"mul.rz.f32x2 %o, %x, %y;", two(above, 3), two(above, 5), 0, two(std::nextafter(above, 2.0f), 15)},
        {"fma.rn.f32x2 %o, %x, %y, %z;", two(2, 3), two(4, 5), two(1, -1), two(9, 14)},
        {"add.rp.f32x2 %o, %x, %y;", two(1, -1), two(1e-20f, 1e-20f), 0, two(above, below)},
        {"add.ftz.f32x2 %o, %x, %y;", two(1e-40f, 1), two(0, 1), 0, two(0, 2)},
        {"fma.rn.ftz.f32x2 %o, %x, %y, %z;", two(1e-40f, 1), two(1, 1), two(0, 1), two(0, 2)},
    });
    CHECK_FALSE(load(module_of(".reg .b64 %x; max.f32x2 %x, %x, %x;", 0)));
}
