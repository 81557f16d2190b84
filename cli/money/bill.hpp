// The history and the pools' ledgers as a bill: what was spent between two times, by machine, GPU, provider, day, tag or user, and
// beside it what the clouds themselves say.
#pragma once

#include <string>
#include <vector>

#include "cli/json_out.hpp"
#include "cli/money/costs.hpp"
#include "cli/money/gpu_time.hpp"
#include "cli/session.hpp"

namespace tnr::cli {

struct BillLine {
    std::string name;
    Cost cost;
};
struct PoolBill : PoolAddresses {
    Cost cost;
    size_t claims = 0;
    // Of those claims, all their life.
    int64_t bytes_up = 0, bytes_down = 0, busy_ms = 0, wiped_bytes = 0, wipe_checked_bytes = 0;
    std::vector<std::string> silent = {};  // nodes whose part is missing
};
struct Bill {
    int64_t since = 0, until = 0;
    std::string by;
    std::vector<BillLine> lines;  // dearest first; days in their order, those without costs too
    std::vector<PoolBill> pools;  // what of the total is GPU time, by pool
    Cost total;                   // not the lines' sum where a machine has several tags
};
// What `by` may be.
const std::vector<std::string>& bill_groups();
// Where one of `ledgers` did not tell, or a node of its pool, all costs that may have GPU time in them are partial.
// `to_now`: all that they have, also of the second that `until` is the beginning of.
Bill bill_of(const std::vector<Sighting>& sightings, const std::vector<PoolLedger>& ledgers, int64_t since,
             int64_t until, const std::string& by, bool to_now);

// "7d", "24h" and "30m" before `now`, or as in ui::seconds_of_written(). An Error of kind usage says so.
Result<int64_t> parse_when(const std::string& option, const std::string& text, int64_t now);

// This month, of a cloud that tells: its own figure and ours.
struct CloudFigure {
    std::string provider;
    Costs costs;
    double ours = 0;  // in the same currency
    std::optional<double> difference() const;
};
// Asks them side by side. Clouds without such a figure are left out; troubles of the others are added.
std::vector<CloudFigure> cloud_figures(Session& session, const std::vector<Sighting>& sightings, int64_t now,
                                       std::vector<Trouble>& troubles);

// The first moment of the month that `now` is in, UTC.
int64_t month_begin(int64_t now);

// `share` (0 to 1) of `columns`, to an eighth of a column.
std::string bar(double share, int columns);

}  // namespace tnr::cli
