// im2col along the width alone, swizzles of larger atoms, packed values, and the barriers of a pair of blocks, beside plain
// C++.
#include <cstring>
#include <numeric>

#include "gpu_server/emulated_gpu/ptx/tensor_map.hpp"
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

constexpr uint32_t channels = 16, width = 7, height = 3, images = 40, taken = 16;

// NHWC, of 32 bits.
TensorMap pixels_map(uint64_t address, TensorWay way) {
    TensorMap map;
    map.mark = TensorMap::ours;
    map.address = address;
    map.strides = {4, channels * 4, channels * width * 4, channels * width * height * 4};
    map.last = {channels - 1, width - 1, height - 1, images - 1};
    map.steps = {1, 1, 1, 1};
    map.rank = 4;
    map.element = Type::u32;
    map.box = {taken};
    map.way = way;
    map.pixels = 50;
    return map;
}

TensorMap* aligned_map(Bench& bench) {
    return reinterpret_cast<TensorMap*>((bench.array<unsigned char>(2 * sizeof(TensorMap)).address + 63) / 64 * 64);
}

// One thread loads by the copy, whose map is %map, box %r and barrier %b; what has come is copied to p1. The barrier waits for
// `counted` bytes where those are fewer.
std::string loading(const std::string& copy, uint32_t bytes, uint32_t counted = 0) {
    return R"(
.version 9.0
.target sm_100a
.address_size 64
.shared .align 1024 .b8 room[)" +
           std::to_string(bytes) + R"(];
.shared .align 8 .b64 barrier;
.entry k(.param .u64 p0, .param .u64 p1)
{
    .reg .b64 %map, %out, %s; .reg .b32 %r, %b, %x, %at; .reg .b16 %halo, %off; .reg .pred %p;
    ld.param.u64 %map, [p0]; ld.param.u64 %out, [p1];
    mov.u32 %r, room; mov.u32 %b, barrier; mov.u32 %at, 0;
    mbarrier.init.shared::cta.b64 [%b], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 %s, [%b], )" +
           std::to_string(counted ? counted : bytes) + ";\n" + copy + R"(
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0;
    @!%p bra wait;
next:
    ld.shared.u32 %x, [%r]; st.global.u32 [%out], %x;
    add.u32 %r, %r, 4; add.u64 %out, %out, 4; add.u32 %at, %at, 4;
    setp.lt.u32 %p, %at, )" +
           std::to_string(bytes) + R"(; @%p bra next;
    ret;
})";
}

// Pixels along the width from `first` on, in the box that begins at lower + offset and ends upper + offset beyond the image.
void goes_along_rows(TensorWay way, uint32_t count, int lower, int upper, int step, int offset, int first) {
    INFO("lower " << lower << ", upper " << upper << ", step " << step << ", offset " << offset << ", first " << first);
    const char* name = way == TensorWay::im2col_wide ? "im2col::w" : "im2col::w::128";
    auto copy = "cp.async.bulk.tensor.4d.shared::cta.global." + std::string(name) +
                ".mbarrier::complete_tx::bytes [%r], [%map, {0, " + std::to_string(first) + ", 2, 5}], [%b], {0, " +
                std::to_string(offset) + "};";
    Bench bench(loading(copy, count * taken * 4));
    std::vector<uint32_t> values(channels * width * height * images);
    std::iota(values.begin(), values.end(), 1u);
    auto in = bench.array(values), out = bench.array<uint32_t>(count * taken);
    auto* map = aligned_map(bench);
    *map = pixels_map(in.address, way);
    map->lower[0] = static_cast<int16_t>(lower), map->upper[0] = static_cast<int16_t>(upper);
    map->steps[1] = static_cast<uint8_t>(step);
    bench.run("k", {1}, {1}, reinterpret_cast<uint64_t>(map), out);
    int x = first, image = 5, last = static_cast<int>(width) - 1 + upper;
    for (uint32_t pixel = 0; pixel < count; ++pixel) {
        int moved = x + offset;
        bool inside = moved >= 0 && moved < static_cast<int>(width) && image < static_cast<int>(images);
        for (uint32_t c = 0; c < taken; ++c) {
            auto place =
                ((static_cast<uint32_t>(image) * height + 2) * width + static_cast<uint32_t>(moved)) * channels + c;
            uint32_t expected = inside ? values[place] : 0;
            if (out[pixel * taken + c] != expected) CHECK(out[pixel * taken + c] == expected);
        }
        x += step;
        if (x > last) x = lower, ++image;
    }
}

}  // namespace

TEST_CASE("im2col::w keeps to one row of each image", "[ptx][bulk][tensor]") {
    goes_along_rows(TensorWay::im2col_wide, 50, 0, 0, 1, 0, 3);
    goes_along_rows(TensorWay::im2col_wide, 50, -1, -1, 1, 2, -1);
    goes_along_rows(TensorWay::im2col_wide, 50, -1, 0, 2, 1, -1);
    goes_along_rows(TensorWay::im2col_wide_128, 128, -1, -1, 3, 2, 2);
}

