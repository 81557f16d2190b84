// Local memory of a size that the running thread chooses.
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// Each thread takes 16 bytes and one for each thread before it, fills them with its number, calls a function that takes as much
// and fills it with another, many times, and adds up what is its own.
constexpr char taking[] = R"(
.version 7.3
.target sm_80
.address_size 64
.func scratch(.param .u32 bytes)
{
    .reg .u64 %n, %p; .reg .u32 %b;
    ld.param.u32 %b, [bytes]; cvt.u64.u32 %n, %b;
    alloca.u64 %p, %n, 16;
    and.b64 %n, %p, 15; { .reg .pred %q; setp.ne.u64 %q, %n, 0; @%q trap; }
    st.local.u8 [%p], 99;
    ret;
}
.entry k(.param .u64 out, .param .u32 rounds)
{
    .reg .u64 %out, %n, %p, %at, %o, %s; .reg .u32 %t, %b, %k, %v, %sum, %rounds; .reg .pred %q;
    ld.param.u64 %out, [out]; ld.param.u32 %rounds, [rounds];
    mov.u32 %t, %tid.x; add.u32 %b, %t, 16; cvt.u64.u32 %n, %b;
    alloca.u64 %p, %n;
    mov.u32 %k, 0; mov.u64 %at, %p;
fill:
    st.local.u8 [%at], %t; add.u64 %at, %at, 1; add.u32 %k, %k, 1;
    setp.lt.u32 %q, %k, %b; @%q bra fill;
    mov.u32 %k, 0;
again:
    { .param .u32 bytes; st.param.u32 [bytes], %b; call scratch, (bytes); }
    stacksave.u64 %s; alloca.u64 %at, 1000; st.local.u8 [%at+999], 7; stackrestore.u64 %s;
    add.u32 %k, %k, 1; setp.lt.u32 %q, %k, %rounds; @%q bra again;
    cvta.local.u64 %at, %p; mov.u32 %k, 0; mov.u32 %sum, 0;
add:
    ld.u8 %v, [%at]; add.u32 %sum, %sum, %v; add.u64 %at, %at, 1; add.u32 %k, %k, 1;
    setp.lt.u32 %q, %k, %b; @%q bra add;
    mul.wide.u32 %o, %t, 4; add.u64 %out, %out, %o; st.global.u32 [%out], %sum;
    ret;
})";

}  // namespace

TEST_CASE("alloca's memory is each thread's own, and goes back when the function returns", "[ptx][stack]") {
    Bench bench(taking);
    auto out = bench.array<uint32_t>(64);
    bench.run("k", {1}, {64}, out, 500u);
    for (uint32_t t = 0; t < 64; ++t) CHECK(out[t] == t * (t + 16));
}

TEST_CASE("more than there is of alloca's memory is a fault", "[ptx][stack]") {
    for (const char* size : {"70000", "0xffffffffffffffff"}) {
        Bench bench(module_of(".reg .u64 %p; alloca.u64 %p, " + std::string(size) + ", 16;", 0));
        auto report = bench.launch("k", {1}, {32}, {});
        CHECK(report.outcome == Outcome::illegal_address);
        CHECK(report.detail.find("stack overflow") != std::string::npos);
    }
}
