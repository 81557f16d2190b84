// Copies that are waited for through barriers in shared memory, and grids that overlap.
#include <numeric>
#include <vector>

#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// One thread announces 128 bytes and starts their copy; all 64 wait for the phase, then write back what has come plus one,
// which goes out again as a whole.
constexpr char through_shared[] = R"(
.version 8.6
.target sm_90
.address_size 64
.shared .align 128 .b8 room[256];
.shared .align 8 .b64 barrier;
.entry k(.param .u64 in, .param .u64 out, .param .u32 announced)
{
    .reg .b64 %in, %out, %state; .reg .b32 %t, %r, %b, %n, %v, %at; .reg .pred %p, %first;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.param.u32 %n, [announced];
    mov.u32 %t, %tid.x; mov.u32 %r, room; mov.u32 %b, barrier;
    setp.eq.u32 %first, %t, 0;
    @!%first bra others;
    mbarrier.init.shared::cta.b64 [%b], 64;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %state, [%b], %n;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r+128], [%in], 128, [%b];
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%b], 32;
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%b], 32;
others:
    bar.sync 0;
    @!%first mbarrier.arrive.shared::cta.b64 _, [barrier];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0;
    @!%p bra wait;
    shl.b32 %at, %t, 2; add.u32 %at, %at, %r;
    setp.lt.u32 %p, %t, 32;
    @!%p bra done;
    ld.shared.u32 %v, [%at+128]; add.u32 %v, %v, 1; st.shared.u32 [%at], %v;
done:
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @!%first bra end;
    cp.async.bulk.global.shared::cta.bulk_group [%out], [%r], 128;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
end:
    ret;
})";

}  // namespace

TEST_CASE("bytes that a bulk copy brings complete the phase that waits for them", "[ptx][async]") {
    Bench bench(through_shared);
    std::vector<uint32_t> values(32);
    std::iota(values.begin(), values.end(), 7u);
    auto in = bench.array(values);
    auto out = bench.array<uint32_t>(32);
    bench.run("k", {1}, {64}, in, out, 128u);
    for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == values[i] + 1);

    SECTION("more bytes than come: the phase never ends") {
        bool cancelled = true;
        Options options;
        options.cancelled = &cancelled;
        CHECK(bench.launch("k", {1}, {64}, options, in, out, 144u).outcome == Outcome::cancelled);
    }
    SECTION("addresses are multiples of 16") {
        CHECK(bench.launch("k", {1}, {64}, {}, in.address + 8, out, 128u).outcome == Outcome::misaligned_address);
    }
    SECTION("and inside what is mapped") {
        CHECK(bench.launch("k", {1}, {64}, {}, uint64_t{64}, out, 128u).outcome == Outcome::illegal_address);
    }
}

TEST_CASE("cp.async's copies arrive at a barrier", "[ptx][async]") {
    Bench bench(R"(
.version 8.3
.target sm_90
.address_size 64
.shared .align 16 .b8 room[512];
.shared .align 8 .b64 barrier;
.entry k(.param .u64 in, .param .u64 out)
{
    .reg .b64 %in, %out, %o, %state; .reg .b32 %t, %r, %b, %v; .reg .pred %p;
    griddepcontrol.wait;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x; mov.u32 %b, barrier; mov.u32 %r, room;
    mul.wide.u32 %o, %t, 4; add.u64 %in, %in, %o; add.u64 %out, %out, %o;
    shl.b32 %v, %t, 2; add.u32 %r, %r, %v;
    setp.eq.u32 %p, %t, 0;
    @%p mbarrier.init.shared.b64 [%b], 33;
    bar.sync 0;
    cp.async.ca.shared.global [%r], [%in], 4;
    cp.async.mbarrier.arrive.noinc.shared.b64 [%b];
    cp.async.mbarrier.arrive.shared.b64 [%b];
    mbarrier.test_wait.parity.shared.b64 %p, [%b], 0;
    selp.u32 %v, 1000, 0, %p;
    bar.sync 0;
    setp.eq.u32 %p, %t, 0;
    @%p mbarrier.arrive.shared.b64 %state, [%b];
wait:
    mbarrier.try_wait.parity.shared.b64 %p, [%b], 0;
    @!%p bra wait;
    griddepcontrol.launch_dependents;
    ld.shared.u32 %t, [%r]; add.u32 %v, %v, %t;
    st.global.u32 [%out], %v;
    ret;
})");
    std::vector<uint32_t> values(32);
    std::iota(values.begin(), values.end(), 1u);
    auto out = bench.array<uint32_t>(32);
    bench.run("k", {1}, {32}, bench.array(values), out);
    for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == i + 1);  // 1000 more: the barrier did not wait for the 33rd
}
