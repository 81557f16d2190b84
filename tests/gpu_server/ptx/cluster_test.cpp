// Clusters: whose shared memory an address names, and who waits for whom.
#include "tests/gpu_server/ptx/bench.hpp"

using namespace tnr::ptx;
using namespace tnr::ptx::test;

namespace {

// Each block writes its rank + 10 * the cluster's number where p0 says, in shared memory of the block with rank `p1`.
constexpr char in_clusters[] = R"(
.version 8.3
.target sm_90
.address_size 64
.shared .align 4 .b8 word[4];
.entry write_there(.param .u64 p0, .param .u32 p1)
{
    .reg .b64 %out, %o, %g; .reg .b32 %a, %peer, %rank, %n, %v, %id; .reg .pred %p;
    ld.param.u64 %out, [p0]; ld.param.u32 %peer, [p1];
    mov.u32 %rank, %cluster_ctarank; mov.u32 %n, %cluster_nctarank; mov.u32 %id, %clusterid.x;
    mov.u32 %a, word;
    mov.u32 %v, -1; st.shared.u32 [%a], %v;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    add.u32 %peer, %peer, %rank; rem.u32 %peer, %peer, %n;
    mapa.shared::cluster.u32 %a, %a, %peer;
    mad.lo.u32 %v, %id, 10, %rank;
    st.shared::cluster.u32 [%a], %v;
    getctarank.shared::cluster.u32 %v, %a;
    setp.ne.u32 %p, %v, %peer;
    @%p trap;
    barrier.cluster.arrive; barrier.cluster.wait;
    cvta.shared.u64 %g, word; ld.u32 %v, [%g];
    mov.u32 %id, %ctaid.x; mul.wide.u32 %o, %id, 4; add.u64 %out, %out, %o;
    st.global.u32 [%out], %v;
    barrier.cluster.arrive; barrier.cluster.wait;
    ret;
}
.entry wait_alone()
{
    .reg .b32 %rank; .reg .pred %p;
    mov.u32 %rank, %cluster_ctarank;
    setp.ne.u32 %p, %rank, 0;
    @%p bra other;
    barrier.cluster.arrive; barrier.cluster.wait;
    ret;
other:
    bar.sync 1, 64;
    ret;
}
.entry leave_early()
{
    .reg .b32 %rank; .reg .pred %p;
    mov.u32 %rank, %cluster_ctarank;
    setp.ne.u32 %p, %rank, 0;
    @%p bra end;
    barrier.cluster.arrive; barrier.cluster.wait;
end:
    ret;
}
)";

}  // namespace

TEST_CASE("blocks of a cluster reach each other's shared memory", "[ptx][cluster]") {
    Bench bench(in_clusters);
    auto out = bench.array<uint32_t>(12);
    for (uint32_t size : {1u, 2u, 4u}) {
        Options options;
        options.cluster = {size, 1, 1};
        for (uint32_t ahead = 0; ahead < size; ++ahead) {
            auto report = bench.launch("write_there", {12}, {1}, options, out, ahead);
            INFO(report.detail);
            REQUIRE(report.outcome == Outcome::done);
            for (uint32_t b = 0; b < 12; ++b) CHECK(out[b] == b / size * 10 + (b % size + size - ahead) % size);
        }
    }
}

TEST_CASE("a rank that is not in the cluster has no memory", "[ptx][cluster]") {
    Bench bench(R"(
.version 8.3
.target sm_90
.address_size 64
.shared .align 4 .b8 word[4];
.entry k()
{
    .reg .b32 %a;
    mov.u32 %a, word; mapa.shared::cluster.u32 %a, %a, 2; st.shared::cluster.u32 [%a], 1;
    ret;
})");
    Options options;
    options.cluster = {2, 1, 1};
    CHECK(bench.launch("k", {2}, {1}, options).outcome == Outcome::illegal_address);
}

TEST_CASE("the cluster's barrier: those who have left are not waited for, a deadlock is told", "[ptx][cluster]") {
    Bench bench(in_clusters);
    Options options;
    options.cluster = {4, 1, 1};
    CHECK(bench.launch("leave_early", {8}, {33}, options).outcome == Outcome::done);
    options.cluster = {2, 1, 1};
    CHECK(bench.launch("wait_alone", {2}, {32}, options).outcome == Outcome::deadlock);
    options.cluster = {3, 1, 1};
    CHECK(bench.launch("leave_early", {8}, {33}, options).outcome ==
          Outcome::illegal_instruction);  // 8 is no multiple of 3
}
