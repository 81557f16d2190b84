// The history as a bill: what was spent between two times, by machine, GPU, provider, day or tag, and beside it what the
// clouds themselves say.
#pragma once

#include <string>
#include <vector>

#include "cli/json_out.hpp"
#include "cli/money/costs.hpp"
#include "cli/session.hpp"

namespace tnr::cli {

struct BillLine {
    std::string name;
    Cost cost;
};
struct Bill {
    int64_t since = 0, until = 0;
    std::string by;
    std::vector<BillLine> lines;  // dearest first; days in their order, those without costs too
    Cost total;                   // not the lines' sum where a machine has several tags
};
// What `by` may be.
const std::vector<std::string>& bill_groups();
Bill bill_of(const std::vector<Sighting>& sightings, int64_t since, int64_t until, const std::string& by);

// "2026-11-01", "2026-11-01T12:00:00Z", "7d" and "24h" before `now`. An Error of kind usage says so.
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
