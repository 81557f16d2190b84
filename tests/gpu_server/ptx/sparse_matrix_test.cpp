// mma.sp against products computed here: which elements of `a` are stored is drawn, and the lanes get the metadata that the PTX
// manual's figures show. Lanes that contribute none hold something else.
#include <algorithm>

#include "tests/gpu_server/ptx/matrix_bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// What the manual says of a shape's metadata: entry `i` (of two bits) of a lane, as {row, which of the row's}; none where the lane
// contributes nothing.
struct Entry {
    bool there;
    uint32_t row, at;
};
using Metadata = std::function<Entry(uint32_t group, uint32_t member, uint32_t i)>;

Metadata one_of_four(uint32_t selector) {
    return [=](uint32_t g, uint32_t t, uint32_t i) -> Entry { return {t == selector, i < 8 ? g : g + 8, i % 8}; };
}
Metadata half_of_pair(uint32_t selector) {
    return [=](uint32_t g, uint32_t t, uint32_t i) -> Entry {
        return {t / 2 == selector, i < 8 ? g : g + 8, i % 8 + t % 2 * 8};
    };
}
Metadata row_of_pair(uint32_t selector) {
    return [=](uint32_t g, uint32_t t, uint32_t i) -> Entry { return {t / 2 == selector, t % 2 ? g + 8 : g, i}; };
}
Metadata row_of_all() {
    return [=](uint32_t g, uint32_t t, uint32_t i) -> Entry { return {true, t % 2 ? g + 8 : g, i + t / 2 * 16}; };
}

constexpr uint32_t pairs_of_four[6] = {0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110};

// The four bits that say which two of a row's four pieces in `chunk` are stored.
uint32_t drawn(uint32_t row, uint32_t chunk, bool tf32) {
    auto number = static_cast<uint32_t>(small_number(row * 32 + chunk, 7, 0, 5));
    return tf32 ? (number % 2 ? 0b1110 : 0b0100) : pairs_of_four[number];
}

std::vector<uint32_t> metadata_words(const Metadata& layout, bool tf32) {
    std::vector<uint32_t> words(32, 0x6cc91e4b);
    for (uint32_t lane = 0; lane < 32; ++lane)
        for (uint32_t i = 0; i < 16; ++i) {
            auto entry = layout(lane / 4, lane % 4, i);
            if (!entry.there) continue;
            uint32_t bits = drawn(entry.row, entry.at / 2, tf32) >> entry.at % 2 * 2 & 3;
            words[lane] = (words[lane] & ~(3u << 2 * i)) | bits << 2 * i;
        }
    return words;
}

// Elements of so many bits, as many to a register as fit; `b` twice as deep as what is stored of `a`.
Matrix stored(uint32_t bits, uint32_t columns) {
    uint32_t per = 32 / bits;
    return {16, columns, bits, columns / 2, [=](uint32_t g, uint32_t t, uint32_t i) -> Place {
                uint32_t reg = i / per;
                return {reg % 2 ? g + 8 : g, t * per + i % per + reg / 2 * 4 * per};
            }};
}
Matrix whole_b(uint32_t bits, uint32_t rows) {
    uint32_t per = 32 / bits;
    return {rows, 8, bits, rows / 4, [=](uint32_t g, uint32_t t, uint32_t i) -> Place {
                return {t * per + i % per + i / per * 4 * per, g};
            }};
}

void sparse_multiplies(const std::string& shape_and_types, uint32_t bits, uint32_t depth, uint32_t selector,
                       const Metadata& layout, const Encode& encode, const Encode& encode_sum, int lowest, int highest,
                       const std::string& more = "") {
    bool tf32 = bits == 32;
    std::string text = "mma.sp::ordered_metadata.sync.aligned." + shape_and_types;
    Case c{text.c_str(), stored(bits, depth / 2), whole_b(bits, depth), sums16(32), encode, encode_sum};
    c.lowest = lowest, c.highest = highest;
    c.more = ", %e, " + std::to_string(selector) + more;
    c.metadata = metadata_words(layout, tf32);
    c.whole = [=](uint32_t row, uint32_t column) -> uint32_t {
        if (tf32) return column * 2 + (drawn(row, column, true) == 0b1110);
        uint32_t width = bits == 4 ? 2 : 1, piece = column / width;
        uint32_t index = drawn(row, piece / 2, false) >> piece % 2 * 2 & 3;
        return (piece / 2 * 4 + index) * width + column % width;
    };
    multiplies(c);
}

}  // namespace

