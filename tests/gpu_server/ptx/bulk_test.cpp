// Bulk copies that change what is there, go to several blocks, or leave bytes out; and boxes of tensors that do.
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "gpu_server/emulated_gpu/ptx/half.hpp"
#include "gpu_server/emulated_gpu/ptx/tensor_map.hpp"
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// 128 bytes of p0 go through shared memory and change those of p1 by `line`, which finds them at %r and %out.
std::string out_of_shared(const std::string& line) {
    return R"(
.version 8.7
.target sm_100
.address_size 64
.shared .align 128 .b8 room[128];
.shared .align 8 .b64 barrier;
.entry k(.param .u64 in, .param .u64 out)
{
    .reg .b64 %in, %out, %s; .reg .b32 %r, %b; .reg .pred %p; .reg .b16 %m;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
    mov.u32 %r, room; mov.u32 %b, barrier; mov.b16 %m, 0x8421;
    mbarrier.init.shared::cta.b64 [%b], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 %s, [%b], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r], [%in], 128, [%b];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0;
    @!%p bra wait;
    )" + line +
           R"(
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    ret;
})";
}

template <class T>
void reduces(const std::string& operation, std::function<T(T, T)> expected, std::vector<T> there, std::vector<T> by) {
    CAPTURE(operation);
    Bench bench(
        out_of_shared("cp.reduce.async.bulk.global.shared::cta.bulk_group." + operation + " [%out], [%r], 128;"));
    for (auto* values : {&there, &by})
        for (size_t k = 0; values->size() < 128 / sizeof(T); ++k) values->push_back((*values)[k]);
    auto in = bench.array(by), out = bench.array(there);
    bench.run("k", {1}, {1}, in, out);
    for (size_t k = 0; k < out.size; ++k) CHECK(out[k] == expected(there[k], by[k]));
}

uint16_t half_bits(float x) {
    return to_half(x);
}

}  // namespace

TEST_CASE("cp.reduce.async.bulk changes what is in global memory", "[ptx][bulk]") {
    using U = uint32_t;
    using S = int32_t;
    using D = uint64_t;
    std::vector<U> u = {1, 0xffffffff, 7, 0}, v = {3, 4, 0xfffffff0, 9};
    reduces<U>("add.u32", std::plus<U>{}, u, v);
    reduces<S>("min.s32", [](S a, S b) { return std::min(a, b); }, {1, -1, 7}, {-3, 4, 9});
    reduces<U>(
        "max.u32", [](U a, U b) { return std::max(a, b); }, u, v);
    reduces<U>(
        "inc.u32", [](U a, U b) { return a >= b ? 0 : a + 1; }, u, v);
    reduces<U>(
        "dec.u32", [](U a, U b) { return a == 0 || a > b ? b : a - 1; }, u, v);
    reduces<U>("and.b32", std::bit_and<U>{}, u, v);
    reduces<D>("xor.b64", std::bit_xor<D>{}, {~0ull, 5}, {0x1234, 1ull << 60});
    reduces<D>("add.u64", std::plus<D>{}, {~0ull, 5}, {2, 1ull << 60});
    reduces<int64_t>("max.s64", [](int64_t a, int64_t b) { return std::max(a, b); }, {-1, 5}, {-2, 6});
    reduces<float>("add.f32", std::plus<float>{}, {1, 0.5f}, {2, -4});
    reduces<double>("add.f64", std::plus<double>{}, {1, 0.5}, {2, -4});
    reduces<uint16_t>("add.noftz.f16",
                      [](uint16_t a, uint16_t b) { return half_bits(half_to_float(a) + half_to_float(b)); },
                      {half_bits(1), half_bits(-2)}, {half_bits(0.5f), half_bits(3)});
    reduces<uint16_t>("max.bf16",
                      [](uint16_t a, uint16_t b) { return bfloat_to_float(a) < bfloat_to_float(b) ? b : a; },
                      {to_bfloat(1), to_bfloat(-2)}, {to_bfloat(0.5f), to_bfloat(3)});
    CHECK_FALSE(load(out_of_shared("cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f64 [%out], [%r], 128;")));
}

