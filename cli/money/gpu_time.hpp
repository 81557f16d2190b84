// GPU time of the pools: each claim in a pool's ledger, at the price as it was then.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/same_pool.hpp"

namespace tnr::cli {

struct Session;

struct PoolLedger : PoolAddresses {
    Result<PoolBooks> books = PoolBooks{};
    bool whole() const { return books && books->silent.empty(); }  // else GPU time is missing
};
// Those of all pools that one is signed in to, each once (same_pool.hpp), asked side by side: what was in use after `since` (seconds since 1970), of
// one's own account or, for an operator, of everyone.
// `borders`: further times at which spans will be cut (Pool::books()).
std::vector<PoolLedger> ask_pool_ledgers(Session& session, int64_t since, bool everyone = false,
                                         const std::vector<int64_t>& borders = {});
// That of one pool, for one's own account.
PoolLedger ask_pool_ledger(Session& session, const std::string& address, int64_t since);

// A part of a claim during which the price did not change.
struct GpuSpan {
    const GpuUse* use = nullptr;
    std::string pool = {};
    int64_t from_ms = 0, until_ms = 0;
    std::string currency = {};
    std::optional<double> per_hour = {};  // of one GPU; nothing: the pool had set no price
    double gpu_hours() const {
        const auto part_ms = static_cast<double>(until_ms - from_ms),
                   whole_ms = static_cast<double>(use->to_ms - use->from_ms);
        const double held_ms = use->held_ms ? part_ms * static_cast<double>(*use->held_ms) / whole_ms : part_ms;
        return held_ms / 3'600'000 * use->count;
    }
};
// What was between `since` and `until` (seconds). The spans point into `books`.
std::vector<GpuSpan> gpu_spans_of(const std::string& pool, const PoolBooks& books, int64_t since, int64_t until);

// Whom a bill names for a claim: the machine; for programs of `tnr run`, each a claim of its own, "tnr run on HOST".
std::string who_used(const GpuUse& use);

}  // namespace tnr::cli
