// What machines have cost, out of their history: time in each state, times the price as it was then.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/money/gpu_time.hpp"
#include "cli/money/history.hpp"

namespace tnr::cli {

// A while during which nothing changed. `until` is where the next sighting begins, or now.
struct Span {
    const Sighting* seen;
    int64_t from = 0, until = 0;  // seconds since 1970
    bool running() const { return seen->state != MachineState::stopped; }
    double hours() const { return static_cast<double>(until - from) / 3600; }
    // Nothing: its cloud did not say what it costs.
    std::optional<double> cost() const;
};
// What was of the machines' lives between `since` and `until`. The spans point into `sightings`.
std::vector<Span> spans_of(const std::vector<Sighting>& sightings, int64_t since, int64_t until);

// A sum over spans. Currencies stay apart.
struct Cost {
    std::map<std::string, double> amounts = {};  // by currency; what is free is in none
    double hours_running = 0, hours_stopped = 0;
    double hours_gpu = 0;      // of the pools' GPUs, each counted by itself
    double hours_unknown = 0;  // of all these: at an unknown price, and so in no amount
    bool partial = false;      // GPU time is missing whose pool does not tell
    bool any() const { return hours_running + hours_stopped + hours_gpu > 0; }
    void add(const Span& span);
    void add(const GpuSpan& span);
    // The amount in this currency alone.
    double in(const std::string& currency) const;
};

// Of one machine, all its life up to `until`.
Cost cost_of(const std::vector<Sighting>& sightings, const std::string& provider, const std::string& id, int64_t until);

// What the pool's GPUs have cost that a machine of this name had since then (seconds since 1970), up to now. Partial where
// the pool, or one of its nodes, does not tell.
Cost gpu_cost_of(const PoolLedger& ledger, const std::string& machine, int64_t since);

// "$1.23", "0.50 EUR"; "$1.23 + 0.50 EUR" for a sum; "free" for what costs nothing, empty for
// no time at all, and "+ unknown" where hours are, or a pool does not tell.
std::string money_text(const std::string& currency, double amount);
std::string money_text(const Cost& cost);

}  // namespace tnr::cli
