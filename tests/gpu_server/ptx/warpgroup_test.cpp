// wgmma: products of small whole numbers by four warps, against ones calculated here. Where elements lie in shared memory is
// written down as the bytes that a tensor copy leaves there, and not as ops_warpgroup.cpp has it.
#include <functional>
#include <string>
#include <vector>

#include "tests/gpu_server/ptx/matrix_bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

constexpr uint32_t half_of_shared = 16384;  // `a` lies in the first, `b` in the second

// Where an element begins, in bytes; and the descriptor's other numbers, in bytes.
struct InShared {
    std::function<uint32_t(uint32_t line, uint32_t k)> at;
    uint64_t leading, stride, swizzle, start = 0;
};

uint64_t descriptor_of(const InShared& m, uint32_t base) {
    return (base + m.start) / 16 | m.leading / 16 << 16 | m.stride / 16 << 32 | m.swizzle << 62;
}

// Eight lines of 16 bytes behind each other, then the next ones in k.
InShared plain(uint32_t bytes) {
    return {[=](uint32_t line, uint32_t k) {
                return line / 8 * 256 + k * bytes / 16 * 128 + line % 8 * 16 + k * bytes % 16;
            },
            128, 256, 0};
}
// A line has 16 << `power` bytes, of which the product takes 32, from `from` on; its chunks change places.
InShared swizzled(uint32_t bytes, uint32_t power, uint32_t from = 0) {
    const uint32_t width = 16u << power;
    return {[=](uint32_t line, uint32_t k) {
                uint32_t chunk = (from + k * bytes) / 16, other = line * width / 128 % (1u << power);
                return line * width + (chunk ^ other) * 16 + k * bytes % 16;
            },
            16, 8 * width, 4 - power, from};
}
// Neighbours are of one k: 64 of them in 128 bytes.
InShared turned_128() {
    return {[](uint32_t line, uint32_t k) {
                return line / 64 * 2048 + k * 128 + ((line % 64 / 8) ^ (k % 8)) * 16 + line % 8 * 2;
            },
            2048, 1024, 1};
}
InShared turned_plain() {
    return {[](uint32_t line, uint32_t k) { return line / 8 * 256 + k * 16 + line % 8 * 2; }, 128, 256, 0};
}

struct Product {
    std::string types;  // "f32.f16.f16"
    uint32_t n, bits;   // of an element of a and b
    Encode encode, encode_sum;
    InShared left, right;
    std::string rest = "1, 1, 0, 0";  // behind the predicate
    int sign = 1;
    int lowest = -3, highest = 4;
    bool in_registers = false, adds = true, halves = false;
    std::function<int64_t(int64_t)> finish = [](int64_t sum) { return sum; };
};

std::string kernel_of(const Product& p, uint32_t depth, uint32_t registers) {
    std::string list, loads, stores;
    for (uint32_t i = 0; i < registers; ++i) {
        const auto reg = "%d" + std::to_string(i), place = "[%out+" + std::to_string(i * 4) + "]";
        list.append(i ? ", " : "").append(reg);
        loads.append("ld.global.u32 ").append(reg).append(", ").append(place).append(";\n");
        stores.append("st.global.u32 ").append(place).append(", ").append(reg).append(";\n");
    }
    return R"(
.version 8.0
.target sm_90a
.address_size 64
.shared .align 1024 .b8 tiles[32768];
.entry k(.param .u64 in, .param .u64 out, .param .u64 left, .param .u64 right, .param .u32 adds)
{
    .reg .b64 %in, %out, %o, %left, %right, %from; .reg .b32 %me, %t, %i, %r<4>, %adds, %d<128>; .reg .pred %p, %q;
    mov.u32 %me, %tid.x; ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
    ld.param.u64 %left, [left]; ld.param.u64 %right, [right]; ld.param.u32 %adds, [adds]; setp.ne.u32 %p, %adds, 0;
    mul.lo.u32 %i, %me, 16; mov.u32 %t, tiles; add.u32 %t, %t, %i; cvt.u64.u32 %o, %i; add.u64 %from, %in, %o;
    mov.u32 %i, 0;
more:
    ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%from]; st.shared.v4.u32 [%t], {%r0, %r1, %r2, %r3};
    add.u64 %from, %from, 2048; add.u32 %t, %t, 2048; add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 16; @%q bra more;
    bar.sync 0;
    ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%from];  // `a` in registers
    mul.wide.u32 %o, %me, )" +
           std::to_string(4 * registers) + ";\n    add.u64 %out, %out, %o;\n" + loads +
           "    wgmma.fence.sync.aligned;\n    wgmma.mma_async.sync.aligned.m64n" + std::to_string(p.n) + "k" +
           std::to_string(depth) + "." + p.types + " {" + list + "}, " +
           (p.in_registers ? "{%r0, %r1, %r2, %r3}" : "%left") + ", %right, %p" + (p.rest.empty() ? "" : ", ") +
           p.rest + ";\n    wgmma.commit_group.sync.aligned;\n    wgmma.wait_group.sync.aligned 0;\n" + stores +
           "    ret;\n}";
}