TEST_CASE("a halo of im2col::w, and a map of another kind, fault", "[ptx][bulk][tensor]") {
    Bench bench(
        loading("cp.async.bulk.tensor.4d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes"
                " [%r], [%map, {0, 0, 0, 0}], [%b], {2, 0};",
                3200));
    auto in = bench.array<uint32_t>(channels * width * height * images), out = bench.array<uint32_t>(800);
    auto* map = aligned_map(bench);
    *map = pixels_map(in.address, TensorWay::im2col_wide);
    auto report = bench.launch("k", {1}, {1}, {}, reinterpret_cast<uint64_t>(map), out);
    CHECK(report.outcome == Outcome::illegal_instruction);
    CHECK(report.detail.find("halo") != std::string::npos);
    map->way = TensorWay::im2col;
    CHECK(bench.launch("k", {1}, {1}, {}, reinterpret_cast<uint64_t>(map), out).outcome ==
          Outcome::illegal_instruction);
}

// Sixteen values of four or six bits go to 8 bytes, or with a gap to 16; the barrier hears of the values' bytes alone.
TEST_CASE("packed values are copied with and without gaps", "[ptx][bulk][tensor]") {
    struct Packed {
        uint32_t element_type, bytes, apart;
    };
    constexpr uint32_t columns = 256, rows = 8, box_columns = 128, box_rows = 4, packet = 16,
                       packets = box_columns / packet;
    for (auto [type, bytes, apart] : {Packed{13, 8, 8}, {14, 8, 16}, {15, 12, 16}}) {
        CAPTURE(type);
        uint32_t row_bytes = columns / packet * bytes, length = box_rows * packets * apart;
        Bench bench(loading("tensormap.replace.tile.elemtype.global.b1024.b32 [%map], " + std::to_string(type) +
                                ";\ncp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
                                " [%r], [%map, {128, 6}], [%b];",
                            length, box_rows * packets * bytes));
        std::vector<unsigned char> values(row_bytes * rows);
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<unsigned char>(i * 7 + i / 251);
        auto in = bench.array(values);
        auto out = bench.array<unsigned char>(length);
        auto* map = aligned_map(bench);
        *map = pixels_map(in.address, TensorWay::tiles);
        map->rank = 2, map->strides = {4, row_bytes}, map->last = {columns - 1, rows - 1};
        map->box = {box_columns, box_rows};
        bench.run("k", {1}, {1}, reinterpret_cast<uint64_t>(map), out);
        size_t wrong = 0;
        for (uint32_t row = 0; row < box_rows; ++row)
            for (uint32_t byte = 0; byte < packets * bytes; ++byte) {
                size_t from = (6 + row) * row_bytes + packets * bytes + byte;
                unsigned expected = 6 + row < rows ? values[from] : 0;
                wrong += out[(row * packets + byte / bytes) * apart + byte % bytes] != expected;
            }
        CHECK(wrong == 0);
    }
}

// The tables of the ISA, as the chunk of 16 bytes of a line of 128 that comes to each place; lines repeat.
TEST_CASE("atoms of 32 and 64 bytes are swizzled as the tables say", "[ptx][bulk][tensor]") {
    struct Table {
        uint32_t atomicity;
        std::vector<std::vector<uint32_t>> lines;
    };
    const Table tables[] = {
        {0, {{0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5}, {3, 2, 1, 0, 7, 6, 5, 4}}},
        {1, {{0, 1, 2, 3, 4, 5, 6, 7}, {2, 3, 0, 1, 6, 7, 4, 5}, {4, 5, 6, 7, 0, 1, 2, 3}, {6, 7, 4, 5, 2, 3, 0, 1}}},
        {2, {{0, 1, 2, 3, 4, 5, 6, 7}, {2, 3, 0, 1, 6, 7, 4, 5}, {4, 5, 6, 7, 0, 1, 2, 3}, {6, 7, 4, 5, 2, 3, 0, 1}}},
        {3, {{0, 1, 2, 3, 4, 5, 6, 7}, {4, 5, 6, 7, 0, 1, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7}, {4, 5, 6, 7, 0, 1, 2, 3}}}};
    for (auto& [atomicity, lines] : tables) {
        CAPTURE(atomicity);
        Bench bench(loading("tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 [%map], " +
                                std::to_string(atomicity) + ";\n" +
                                "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
                                " [%r], [%map, {0, 0}], [%b];",
                            512));
        std::vector<uint32_t> values(128);
        std::iota(values.begin(), values.end(), 0u);
        auto in = bench.array(values), out = bench.array<uint32_t>(128);
        auto* map = aligned_map(bench);
        *map = pixels_map(in.address, TensorWay::tiles);
        map->rank = 2, map->strides = {4, 128}, map->last = {31, 3}, map->box = {32, 4};
        map->swizzle_chunks = 8;
        bench.run("k", {1}, {1}, reinterpret_cast<uint64_t>(map), out);
        for (uint32_t line = 0; line < 4; ++line)
            for (uint32_t word = 0; word < 32; ++word) {
                uint32_t within = word % 4;
                if (atomicity == 2 && line % 2) within ^= 2;  // 8 bytes
                CHECK(out[line * 32 + word] == line * 32 + lines[line][word / 4] * 4 + within);
            }
    }
}

