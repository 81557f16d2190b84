// See stats.hpp.
#include "gpu_client/cuda/stats.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tnr::cuda {

Stats& stats() {
    static auto* counts = new Stats;  // never destroyed: programs call us from their last destructors
    return *counts;
}

uint64_t Stats::round_trips() const {
    uint64_t sum = session_waited.load(relaxed) + control_waited.load(relaxed);
    for (auto& count : waited) sum += count.load(relaxed);
    return sum;
}

void PageStats::count_fetched(uint64_t bytes) {
    fetched.fetch_add(bytes, Stats::relaxed);
    uint64_t now = fetched_in_turn.fetch_add(bytes, Stats::relaxed) + bytes;
    uint64_t most = fetched_in_turn_max.load(Stats::relaxed);
    while (most < now && !fetched_in_turn_max.compare_exchange_weak(most, now, Stats::relaxed)) {
    }
}

static void print_pages(const PageStats& pages) {
    if (pages.given == 0 && pages.faults == 0) return;
    std::fprintf(stderr,
                 "tnr: managed and mapped memory: %" PRIu64 " bytes given to the GPU, %" PRIu64
                 " fetched (at most %" PRIu64 " after one piece of work) in %" PRIu64 " round trips, %" PRIu64
                 " accesses waited\n",
                 pages.given.load(), pages.fetched.load(), pages.fetched_in_turn_max.load(), pages.waits.load(),
                 pages.faults.load());
}

static void print_traffic(const wire::Link& link) {
    std::fprintf(stderr, "tnr: %" PRIu64 " bytes sent, %" PRIu64 " bytes received\n", link.bytes_sent(),
                 link.bytes_received());
    for (size_t lane = 1; lane <= link.channel().lanes(); ++lane) {
        auto bytes = link.traffic(lane);
        std::fprintf(stderr, "tnr: lane %zu: %" PRIu64 " bytes sent, %" PRIu64 " bytes received\n", lane, bytes.sent,
                     bytes.received);
    }
}

void print_stats(std::span<const wire::Link* const> links) {
    const char* wanted = std::getenv("TNR_STATS");
    if (!wanted || std::strcmp(wanted, "1") != 0) return;
    auto& all = stats();
    std::fprintf(stderr, "tnr: %" PRIu64 " calls, %" PRIu64 " round trips (%" PRIu64 " to the pool), %.3f ms waited\n",
                 all.calls.load(), all.round_trips(), all.control_waited.load(), all.wait_ns.load() / 1e6);
    for (auto* link : links) print_traffic(*link);
    print_pages(all.pages);
    std::fprintf(stderr, "tnr: %-44s %10s %12s\n", "call", "sent", "round trips");
    for (auto& call : wire::calls) {
        auto sent = all.sent[call.op].load(), waited = all.waited[call.op].load();
        if (sent != 0) std::fprintf(stderr, "tnr: %-44s %10" PRIu64 " %12" PRIu64 "\n", call.name, sent, waited);
    }
    std::fprintf(stderr, "tnr: %-44s %10" PRIu64 " %12" PRIu64 "\n", "(session)", all.session_sent.load(),
                 all.session_waited.load());
}

}  // namespace tnr::cuda

// For tests and benchmarks, which find it by name: how often this process has waited for the network so far.
extern "C" __attribute__((visibility("default"))) unsigned long long cuTnrRoundTrips() {
    return tnr::cuda::stats().round_trips();
}