void place_bytes(std::vector<uint8_t>& shared, uint32_t at, uint64_t bits, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; ++i) shared[at + i] = static_cast<uint8_t>(bits >> (8 * i));
}

void group_multiplies(const Product& p) {
    CAPTURE(p.types, p.n, p.left.swizzle, p.right.swizzle, p.rest);
    const uint32_t bytes = p.bits / 8, depth = 32 / bytes, registers = p.halves ? p.n / 4 : p.n / 2;
    auto a = [&](uint32_t row, uint32_t k) { return small_number(row * 64 + k, 1, p.lowest, p.highest); };
    auto b = [&](uint32_t k, uint32_t column) { return small_number(column * 64 + k, 2, p.lowest, p.highest); };
    auto c = [&](uint32_t row, uint32_t column) { return small_number(row * 256 + column, 3, -9, 9); };
    std::vector<uint8_t> given(2 * half_of_shared + 2048);  // and a register's worth for each thread
    for (uint32_t k = 0; k < depth; ++k) {
        for (uint32_t row = 0; row < 64; ++row) place_bytes(given, p.left.at(row, k), p.encode(a(row, k)), bytes);
        for (uint32_t column = 0; column < p.n; ++column)
            place_bytes(given, half_of_shared + p.right.at(column, k), p.encode(b(k, column)), bytes);
    }
    auto row_of = [](uint32_t thread, uint32_t i) { return thread / 32 * 16 + thread % 32 / 4 + (i >> 1 & 1) * 8; };
    for (uint32_t thread = 0; thread < 128; ++thread)  // pairs of 16 bits: four registers of two
        for (uint32_t i = 0; p.in_registers && i < 8; ++i)
            place_bytes(given, 2 * half_of_shared + thread * 16 + i * 2,
                        p.encode(a(row_of(thread, i), thread % 4 * 2 + (i & 1) + i / 4 * 8)), 2);

    Bench bench(kernel_of(p, depth, registers));
    auto out = bench.array<uint32_t>(128 * registers);
    auto column_of = [](uint32_t thread, uint32_t i) { return i / 4 * 8 + thread % 4 * 2 + (i & 1); };
    const uint32_t per_register = p.halves ? 2 : 1, sum_bits = p.halves ? 16 : 32;
    auto sums_of = [&](uint32_t thread, uint32_t reg, const std::function<int64_t(uint32_t, uint32_t)>& value) {
        uint32_t word = 0;
        for (uint32_t e = 0; e < per_register; ++e) {
            const uint32_t i = reg * per_register + e;
            auto number = static_cast<int>(value(row_of(thread, i), column_of(thread, i)));
            word |= static_cast<uint32_t>(p.encode_sum(number)) << (e * sum_bits);
        }
        return word;
    };
    std::vector<uint32_t> expected;
    for (uint32_t thread = 0; thread < 128; ++thread)
        for (uint32_t reg = 0; reg < registers; ++reg) {
            out[thread * registers + reg] = sums_of(thread, reg, c);
            expected.push_back(sums_of(thread, reg, [&](uint32_t row, uint32_t column) {
                int64_t sum = 0;
                for (uint32_t k = 0; k < depth; ++k) sum += a(row, k) * b(k, column);
                return p.finish(p.sign * sum + (p.adds ? c(row, column) : 0));
            }));
        }
    bench.run("k", {1}, {128}, bench.array(given), out, descriptor_of(p.left, 0),
              descriptor_of(p.right, half_of_shared), uint32_t{p.adds});
    CHECK(std::vector<uint32_t>(out.data(), out.data() + out.size) == expected);
}

