// Where a block's shared memory ends: hardware hands it out in units of 128 bytes.
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// Stores a word at p0 in dynamic shared memory and loads the vector of four that begins at p0 rounded down to 16.
constexpr char vector_load[] = R"(
.version 8.3
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 room[];
.entry k(.param .u32 p0, .param .u64 p1)
{
    .reg .b32 %r<9>; .reg .b64 %d<2>;
    ld.param.u32 %r1, [p0];
    ld.param.u64 %d1, [p1];
    mov.u32 %r2, room;
    add.u32 %r3, %r2, %r1;
    st.shared.u32 [%r3], 7;
    and.b32 %r3, %r3, -16;
    .pragma "used_bytes_mask 0xf";
    ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3];
    st.global.u32 [%d1], %r4;
    mov.u32 %r8, %total_smem_size;
    st.global.u32 [%d1+4], %r8;
    mov.u32 %r8, %dynamic_smem_size;
    st.global.u32 [%d1+8], %r8;
    ret;
})";

}  // namespace

TEST_CASE("a vector load may reach beyond an odd-sized dynamic allocation, up to the next 128 bytes", "[ptx]") {
    Bench bench(vector_load);
    auto out = bench.array<uint32_t>(3);
    Options options;
    options.shared = 36;
    auto report = bench.launch("k", {1}, {1}, options, 32u, out);
    INFO(report.detail);
    REQUIRE(report.outcome == Outcome::done);
    CHECK(out[0] == 7);
    CHECK(out[1] == 128);  // the size in units, as the ISA says of it
    CHECK(out[2] == 36);
    CHECK(bench.launch("k", {1}, {1}, options, 124u, out).outcome == Outcome::done);
}

TEST_CASE("beyond its last unit shared memory ends", "[ptx]") {
    Bench bench(vector_load);
    auto out = bench.array<uint32_t>(3);
    Options options;
    options.shared = 36;
    CHECK(bench.launch("k", {1}, {1}, options, 128u, out).outcome == Outcome::illegal_address);
    options.shared = 128;
    CHECK(bench.launch("k", {1}, {1}, options, 128u, out).outcome == Outcome::illegal_address);
    options.shared = 0;
    CHECK(bench.launch("k", {1}, {1}, options, 0u, out).outcome == Outcome::illegal_address);
}
