// See costs.hpp.
#include "cli/money/costs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "cli/ui/time.hpp"

namespace tnr::cli {

std::optional<double> Span::cost() const {
    auto per_hour = running() ? seen->price.running() : seen->price.stopped();
    if (!per_hour) return std::nullopt;
    return *per_hour * hours();
}

std::vector<Span> spans_of(const std::vector<Sighting>& sightings, int64_t since, int64_t until) {
    std::map<std::pair<std::string, std::string>, const Sighting*> open;
    std::vector<Span> spans;
    auto close = [&](const Sighting* seen, int64_t end) {
        int64_t from = std::max(ui::seconds_of(seen->at).value_or(end), since), to = std::min(end, until);
        if (seen->state != MachineState::gone && from < to) spans.push_back({seen, from, to});
    };
    for (const auto& seen : sightings) {
        auto& before = open[{seen.provider, seen.id}];
        if (before) close(before, ui::seconds_of(seen.at).value_or(since));
        before = &seen;
    }
    for (const auto& [machine, seen] : open) close(seen, until);
    return spans;
}

void Cost::add(const Span& span) {
    (span.running() ? hours_running : hours_stopped) += span.hours();
    auto cost = span.cost();
    if (!cost)
        hours_unknown += span.hours();
    else if (*cost > 0)
        amounts[span.seen->price.currency] += *cost;
}

void Cost::add(const GpuSpan& span) {
    hours_gpu += span.gpu_hours();
    if (!span.per_hour)
        hours_unknown += span.gpu_hours();
    else if (*span.per_hour > 0)
        amounts[span.currency] += *span.per_hour * span.gpu_hours();
}

double Cost::in(const std::string& currency) const {
    auto found = amounts.find(currency);
    return found == amounts.end() ? 0 : found->second;
}

Cost cost_of(const std::vector<Sighting>& sightings, const std::string& provider, const std::string& id,
             int64_t until) {
    std::vector<Sighting> own;
    std::copy_if(sightings.begin(), sightings.end(), std::back_inserter(own),
                 [&](const Sighting& seen) { return seen.provider == provider && seen.id == id; });
    Cost cost;
    for (const auto& span : spans_of(own, 0, until)) cost.add(span);
    return cost;
}

Cost gpu_cost_of(const PoolLedger& ledger, const std::string& machine, int64_t since) {
    Cost cost;
    cost.partial = !ledger.whole() || !control::host_of_run(machine).empty();  // not told from programs of `tnr run`
    if (!ledger.books) return cost;
    constexpr int64_t for_ever = std::numeric_limits<int64_t>::max() / 1000;
    for (const auto& span : gpu_spans_of(ledger.address, *ledger.books, since, for_ever))
        if (span.use->machine == machine) cost.add(span);
    return cost;
}

std::string money_text(const std::string& currency, double amount) {
    char number[64];
    const double size = std::abs(amount);
    std::snprintf(number, sizeof number, size > 0 && size < 0.01 ? "%.4f" : "%.2f", size);
    const std::string sign = amount < 0 ? "-" : "";
    return currency == "USD" ? sign + "$" + number : sign + number + " " + (currency.empty() ? "?" : currency);
}

std::string money_text(const Cost& cost) {
    std::string text;
    for (const auto& [currency, amount] : cost.amounts)
        text += (text.empty() ? "" : " + ") + money_text(currency, amount);
    if (cost.hours_unknown > 0 || cost.partial) text += text.empty() ? "unknown" : " + unknown";
    return text.empty() && cost.any() ? "free" : text;
}

}  // namespace tnr::cli
