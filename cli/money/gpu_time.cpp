// See gpu_time.hpp.
#include "cli/money/gpu_time.hpp"

#include <algorithm>
#include <functional>

#include "cli/same_pool.hpp"
#include "cli/session.hpp"
#include "cli/side_by_side.hpp"

namespace tnr::cli {

std::vector<PoolLedger> ask_pool_ledgers(Session& session, int64_t since, bool everyone,
                                         const std::vector<int64_t>& borders) {
    auto logins = session.logins().all();
    if (!logins) return {{{"pool.json"}, logins.error()}};
    auto asked = open_logins(session, *logins);
    std::vector<PoolLedger> ledgers;
    for (const auto& login : *logins) ledgers.push_back({{login.address}});
    std::vector<std::function<void()>> questions;
    for (size_t i = 0; i < asked.size(); ++i)
        questions.emplace_back([&, i] {
            ledgers[i].books = asked[i].ask([&](Pool& pool) { return pool.books(since, everyone, borders); });
        });
    side_by_side(session, questions);
    return one_of_each_pool(session, asked, std::move(ledgers));
}

PoolLedger ask_pool_ledger(Session& session, const std::string& address, int64_t since) {
    auto opened = open_pool(session, address);
    if (!opened) return {{address}, opened.error()};
    return {{address}, opened->pool->books(since, false, {})};
}

std::vector<GpuSpan> gpu_spans_of(const std::string& pool, const PoolBooks& books, int64_t since, int64_t until) {
    std::vector<GpuSpan> spans;
    for (const auto& use : books.uses) {
        const int64_t begin = std::max(use.from_ms, since * 1000), end = std::min(use.to_ms, until * 1000);
        GpuSpan now{&use, pool, begin, end};
        // One after the other; what a price begins, the next one of the type ends.
        for (const auto& price : books.prices) {
            if (price.gpu != use.gpu || price.since_ms >= end) continue;
            GpuSpan before = now;
            before.until_ms = std::max(begin, price.since_ms);
            if (before.from_ms < before.until_ms) spans.push_back(before);
            now.from_ms = std::max(now.from_ms, before.until_ms);
            now.currency = price.currency;
            now.per_hour = price.per_hour;
        }
        if (now.from_ms < now.until_ms) spans.push_back(now);
    }
    return spans;
}

std::string who_used(const GpuUse& use) {
    const auto host = control::host_of_run(use.machine);
    return host.empty() ? use.machine : "tnr run on " + host;
}

}  // namespace tnr::cli
