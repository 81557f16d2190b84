// See bill.hpp.
#include "cli/money/bill.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <set>

#include "cli/overview.hpp"
#include "cli/side_by_side.hpp"
#include "cli/ui/time.hpp"

namespace tnr::cli {
namespace {

constexpr int64_t day_seconds = 24 * 3600;

std::string day_of(int64_t seconds) {
    return ui::utc_text(seconds).substr(0, 10);
}

// A span in pieces that each lie within one day.
std::vector<Span> by_days(const Span& span) {
    std::vector<Span> pieces;
    for (int64_t from = span.from; from < span.until;) {
        int64_t midnight = (from / day_seconds + 1) * day_seconds;
        pieces.push_back({span.seen, from, std::min(midnight, span.until)});
        from = midnight;
    }
    return pieces;
}

std::vector<std::string> tag_groups(const std::map<std::string, std::string>& tags) {
    std::vector<std::string> groups;
    for (const auto& [key, value] : tags) {
        std::string tag = key;
        groups.push_back(tag.append("=").append(value));
    }
    if (groups.empty()) groups.emplace_back("no tag");
    return groups;
}

std::vector<std::string> groups_of(const Span& span, const std::string& by) {
    const Sighting& seen = *span.seen;
    if (by == "machine") return {seen.name};
    if (by == "gpu") return {seen.gpu.empty() ? "no GPU" : gpu_text(seen.gpu, seen.gpu_count)};
    if (by == "provider") return {seen.provider};
    if (by == "day") return {day_of(span.from)};
    if (by == "user") return {"you"};
    return tag_groups(seen.tags);
}

std::vector<GpuSpan> by_days(const GpuSpan& span) {
    std::vector<GpuSpan> pieces;
    constexpr int64_t day_ms = day_seconds * 1000;
    for (int64_t from = span.from_ms; from < span.until_ms;) {
        GpuSpan piece = span;
        piece.from_ms = from;
        piece.until_ms = std::min((from / day_ms + 1) * day_ms, span.until_ms);
        from = piece.until_ms;
        pieces.push_back(piece);
    }
    return pieces;
}

// `tags`: of the machines, by name.
std::vector<std::string> groups_of(const GpuSpan& span, const std::string& by,
                                   const std::map<std::string, std::map<std::string, std::string>>& tags) {
    if (by == "machine") return {who_used(*span.use)};
    if (by == "gpu") return {gpu_text(span.use->gpu, span.use->count)};
    if (by == "provider") return {span.pool};
    if (by == "day") return {day_of(span.from_ms / 1000)};
    if (by == "user") return {span.use->user.empty() ? "you" : span.use->user};
    auto found = tags.find(span.use->machine);
    return tag_groups(found == tags.end() ? std::map<std::string, std::string>{} : found->second);
}

double largest(const Cost& cost) {
    double most = 0;
    for (const auto& [currency, amount] : cost.amounts) most = std::max(most, amount);
    return most;
}

struct AskedCosts {
    std::string name;
    std::unique_ptr<Provider> provider = {};
    Result<Costs> costs = Costs{};
};

}  // namespace

const std::vector<std::string>& bill_groups() {
    static const std::vector<std::string> groups = {"machine", "gpu", "provider", "day", "tag", "user"};
    return groups;
}

namespace {

void add_pool(Bill& bill, std::map<std::string, Cost>& groups, const PoolLedger& ledger, int64_t until,
              const std::map<std::string, std::map<std::string, std::string>>& tags) {
    PoolBill pool{ledger, {}};
    pool.silent = ledger.books->silent;
    std::set<const GpuUse*> uses;  // each once
    for (const auto& whole : gpu_spans_of(ledger.address, *ledger.books, bill.since, until)) {
        bill.total.add(whole);
        pool.cost.add(whole);
        if (uses.insert(whole.use).second) {
            pool.claims += static_cast<size_t>(whole.use->claims);
            pool.bytes_up += whole.use->bytes_up;
            pool.bytes_down += whole.use->bytes_down;
            pool.busy_ms += whole.use->busy_ms;
            pool.wiped_bytes += whole.use->wiped_bytes;
            pool.wipe_checked_bytes += whole.use->wipe_checked_bytes;
        }
        for (const auto& span : bill.by == "day" ? by_days(whole) : std::vector{whole})
            for (const auto& group : groups_of(span, bill.by, tags)) groups[group].add(span);
    }
    bill.pools.push_back(std::move(pool));
}

// By provider a pool has a line of its own, so that only this one is not known.
void add_silent_pool(Bill& bill, std::map<std::string, Cost>& groups, const std::string& address) {
    bill.total.partial = true;
    if (bill.by == "provider") {
        groups[address].partial = true;
        return;
    }
    for (auto& [name, cost] : groups) cost.partial = true;
}

}  // namespace

Bill bill_of(const std::vector<Sighting>& sightings, const std::vector<PoolLedger>& ledgers, int64_t since,
             int64_t until, const std::string& by, bool to_now) {
    Bill bill{since, until, by, {}, {}, {}};
    std::map<std::string, Cost> groups;
    if (by == "day" && since > 0)  // without a beginning, from the first day that costs something
        for (int64_t day = since - since % day_seconds; day < until; day += day_seconds) groups[day_of(day)];
    for (const auto& whole : spans_of(sightings, since, until)) {
        bill.total.add(whole);
        for (const auto& span : by == "day" ? by_days(whole) : std::vector{whole})
            for (const auto& group : groups_of(span, by)) groups[group].add(span);
    }
    std::map<std::string, std::map<std::string, std::string>> tags;
    for (const auto& seen : sightings) tags[seen.name] = seen.tags;
    for (const auto& ledger : ledgers)
        if (ledger.books) add_pool(bill, groups, ledger, to_now ? until + day_seconds : until, tags);
    for (const auto& ledger : ledgers)
        if (!ledger.whole()) add_silent_pool(bill, groups, ledger.address);
    for (auto& [name, cost] : groups) bill.lines.push_back({name, std::move(cost)});
    if (by != "day")
        std::stable_sort(bill.lines.begin(), bill.lines.end(),
                         [](const BillLine& a, const BillLine& b) { return largest(a.cost) > largest(b.cost); });
    return bill;
}

Result<int64_t> parse_when(const std::string& option, const std::string& text, int64_t now) {
    if (auto time = ui::seconds_of_written(text)) return *time;
    int64_t number = 0;
    auto [rest, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::string unit = text.substr(static_cast<size_t>(rest - text.data()));
    constexpr int64_t days_max = 36'500;
    if (wrong == std::errc{} && number >= 0 && number <= days_max) {
        if (unit == "d") return now - number * day_seconds;
        if (unit == "h") return now - number * 3600;
        if (unit == "m") return now - number * 60;
    }
    return Error{Error::Kind::usage, option + " is no time: '" + text + "'",
                 "it looks like 2026-11-01, 2026-11-01T09:30, 2026-11-01T09:30+05:30, or 7d for seven days ago; "
                 "UTC where no offset is told"};
}

std::optional<double> CloudFigure::difference() const {
    if (!costs.this_month) return std::nullopt;
    return *costs.this_month - ours;
}

std::vector<CloudFigure> cloud_figures(Session& session, const std::vector<Sighting>& sightings, int64_t now,
                                       std::vector<Trouble>& troubles) {
    std::vector<AskedCosts> all;
    for (const auto& name : session.provider_names)
        if (auto provider = open_to_ask(session, name)) all.push_back({name, std::move(*provider)});
    std::vector<std::function<void()>> questions;
    for (auto& asked : all) questions.emplace_back([&asked] { asked.costs = asked.provider->costs(); });
    side_by_side(session, questions);
    std::vector<CloudFigure> figures;
    for (const auto& asked : all) {
        if (!asked.costs && asked.costs.error().kind != Error::Kind::usage)  // usage: it has none
            troubles.push_back({asked.name, asked.costs.error()});
        if (!asked.costs || (!asked.costs->this_month && !asked.costs->balance)) continue;
        Cost ours;
        for (const auto& span : spans_of(sightings, month_begin(now), now))
            if (span.seen->provider == asked.name) ours.add(span);
        figures.push_back({asked.name, *asked.costs, ours.in(asked.costs->currency)});
    }
    return figures;
}

int64_t month_begin(int64_t now) {
    return ui::seconds_of(ui::utc_text(now).substr(0, 8) + "01T00:00:00Z").value_or(now);
}

std::string bar(double share, int columns) {
    static const char* const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const long length = std::lround(std::clamp(share, 0.0, 1.0) * columns * 8);
    std::string text;
    for (long i = 0; i < length / 8; ++i) text += "█";
    return text + eighths[length % 8];
}

}  // namespace tnr::cli
