// Calls and their frames.
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

// Lanes that came into a function from different calls, so in different frames, still exchange values: the first to
// arrive must wait for the others.
TEST_CASE("a shuffle joins lanes that called its function from different places", "[ptx]") {
    Bench bench(R"(
.version 8.0
.target sm_80
.address_size 64
.func (.param .b32 r) f(.param .b32 x)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [x];
    shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffffffff;
    st.param.b32 [r], %r2;
    ret;
}
.entry k(.param .u64 o)
{
    .reg .b32 %r<9>; .reg .b64 %d<4>; .reg .pred %p;
    ld.param.u64 %d1, [o];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 1;
    setp.eq.u32 %p, %r2, 0;
    @%p bra EVEN;
    mul.lo.u32 %r3, %r1, 2;
    { .param .b32 a; st.param.b32 [a], %r3; .param .b32 q; call.uni (q), f, (a); ld.param.b32 %r4, [q]; }
    bra DONE;
EVEN:
    mul.lo.u32 %r3, %r1, 3;
    { .param .b32 a; st.param.b32 [a], %r3; .param .b32 q; call.uni (q), f, (a); ld.param.b32 %r4, [q]; }
DONE:
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r4;
    ret;
})");
    auto out = bench.array<int>(32);
    bench.run("k", {1}, {32}, out);
    for (int t = 0; t < 32; ++t) REQUIRE(out[t] == (t % 2 ? (t - 1) * 3 : (t + 1) * 2));
}

TEST_CASE("a call's parameters may be declared as a numbered list", "[ptx]") {  // as GCC does
    Bench bench(R"(
.version 8.0
.target sm_80
.address_size 64
.func (.param .b64 r) f(.param .b64 x, .param .b64 y, .param .b64 z)
{
    .reg .b64 %r<5>;
    ld.param.b64 %r1, [x];
    ld.param.b64 %r2, [y];
    ld.param.b64 %r3, [z];
    sub.u64 %r4, %r1, %r2;
    mad.lo.u64 %r4, %r4, 10, %r3;
    st.param.b64 [r], %r4;
    ret;
}
.entry k(.param .u64 o)
{
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [o];
    { .param .b64 %P<3>; .param .b64 q;
      st.param.b64 [%P0], 9; st.param.b64 [%P1], 4; st.param.b64 [%P2], 7;
      call.uni (q), f, (%P0, %P1, %P2); ld.param.b64 %d2, [q]; }
    st.global.u64 [%d1], %d2;
    ret;
})");
    auto out = bench.array<uint64_t>(1);
    bench.run("k", {1}, {1}, out);
    CHECK(out[0] == 57);
}
