// Flags beside the data that they stand for: NCCL sends both in one vector, or in the vectors of one warp, and a reader
// that finds the flag takes the data.
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// Block 0 writes 1, 2, 3 … p2 into all of 512 bytes at [p0]. Block 1 reads them as often, and adds to [p1] how often a
// number was older than one that is written after it: the next in a vector, or the last of the last lane.
constexpr char flags_and_data[] = R"(
.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 p0, .param .u64 p1, .param .u32 p2)
{
    .reg .b32 %r<13>; .reg .b64 %d<4>; .reg .pred %p;
    ld.param.u64 %d1, [p0];
    ld.param.u64 %d2, [p1];
    ld.param.u32 %r1, [p2];
    mov.u32 %r2, %laneid;
    mul.wide.u32 %d3, %r2, 16;
    add.u64 %d1, %d1, %d3;
    mov.u32 %r3, 0;
    mov.u32 %r4, 0;
    mov.u32 %r5, %ctaid.x;
    setp.ne.u32 %p, %r5, 0;
    @%p bra READ;
WRITE:
    add.u32 %r3, %r3, 1;
    st.volatile.global.v4.u32 [%d1], {%r3, %r3, %r3, %r3};
    setp.lt.u32 %p, %r3, %r1;
    @%p bra WRITE;
    ret;
READ:
    add.u32 %r3, %r3, 1;
    ld.volatile.global.v4.u32 {%r6, %r7, %r8, %r9}, [%d1];
    shfl.sync.idx.b32 %r10, %r9, 31, 31, -1;
    max.u32 %r11, %r7, %r10;
    setp.lt.u32 %p, %r6, %r11;
    selp.u32 %r12, 1, 0, %p;
    add.u32 %r4, %r4, %r12;
    setp.lt.u32 %p, %r8, %r9;
    selp.u32 %r12, 1, 0, %p;
    add.u32 %r4, %r4, %r12;
    setp.lt.u32 %p, %r3, %r1;
    @%p bra READ;
    red.global.add.u32 [%d2], %r4;
    ret;
})";

}  // namespace

TEST_CASE("who reads a flag with volatile reads finds the data that was written before it", "[ptx]") {
    Bench bench(flags_and_data);
    auto memory = bench.array<uint32_t>(128), stale = bench.array<uint32_t>(1);
    bench.run("k", {2}, {32}, memory, stale, 200'000u);
    CHECK(stale[0] == 0);
}