TEST_CASE("cp.async.bulk leaves out bytes, and st.bulk makes zeros", "[ptx][bulk]") {
    Bench bench(
        out_of_shared("st.bulk.weak.shared::cta [%r+32], 16, 0; cp.async.bulk.global.shared::cta.bulk_group.cp_mask "
                      "[%out], [%r], 128, %m;"));
    std::vector<uint8_t> values(128), untouched(128, 0xee);
    std::iota(values.begin(), values.end(), uint8_t{1});
    auto in = bench.array(values), out = bench.array(untouched);
    bench.run("k", {1}, {1}, in, out);
    for (size_t k = 0; k < 128; ++k) {
        auto expected = k >= 32 && k < 48 ? uint8_t{0} : values[k];
        CHECK(out[k] == (0x8421 >> k % 16 & 1 ? expected : 0xee));
    }
    CHECK(Bench(out_of_shared("st.bulk.shared::cta [%r], 256, 0;")).launch("k", {1}, {1}, {}, in, out).outcome ==
          Outcome::illegal_address);
}

// The second word of `in` says how many bytes come from null, in each of two ways, and go there. Then the first goes out.
TEST_CASE("cp.async.bulk of no bytes reads and writes nowhere, and a barrier hears of it", "[ptx][bulk]") {
    Bench bench(R"(
.version 9.2
.target sm_90
.address_size 64
.shared .align 128 .b8 room[128];
.shared .align 8 .b64 barrier;
.entry k(.param .u64 in, .param .u64 out)
{
    .reg .b64 %in, %out, %s, %null; .reg .b32 %r, %b, %n, %v; .reg .pred %p;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
    mov.u32 %r, room; mov.u32 %b, barrier; mov.u64 %null, 0;
    ld.global.u32 %n, [%in+4];
    mbarrier.init.shared::cta.b64 [%b], 1;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r], [%null], %n, [%b];
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [%r], [%null], %n, 0, 0, [%b];
    cp.async.bulk.global.shared::cta.bulk_group [%null], [%r], %n;
    mbarrier.arrive.expect_tx.shared::cta.b64 %s, [%b], 0;
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0;
    @!%p bra wait;
    ld.global.u32 %v, [%in]; st.global.u32 [%out], %v;
    ret;
})");
    auto in = bench.array<uint32_t>({7, 0}), out = bench.array<uint32_t>(1), some = bench.array<uint32_t>({7, 16});
    bench.run("k", {1}, {1}, in, out);
    CHECK(out[0] == 7);
    CHECK(bench.launch("k", {1}, {1}, {}, some, out).outcome == Outcome::illegal_address);
}

namespace {

// The room is 0xee; then 64 bytes of p0 come in, of which those at the ends may be missing. The room goes to p1.
std::string ignores(uint32_t left, uint32_t right) {
    return R"(
.version 9.2
.target sm_90
.address_size 64
.shared .align 128 .b8 room[64];
.shared .align 8 .b64 barrier;
.entry k(.param .u64 in, .param .u64 out)
{
    .reg .b64 %in, %out, %s; .reg .b32 %r, %b, %n, %v; .reg .pred %p;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
    mov.u32 %r, room; mov.u32 %b, barrier; mov.u32 %v, 0xeeeeeeee;
    st.shared.v4.b32 [%r], {%v, %v, %v, %v}; st.shared.v4.b32 [%r+48], {%v, %v, %v, %v};
    mbarrier.init.shared::cta.b64 [%b], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 %s, [%b], 64;
    mov.u32 %n, )" +
           std::to_string(right) + R"(;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [%r], [%in], 64, )" +
           std::to_string(left) + R"(, %n, [%b];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0;
    @!%p bra wait;
    cp.async.bulk.global.shared::cta.bulk_group [%out], [%r], 64;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    ret;
})";
}

}  // namespace