// As Triton makes its descriptors.
TEST_CASE("a program makes a tensor map out of zeros", "[ptx][bulk][tensor]") {
    const std::string fields[] = {
        "global_address.global.b1024.b64 [%map], %in",  "rank.global.b1024.b32 [%map], 1",
        "box_dim.global.b1024.b32 [%map], 0, 4",        "box_dim.global.b1024.b32 [%map], 1, 2",
        "global_dim.global.b1024.b32 [%map], 0, 8",     "global_dim.global.b1024.b32 [%map], 1, 6",
        "global_stride.global.b1024.b64 [%map], 0, 32", "element_stride.global.b1024.b32 [%map], 0, 1",
        "element_stride.global.b1024.b32 [%map], 1, 1", "elemtype.global.b1024.b32 [%map], 2",
        "swizzle_mode.global.b1024.b32 [%map], 0"};
    auto run = [&](const std::string& more) {
        std::string made = ".reg .b64 %in; ld.global.u64 %in, [%out];\n";  // where the tensor is
        for (auto& field : fields) made += "tensormap.replace.tile." + field + ";\n";
        Bench bench(loading(made + more +
                                "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
                                " [%r], [%map, {4, 3}], [%b];",
                            32));
        std::vector<uint32_t> values(48);
        std::iota(values.begin(), values.end(), 0u);
        auto in = bench.array(values), out = bench.array<uint32_t>(8);
        std::memcpy(&out[0], &in.address, sizeof in.address);
        auto* map = aligned_map(bench);
        std::memset(static_cast<void*>(map), 0, sizeof *map);
        auto outcome = bench.launch("k", {1}, {1}, {}, reinterpret_cast<uint64_t>(map), out).outcome;
        if (outcome == Outcome::done)
            for (uint32_t i = 0; i < 8; ++i) CHECK(out[i] == (3 + i / 4) * 8 + 4 + i % 4);
        return outcome;
    };
    CHECK(run("") == Outcome::done);
    // What a map cannot hold is told by the copy.
    CHECK(run("tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%map], 9;\n") == Outcome::illegal_instruction);
}

TEST_CASE("the news of a pair's multicast goes to the barriers of the leader's side", "[ptx][bulk][tensor]") {
    // Block 0 of four sends a row to blocks 1 and 3. Each block tells whether its barrier has heard of it: those are 0 and 2.
    Bench bench(R"(
.version 9.0
.target sm_100a
.address_size 64
.shared .align 128 .b8 room[128];
.shared .align 8 .b64 barrier;
.entry k(.param .u64 p0, .param .u64 p1)
{
    .reg .b64 %map, %out, %s, %o; .reg .b32 %r, %b, %rank, %x; .reg .b16 %m; .reg .pred %p, %sends;
    ld.param.u64 %map, [p0]; ld.param.u64 %out, [p1];
    mov.u32 %r, room; mov.u32 %b, barrier; mov.u32 %rank, %cluster_ctarank;
    st.shared.u32 [%r], 77;
    mbarrier.init.shared::cta.b64 [%b], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 %s, [%b], 128;
    barrier.cluster.arrive; barrier.cluster.wait;
    setp.eq.u32 %sends, %rank, 0; mov.b16 %m, 0xa;
    @%sends cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.cta_group::2 [%r], [%map, {0}], [%b], %m;
    barrier.cluster.arrive; barrier.cluster.wait;
    mbarrier.test_wait.parity.shared::cta.b64 %p, [%b], 0;
    selp.u32 %x, 1, 0, %p;
    mul.wide.u32 %o, %rank, 8; add.u64 %out, %out, %o; st.global.u32 [%out], %x;
    ld.shared.u32 %x, [%r]; st.global.u32 [%out+4], %x;
    barrier.cluster.arrive; barrier.cluster.wait;
    ret;
})");
    std::vector<uint32_t> values(32, 5);
    auto in = bench.array(values), out = bench.array<uint32_t>(8);
    auto* map = aligned_map(bench);
    *map = pixels_map(in.address, TensorWay::tiles);
    map->rank = 1, map->last = {31}, map->box = {32};
    Options options;
    options.cluster = {4, 1, 1};
    auto report = bench.launch("k", {4}, {1}, options, reinterpret_cast<uint64_t>(map), out);
    INFO(report.detail);
    REQUIRE(report.outcome == Outcome::done);
    for (uint32_t rank = 0; rank < 4; ++rank) {
        CAPTURE(rank);
        CHECK(out[rank * 2] == (rank % 2 == 0));
        CHECK(out[rank * 2 + 1] == (rank % 2 ? 5 : 77));
    }
}