TEST_CASE("mma.sp: halves and tf32", "[ptx][matrix]") {
    for (uint32_t selector : {0u, 1u, 2u, 3u}) {
        auto one = one_of_four(selector);
        sparse_multiplies("m16n8k16.row.col.f32.f16.f16.f32", 16, 16, selector, one, half, single, -4, 4);
        sparse_multiplies("m16n8k8.row.col.f32.tf32.tf32.f32", 32, 8, selector, one, single, single, -4, 4);
    }
    for (uint32_t selector : {0u, 1u}) {
        auto pair = half_of_pair(selector);
        sparse_multiplies("m16n8k32.row.col.f32.bf16.bf16.f32", 16, 32, selector, pair, bfloat, single, -4, 4);
        sparse_multiplies("m16n8k16.row.col.f32.tf32.tf32.f32", 32, 16, selector, pair, single, single, -4, 4);
    }
}

TEST_CASE("mma.sp: whole numbers of eight and four bits", "[ptx][matrix]") {
    for (uint32_t selector : {0u, 1u}) {
        auto pair = row_of_pair(selector);
        sparse_multiplies("m16n8k32.row.col.s32.s8.s8.s32", 8, 32, selector, pair, byte, whole, -128, 127);
        sparse_multiplies("m16n8k64.row.col.s32.u4.u4.s32", 4, 64, selector, pair, four_bits, whole, 0, 15);
    }
    sparse_multiplies("m16n8k64.row.col.satfinite.s32.u8.u8.s32", 8, 64, 0, row_of_all(), byte, whole, 0, 255);
    sparse_multiplies("m16n8k128.row.col.s32.s4.s4.s32", 4, 128, 0, row_of_all(), four_bits, whole, -8, 7);
}

TEST_CASE("mma.sp: floats of eight and four bits, and blocks with scales", "[ptx][matrix]") {
    auto e4m3 = [](int x) -> uint64_t { return encode(x, e4m3_format, Rounding::nearest); };
    auto e2m1 = [](int x) -> uint64_t { return encode(x, e2m1_format, Rounding::nearest); };
    auto all = row_of_all();
    sparse_multiplies("m16n8k64.row.col.f32.e4m3.e4m3.f32", 8, 64, 0, all, e4m3, single, -4, 4);
    sparse_multiplies("m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32", 8, 64, 0, all, e4m3, single, -4, 4);
    // 127: the power of two that is 1. What other scales do is matrix_test's: they are the same registers.
    sparse_multiplies("m16n8k128.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", 4, 128, 0, all,
                      e2m1, single, -4, 4, ", 0x7f7f7f7f, {0, 0}, 0x7f7f7f7f, {0, 0}");
}

TEST_CASE("mma.sp: what does not fit is refused", "[ptx][matrix]") {
    auto loads = [](const std::string& instruction, const std::string& operands) {
        return static_cast<bool>(
            load(".version 8.7\n.target sm_120a\n.address_size 64\n.entry k()\n{\n.reg .b32 %r<20>;\n" + instruction +
                 " {%r0,%r1,%r2,%r3}, {%r4,%r5,%r6,%r7}, {%r8,%r9,%r10,%r11}, " + "{%r0,%r1,%r2,%r3}" + operands +
                 ";\nret;\n}"));
    };
    CHECK(loads("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", ", %r12, 0"));
    CHECK_FALSE(loads("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", ""));
    CHECK_FALSE(loads("mma.sp.sync.aligned.m16n8k32.col.row.f32.f16.f16.f32", ", %r12, 0"));
    CHECK_FALSE(loads("mma.sp.sync.aligned.m16n8k64.row.col.f32.f16.f16.f32", ", %r12, 0"));
    CHECK_FALSE(loads("mma.sp.sync.aligned.m16n8k512.row.col.s32.b1.b1.s32.and.popc", ", %r12, 0"));
    CHECK_FALSE(loads("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", ", %rx, 0"));
}
