// Who a thread is, in blocks whose rows are no warps, and which threads have the same value.
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

TEST_CASE("threads are numbered along x, then y, then z", "[ptx]") {
    Bench bench(R"(
.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 out)
{
    .reg .u64 %o, %b; .reg .u32 %x, %y, %z, %w, %h, %t;
    ld.param.u64 %o, [out];
    mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %z, %tid.z; mov.u32 %w, %ntid.x; mov.u32 %h, %ntid.y;
    mad.lo.u32 %t, %z, %h, %y; mad.lo.u32 %t, %t, %w, %x;
    mul.wide.u32 %b, %t, 4; add.u64 %o, %o, %b;
    shl.b32 %y, %y, 8; shl.b32 %z, %z, 16; or.b32 %x, %x, %y; or.b32 %x, %x, %z;
    add.u32 %x, %x, 1;
    atom.global.add.u32 %t, [%o], %x;
    ret;
})");
    for (auto block :
         {Dim3{1, 1, 1}, {33, 1, 1}, {5, 3, 7}, {16, 16, 1}, {32, 2, 3}, {48, 5, 2}, {1, 50, 1}, {2, 1, 37}}) {
        INFO(block.x << " x " << block.y << " x " << block.z);
        auto out = bench.array<uint32_t>(block.x * block.y * block.z);
        bench.run("k", {1}, block, out);
        for (uint32_t k = 0; k < out.size; ++k) {
            uint32_t x = k % block.x, y = k / block.x % block.y, z = k / block.x / block.y;
            REQUIRE(out[k] == (x | y << 8 | z << 16) + 1);
        }
    }
}

TEST_CASE("lanes find those with the same value", "[ptx]") {
    // Half of the lanes; `kinds` values go round.
    Bench bench(R"(
.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 out, .param .u32 kinds)
{
    .reg .u64 %o, %b; .reg .u32 %t, %n, %v, %a, %e, %s; .reg .pred %p, %q;
    ld.param.u64 %o, [out]; ld.param.u32 %n, [kinds];
    mov.u32 %t, %tid.x; rem.u32 %v, %t, %n; mul.wide.u32 %b, %t, 12; add.u64 %o, %o, %b;
    and.b32 %a, %t, 1; setp.eq.u32 %q, %a, 0;
    @%q bra done;
    match.any.sync.b32 %a, %v, 0xaaaaaaaa;
    match.all.sync.b32 %e|%p, %v, 0xaaaaaaaa;
    selp.u32 %s, 1, 2, %p;
    st.global.u32 [%o], %a; st.global.u32 [%o+4], %e; st.global.u32 [%o+8], %s;
done:
    ret;
})");
    constexpr uint32_t odd = 0xaaaaaaaa;
    for (uint32_t kinds : {1u, 3u, 8u, 32u}) {
        INFO(kinds << " values");
        auto out = bench.array<uint32_t>(96);
        bench.run("k", {1}, {32}, out, kinds);
        for (uint32_t lane = 0; lane < 32; ++lane) {
            uint32_t same = 0;
            for (uint32_t other = 1; other < 32; other += 2) same |= uint32_t{other % kinds == lane % kinds} << other;
            bool takes_part = odd >> lane & 1, all = same == odd;
            CHECK(out[3 * lane] == (takes_part ? same : 0));
            CHECK(out[3 * lane + 1] == (takes_part && all ? odd : 0));
            CHECK(out[3 * lane + 2] == (takes_part ? all ? 1 : 2 : 0));
        }
    }
}