std::string load_error(const std::string& text) {
    auto loaded = load(text);
    return loaded ? "" : loaded.error().what;
}

}  // namespace

TEST_CASE("wgmma: halves in shared memory, however they are swizzled", "[ptx][matrix]") {
    group_multiplies({"f32.f16.f16", 64, 16, half, single, plain(2), plain(2)});
    for (uint32_t power : {1, 2, 3})
        group_multiplies({"f32.f16.f16", 128, 16, half, single, swizzled(2, power), swizzled(2, power)});
    for (uint32_t from : {32, 64, 96})
        group_multiplies({"f32.bf16.bf16", 8, 16, bfloat, single, swizzled(2, 3, from), swizzled(2, 3, from)});
    group_multiplies({"f32.f16.f16", 256, 16, half, single, swizzled(2, 3), swizzled(2, 2)});
}

TEST_CASE("wgmma: turned matrices, and one in registers", "[ptx][matrix]") {
    group_multiplies({"f32.f16.f16", 128, 16, half, single, swizzled(2, 3), turned_128(), "1, 1, 0, 1"});
    group_multiplies({"f32.f16.f16", 24, 16, half, single, turned_128(), plain(2), "1, 1, 1, 0"});
    group_multiplies({"f32.bf16.bf16", 64, 16, bfloat, single, turned_plain(), turned_plain(), "1, 1, 1, 1"});
    Product registers{"f32.bf16.bf16", 32, 16, bfloat, single, plain(2), turned_128(), "1, 1, 1"};
    registers.in_registers = true;
    group_multiplies(registers);
}

TEST_CASE("wgmma: other elements, signs and sums", "[ptx][matrix]") {
    auto e4m3 = [](int x) -> uint64_t { return encode(x, e4m3_format, Rounding::nearest); };
    auto e5m2 = [](int x) -> uint64_t { return encode(x, e5m2_format, Rounding::nearest); };
    group_multiplies({"f32.tf32.tf32", 32, 32, single, single, swizzled(4, 3), swizzled(4, 3), "1, 1"});
    group_multiplies({"f32.e4m3.e4m3", 96, 8, e4m3, single, swizzled(1, 3), swizzled(1, 1), "1, 1"});
    group_multiplies({"f32.e5m2.e5m2", 16, 8, e5m2, single, plain(1), plain(1), "1, 1"});
    Product negative{"f32.f16.f16", 64, 16, half, single, plain(2), plain(2), "-1, 1, 0, 0"};
    negative.sign = -1;
    group_multiplies(negative);
    negative.rest = "1, -1, 0, 0", negative.adds = false;
    group_multiplies(negative);
    Product halves{"f16.f16.f16", 64, 16, half, half, swizzled(2, 3), swizzled(2, 3)};
    halves.halves = true;
    group_multiplies(halves);
    Product bytes{"s32.s8.s8", 64, 8, byte, whole, swizzled(1, 3), swizzled(1, 3), ""};
    bytes.lowest = -128, bytes.highest = 127;
    group_multiplies(bytes);
    bytes.types = "s32.u8.u8.satfinite", bytes.lowest = 0, bytes.highest = 255;
    group_multiplies(bytes);
}

TEST_CASE("wgmma beyond the block's memory faults, and what there is not is refused", "[ptx][matrix]") {
    Product p{"f32.f16.f16", 8, 16, half, single, plain(2), plain(2)};
    Bench bench(kernel_of(p, 16, 4));
    auto out = bench.array<uint32_t>(512);
    auto report =
        bench.launch("k", {1}, {128}, {}, bench.array<uint8_t>(34816), out, uint64_t{0}, uint64_t{0x3fff}, uint32_t{1});
    CHECK(report.outcome == Outcome::illegal_address);
    for (const char* types : {"f16.bf16.bf16", "f32.f16.bf16", "s32.f16.f16"}) {
        p.types = types;
        CHECK(load_error(kernel_of(p, 16, 4)).find("is not supported by the emulated GPU") != std::string::npos);
    }
    p.types = "f32.f16.f16";
    CHECK(load_error(kernel_of(p, 32, 4)).find("is not supported by the emulated GPU") != std::string::npos);
    p.n = 12;
    CHECK(load_error(kernel_of(p, 16, 6)).find("is not supported by the emulated GPU") != std::string::npos);
}
