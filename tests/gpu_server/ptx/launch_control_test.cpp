// Blocks that take over the work of blocks that have not begun.
#include <set>

#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// Each block counts itself, then every block whose launch it could cancel: at x + y * 16 + z * 256 of p0. How many of those
// there were is added to p1.
constexpr char taking_over[] = R"(
.version 8.7
.target sm_100
.address_size 64
.shared .align 16 .b8 answer[16];
.shared .align 8 .b64 barrier;
.entry k(.param .u64 p0, .param .u64 p1)
{
    .reg .b64 %out, %taken, %o, %s; .reg .b32 %a, %b, %x, %y, %z, %k, %parity; .reg .b128 %w; .reg .pred %p;
    ld.param.u64 %out, [p0]; ld.param.u64 %taken, [p1];
    mov.u32 %a, answer; mov.u32 %b, barrier; mov.u32 %parity, 0;
    mbarrier.init.shared::cta.b64 [%b], 1;
    mov.u32 %x, %ctaid.x; mov.u32 %y, %ctaid.y; mov.u32 %z, %ctaid.z;
count:
    mad.lo.u32 %k, %z, 16, %y; mad.lo.u32 %k, %k, 16, %x;
    mul.wide.u32 %o, %k, 4; add.u64 %o, %o, %out;
    red.global.add.u32 [%o], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 %s, [%b], 16;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%a], [%b];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], %parity;
    @!%p bra wait;
    xor.b32 %parity, %parity, 1;
    ld.shared.b128 %w, [%a];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p, %w;
    @!%p bra done;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%x, %y, _, _}, %w;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::z.b32.b128 %z, %w;
    red.global.add.u32 [%taken], 1;
    bra count;
done:
    ret;
})";

}  // namespace

TEST_CASE("each block runs by itself or is taken over, once", "[ptx][launch_control]") {
    Bench bench(taking_over);
    auto counts = bench.array<uint32_t>(16 * 16 * 16);
    auto taken = bench.array<uint32_t>(1);
    bench.run("k", {5, 4, 3}, {1}, counts, taken);
    for (uint32_t k = 0; k < counts.size; ++k) {
        bool there = k % 16 < 5 && k / 16 % 16 < 4 && k / 256 < 3;
        CHECK(counts[k] == (there ? 1u : 0u));
    }
    CHECK(taken[0] > 0);
    SECTION("blocks of a cooperative launch have all begun") {
        Options options;
        options.cooperative = true;
        taken[0] = 0;
        CHECK(bench.launch("k", {5}, {1}, options, counts, taken).outcome == Outcome::done);
        CHECK(taken[0] == 0);
    }
}

TEST_CASE("a cluster takes over a cluster, and all of its blocks hear of it", "[ptx][launch_control]") {
    // The block with rank 0 asks; each block then counts its own place in the cluster that was taken over.
    Bench bench(R"(
.version 8.7
.target sm_100
.address_size 64
.shared .align 16 .b8 answer[16];
.shared .align 8 .b64 barrier;
.entry k(.param .u64 p0)
{
    .reg .b64 %out, %o, %s; .reg .b32 %a, %b, %x, %rank, %parity; .reg .b128 %w; .reg .pred %p, %asks;
    ld.param.u64 %out, [p0];
    mov.u32 %a, answer; mov.u32 %b, barrier; mov.u32 %parity, 0; mov.u32 %rank, %cluster_ctarank; mov.u32 %x, %ctaid.x;
    setp.eq.u32 %asks, %rank, 0;
    mbarrier.init.shared::cta.b64 [%b], 1;
count:
    mul.wide.u32 %o, %x, 4; add.u64 %o, %o, %out;
    red.global.add.u32 [%o], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 %s, [%b], 16;
    barrier.cluster.arrive; barrier.cluster.wait;
    @%asks clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%a], [%b];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], %parity;
    @!%p bra wait;
    xor.b32 %parity, %parity, 1;
    ld.shared.b128 %w, [%a];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p, %w;
    @!%p bra done;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %x, %w;
    add.u32 %x, %x, %rank;
    bra count;
done:
    ret;
})");
    auto counts = bench.array<uint32_t>(24);
    Options options;
    options.cluster = {4, 1, 1};
    auto report = bench.launch("k", {24}, {1}, options, counts);
    INFO(report.detail);
    REQUIRE(report.outcome == Outcome::done);
    for (uint32_t k = 0; k < 24; ++k) CHECK(counts[k] == 1);
}