TEST_CASE("ends of what cp.async.bulk reads need not be memory, and are copied where they are", "[ptx][bulk]") {
    std::vector<uint8_t> values(64);
    std::iota(values.begin(), values.end(), uint8_t{1});
    Bench whole(ignores(3, 15));
    auto all = whole.array(values), all_out = whole.array<uint8_t>(64);
    whole.run("k", {1}, {1}, all, all_out);
    CHECK(std::equal(values.begin(), values.end(), all_out.data()));

    std::string ordered = ignores(0, 0);
    ordered.replace(ordered.find("async.bulk.shared"), 17, "async.bulk.relaxed.gpu.shared");
    ordered.replace(ordered.find(".ignore_oob"), 11, ".ignore_oob.b128");
    CHECK(load(ordered));

    Bench edge(ignores(0, 12));
    auto part = edge.array(std::vector<uint8_t>(values.begin(), values.end() - 12)), out = edge.array<uint8_t>(64);
    edge.run("k", {1}, {1}, part, out);
    for (size_t k = 0; k < 64; ++k) CHECK(out[k] == (k >= 52 ? 0xee : values[k]));
    auto outcome = [&](uint32_t left, uint32_t right) {
        Bench bench(ignores(left, right));
        auto in = bench.array(std::vector<uint8_t>(52, 9)), there = bench.array<uint8_t>(64);
        return bench.launch("k", {1}, {1}, {}, in, there).outcome;
    };
    CHECK(outcome(15, 12) == Outcome::done);
    CHECK(outcome(0, 11) == Outcome::illegal_address);
    CHECK(outcome(16, 0) == Outcome::illegal_instruction);
    std::string text = ignores(1, 1), far = "shared::cluster.global";
    text.replace(text.find("shared::cta.global"), 18, far);
    CHECK_FALSE(load(text));
}

TEST_CASE("a copy goes to the same place in several blocks, and each hears of it", "[ptx][bulk][cluster]") {
    // The block with rank 1 sends to those with rank 0, 1 and 3; each writes its room to p1.
    Bench bench(R"(
.version 8.7
.target sm_90
.address_size 64
.shared .align 128 .b8 room[128];
.shared .align 8 .b64 barrier;
.entry k(.param .u64 in, .param .u64 out)
{
    .reg .b64 %in, %out, %s, %o; .reg .b32 %r, %b, %t, %v, %rank, %bytes; .reg .pred %p, %first, %sends; .reg .b16 %m;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
    mov.u32 %r, room; mov.u32 %b, barrier; mov.u32 %t, %tid.x; mov.u32 %rank, %cluster_ctarank;
    setp.eq.u32 %first, %t, 0; setp.eq.and.u32 %sends, %rank, 1, %first;
    setp.eq.u32 %p, %rank, 2; selp.u32 %bytes, 0, 128, %p;
    mul.wide.u32 %o, %t, 4; add.u64 %out, %out, %o; mul.wide.u32 %o, %rank, 128; add.u64 %out, %out, %o;
    shl.b32 %v, %t, 2; add.u32 %v, %v, %r; st.shared.u32 [%v], 77;
    @%first mbarrier.init.shared::cta.b64 [%b], 1;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 %s, [%b], %bytes;
    barrier.cluster.arrive; barrier.cluster.wait;
    mov.b16 %m, 0xb;
    @%sends cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r], [%in], 128, [%b], %m;
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0;
    @!%p bra wait;
    ld.shared.u32 %v, [%v]; st.global.u32 [%out], %v;
    barrier.cluster.arrive; barrier.cluster.wait;
    ret;
})");
    std::vector<uint32_t> values(32);
    std::iota(values.begin(), values.end(), 1000u);
    auto in = bench.array(values);
    auto out = bench.array<uint32_t>(4 * 32);
    Options options;
    options.cluster = {4, 1, 1};
    auto report = bench.launch("k", {4}, {32}, options, in, out);
    INFO(report.detail);
    REQUIRE(report.outcome == Outcome::done);
    for (uint32_t rank = 0; rank < 4; ++rank)
        for (uint32_t t = 0; t < 32; ++t) CHECK(out[rank * 32 + t] == (rank == 2 ? 77 : 1000 + t));
}

namespace {

// A matrix of 8 columns and `rows` rows of 32 bits.
TensorMap map_of(uint64_t address, uint32_t rows, uint16_t box_rows, Type element) {
    TensorMap map;
    map.mark = TensorMap::ours;
    map.address = address;
    map.strides = {4, 32};
    map.last = {7, rows - 1};
    map.box = {8, box_rows};
    map.steps = {1, 1};
    map.rank = 2;
    map.element = element;
    return map;
}

}  // namespace

