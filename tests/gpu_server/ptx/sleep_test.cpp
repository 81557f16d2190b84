// nanosleep: it takes time, never much, and never anybody else's turn.
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// Thread 0 sleeps p1 times for p2 ns and stores how many ns of %globaltimer that took in [p0].
constexpr char sleeper[] = R"(
.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 p0, .param .u32 p1, .param .u32 p2)
{
    .reg .b32 %r<4>; .reg .b64 %d<5>; .reg .pred %p;
    ld.param.u64 %d1, [p0];
    ld.param.u32 %r1, [p1];
    ld.param.u32 %r2, [p2];
    mov.u64 %d2, %globaltimer;
AGAIN:
    nanosleep.u32 %r2;
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p, %r1, 0;
    @%p bra AGAIN;
    mov.u64 %d3, %globaltimer;
    sub.u64 %d4, %d3, %d2;
    st.global.u64 [%d1], %d4;
    ret;
})";

// The thread whose %special is p1 sets the flag at [p0]; all others sleep until they see it.
std::string waiters(const std::string& special) {
    return R"(
.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 p0, .param .u32 p1)
{
    .reg .b32 %r<5>; .reg .b64 %d<2>; .reg .pred %p;
    ld.param.u64 %d1, [p0];
    ld.param.u32 %r1, [p1];
    mov.u32 %r2, )" +
           special + R"(;
    setp.eq.u32 %p, %r1, %r2;
    @%p bra SET;
WAIT:
    nanosleep.u32 200000;
    ld.volatile.global.u32 %r3, [%d1];
    setp.eq.u32 %p, %r3, 0;
    @%p bra WAIT;
    ret;
SET:
    st.volatile.global.u32 [%d1], 1;
    ret;
})";
}

}  // namespace

TEST_CASE("nanosleep takes the time that was asked for", "[ptx]") {
    Bench bench(sleeper);
    auto took_ns = bench.array<uint64_t>(1);
    bench.run("k", {1}, {1}, took_ns, 10u, 500'000u);
    CHECK(took_ns[0] >= 10 * 500'000);
    // One second asked for, a hundred times: each sleep ends after 1 ms. Far from both, for a busy machine.
    bench.run("k", {1}, {1}, took_ns, 100u, 1'000'000'000u);
    CHECK(took_ns[0] >= 100 * 1'000'000);
    CHECK(took_ns[0] < 50'000'000'000);
}

TEST_CASE("sleepers let others run, in their warp, their block and their grid", "[ptx]") {
    struct Shape {
        const char* special;
        Dim3 grid, block;
        uint32_t setter;
    };
    auto shape =
        GENERATE(Shape{"%laneid", {1}, {32}, 31}, Shape{"%tid.x", {1}, {256}, 255}, Shape{"%ctaid.x", {8}, {64}, 7});
    INFO(shape.special);
    Bench bench(waiters(shape.special));
    auto flag = bench.array<uint32_t>(1);
    Options one_thread;
    one_thread.threads = 1;
    auto report = bench.launch("k", shape.grid, shape.block, one_thread, flag, shape.setter);
    INFO(report.detail);
    CHECK(report.outcome == Outcome::done);
    CHECK(flag[0] == 1);
}

TEST_CASE("a sleeper does not hide a deadlock, and can be cancelled", "[ptx]") {
    Bench bench(waiters("%tid.x"));
    auto flag = bench.array<uint32_t>(1);
    bool cancelled = true;
    Options options;
    options.cancelled = &cancelled;
    CHECK(bench.launch("k", {1}, {64}, options, flag, 64u).outcome == Outcome::cancelled);  // nobody sets the flag
    Bench stuck(module_of(R"(
        .reg .b32 %r1; .reg .pred %p1;
        mov.u32 %r1, %tid.x;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 nanosleep.u32 1000;
        @%p1 ret;
        bar.sync 0, 64;
        ret;)",
                          0));
    CHECK(stuck.launch("k", {1}, {32}, {}).outcome == Outcome::deadlock);
}
