// Warps go on together after a barrier, as on hardware. Programs count on that: OpenCV's median filter has one barrier in
// a loop whose rounds use the same shared memory.
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// In each of p1 rounds every warp writes the round's number to its place of `places`, waits for the block, and adds
// the sum of all places to its own place of [p0].
constexpr char one_barrier_a_round[] = R"(
.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 p0, .param .u32 p1)
{
    .shared .align 16 .b32 places[8];
    .reg .b32 %r<16>; .reg .b64 %d<4>; .reg .pred %p;
    ld.param.u64 %d1, [p0];
    ld.param.u32 %r1, [p1];
    mov.u32 %r2, %tid.y;
    shl.b32 %r3, %r2, 2;
    mov.u32 %r4, places;
    add.u32 %r5, %r4, %r3;
    mul.wide.u32 %d2, %r2, 4;
    add.u64 %d1, %d1, %d2;
    mov.u32 %r6, 0;
    mov.u32 %r7, 0;
ROUND:
    add.u32 %r6, %r6, 1;
    st.shared.u32 [%r5], %r6;
    bar.sync 0;
    ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r4];
    ld.shared.v4.u32 {%r12, %r13, %r14, %r15}, [%r4 + 16];
    add.u32 %r7, %r7, %r8;
    add.u32 %r7, %r7, %r9;
    add.u32 %r7, %r7, %r10;
    add.u32 %r7, %r7, %r11;
    add.u32 %r7, %r7, %r12;
    add.u32 %r7, %r7, %r13;
    add.u32 %r7, %r7, %r14;
    add.u32 %r7, %r7, %r15;
    setp.lt.u32 %p, %r6, %r1;
    @%p bra ROUND;
    st.global.u32 [%d1], %r7;
    ret;
})";

}  // namespace

TEST_CASE("warps that a barrier lets go read what was written before it, before one of them writes in the next round",
          "[ptx]") {
    constexpr uint32_t warps = 8, rounds = 100;
    Bench bench(one_barrier_a_round);
    auto sums = bench.array<uint32_t>(warps);
    bench.run("k", {1}, {32, warps}, sums, rounds);
    for (uint32_t w = 0; w < warps; ++w) CHECK(sums[w] == warps * rounds * (rounds + 1) / 2);
}
