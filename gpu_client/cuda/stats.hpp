// Counts of what the library does. TNR_STATS=1 prints them to stderr at exit; tests assert on round trips.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "cuda_calls.hpp"
#include "gpu_client/protocol/link.hpp"

namespace tnr::cuda {

// Memory that the program and the GPU both address: shared_pages.hpp.
struct PageStats {
    std::atomic<uint64_t> faults{0};   // accesses that had to wait for a page
    std::atomic<uint64_t> fetched{0};  // bytes
    std::atomic<uint64_t> given{0};
    std::atomic<uint64_t> waits{0};  // for what is fetched
    // Bytes that were fetched since the GPU was given the memory last, and the most that this has ever been.
    std::atomic<uint64_t> fetched_in_turn{0}, fetched_in_turn_max{0};

    void count_fetched(uint64_t bytes);
    void begin_turn() { fetched_in_turn.store(0, std::memory_order_relaxed); }
};

struct Stats {
    std::atomic<uint64_t> calls{0};                       // of any exported function that needs cuInit
    std::atomic<uint64_t> sent[wire::op_max + 1] = {};    // records, by op
    std::atomic<uint64_t> waited[wire::op_max + 1] = {};  // round trips, by op
    std::atomic<uint64_t> session_sent{0};                // records of the session's own (ops.hpp)
    std::atomic<uint64_t> session_waited{0};
    std::atomic<uint64_t> control_waited{0};  // requests to the pool
    std::atomic<uint64_t> wait_ns{0};
    PageStats pages;

    void count_sent(uint16_t op) { (op <= wire::op_max ? sent[op] : session_sent).fetch_add(1, relaxed); }
    void count_waited(uint16_t op) { (op <= wire::op_max ? waited[op] : session_waited).fetch_add(1, relaxed); }
    uint64_t round_trips() const;

    static constexpr auto relaxed = std::memory_order_relaxed;
};

Stats& stats();
// Prints the table to stderr if TNR_STATS=1. `links`: one for each session, so perhaps none.
void print_stats(std::span<const wire::Link* const> links);

}  // namespace tnr::cuda