TEST_CASE("boxes reduce a tensor, and rows are gathered and scattered", "[ptx][bulk][tensor]") {
    // Four rows of the first tensor, which p0 describes, come together; they go to others of the second, then they are added to
    // the box at row 2 of the third.
    Bench bench(R"(
.version 8.7
.target sm_100
.address_size 64
.shared .align 128 .b8 room[128];
.shared .align 8 .b64 barrier;
.entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)
{
    .reg .b64 %from, %to, %sum, %s; .reg .b32 %r, %b, %x; .reg .pred %p;
    ld.param.u64 %from, [p0]; ld.param.u64 %to, [p1]; ld.param.u64 %sum, [p2];
    mov.u32 %r, room; mov.u32 %b, barrier; mov.u32 %x, 0;
    mbarrier.init.shared::cta.b64 [%b], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 %s, [%b], 128;
    cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r], [%from, {%x, 5, 1, 9, 3}], [%b];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0;
    @!%p bra wait;
    cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%to, {0, 0, 2, 4, 6}], [%r];
    cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%sum, {%x, 2}], [%r];
    ret;
})");
    std::vector<uint32_t> values(64);
    std::iota(values.begin(), values.end(), 0u);
    auto from = bench.array(values), sum = bench.array(values);
    auto to = bench.array<uint32_t>(64);
    uint64_t places[3];
    auto space = bench.array<unsigned char>(4 * sizeof(TensorMap));
    auto* maps = reinterpret_cast<TensorMap*>((space.address + 63) / 64 * 64);
    maps[0] = map_of(from.address, 8, 1, Type::u32);
    maps[1] = map_of(to.address, 8, 1, Type::u32);
    maps[2] = map_of(sum.address, 8, 4, Type::u32);
    for (int k = 0; k < 3; ++k) places[k] = reinterpret_cast<uint64_t>(maps + k);
    bench.run("k", {1}, {1}, places[0], places[1], places[2]);
    const uint32_t gathered[] = {5, 1, 9, 3};  // the tensor has 8 rows
    for (uint32_t row = 0; row < 4; ++row)
        for (uint32_t column = 0; column < 8; ++column) {
            uint32_t value = gathered[row] < 8 ? values[gathered[row] * 8 + column] : 0;
            CHECK(to[row * 16 + column] == value);
            CHECK(to[row * 16 + 8 + column] == 0);
            CHECK(sum[(row + 2) * 8 + column] == values[(row + 2) * 8 + column] + value);
        }
    CHECK(sum[0] == 0);
    maps[2].element = Type::u8, maps[2].strides[0] = 1;
    auto report = bench.launch("k", {1}, {1}, {}, places[0], places[1], places[2]);
    CHECK(report.outcome == Outcome::illegal_instruction);
}

TEST_CASE("a tensor map that a program wrote itself copies nothing that it must not", "[ptx][bulk][tensor]") {
    Bench bench(R"(
.version 8.7
.target sm_90
.address_size 64
.shared .align 128 .b8 room[128];
.entry k(.param .u64 p0)
{
    .reg .b64 %map; .reg .b32 %r;
    ld.param.u64 %map, [p0];
    mov.u32 %r, room;
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%map, {0, 0}], [%r];
    ret;
})");
    auto to = bench.array<uint32_t>(64);
    auto space = bench.array<unsigned char>(2 * sizeof(TensorMap));
    auto* map = reinterpret_cast<TensorMap*>((space.address + 63) / 64 * 64);
    auto outcome = [&](auto&& change) {
        *map = map_of(to.address, 8, 4, Type::u32);
        change();
        return bench.launch("k", {1}, {1}, {}, reinterpret_cast<uint64_t>(map)).outcome;
    };
    CHECK(outcome([] {}) == Outcome::done);
    CHECK(outcome([&] { map->steps[1] = 0; }) == Outcome::illegal_instruction);
    CHECK(outcome([&] { map->box[0] = 0; }) == Outcome::illegal_instruction);
    CHECK(outcome([&] { map->rank = 200; }) == Outcome::illegal_instruction);
    CHECK(outcome([&] { map->way = static_cast<TensorWay>(200); }) == Outcome::illegal_instruction);
    CHECK(outcome([&] { map->element = static_cast<Type>(250), map->strides[0] = 0; }) == Outcome::illegal_instruction);
    CHECK(outcome([&] { map->element = Type::b128, map->strides[0] = 16; }) == Outcome::illegal_instruction);
    // Of so many bytes only the lower 32 bits would be looked at.
    CHECK(outcome([&] { map->strides[0] += uint64_t{1} << 32; }) == Outcome::illegal_instruction);
}
