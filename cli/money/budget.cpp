// See budget.hpp.
#include "cli/money/budget.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "api_client/base/files.hpp"
#include "cli/money/gpu_time.hpp"
#include "cli/newer_fields.hpp"
#include "cli/session.hpp"
#include "cli/ui/text.hpp"
#include "cli/ui/time.hpp"

namespace tnr::cli {
namespace {

using BudgetsJson = nlohmann::json;

// Midnight that the period of `now` began at.
int64_t begin_of(const std::string& period, int64_t now) {
    std::string day = ui::utc_text(now).substr(0, 10);
    if (period == "month") day.replace(8, 2, "01");
    return ui::seconds_of(day + "T00:00:00Z").value_or(now);
}

int64_t end_of(const std::string& period, int64_t now) {
    const int64_t begin = begin_of(period, now);
    return begin_of(period, begin + (period == "day" ? 1 : 32) * int64_t{86400});
}

bool is_pool(const std::string& provider) {
    return provider.find("://") != std::string::npos;
}

// What of the budget's period is over, of what it is about.
Cost cost_within(const Budget& budget, const std::vector<Sighting>& sightings, const std::vector<PoolLedger>& ledgers,
                 int64_t now) {
    const int64_t begin = begin_of(budget.period, now);
    Cost cost;
    for (const auto& span : spans_of(sightings, begin, now))
        if (budget.provider.empty() || span.seen->provider == budget.provider) cost.add(span);
    for (const auto& ledger : ledgers) {
        if (!budget.provider.empty() && !ledger.is_at(budget.provider)) continue;
        cost.partial |= !ledger.whole();
        if (!ledger.books) continue;
        for (const auto& span : gpu_spans_of(ledger.address, *ledger.books, begin, now + 1)) cost.add(span);
    }
    return cost;
}

// What the machines that a budget is about cost an hour now, in each currency.
std::map<std::string, double> rates_of(const Budget& budget, const std::vector<Sighting>& sightings) {
    std::map<std::string, double> rates;
    for (const auto& [machine, seen] : last_of_each(sightings)) {
        if (seen.state == MachineState::gone || !is_about(budget, seen.provider, "")) continue;
        auto price = seen.state == MachineState::stopped ? seen.price.stopped() : seen.price.running();
        if (price && *price > 0) rates[seen.price.currency] += *price;
    }
    return rates;
}

std::optional<int64_t> used_up_at(const Budget& budget, const Cost& cost, std::map<std::string, double> rates,
                                  int64_t now) {
    if (budget.amount <= 0) return now;
    for (const auto& [currency, spent] : cost.amounts) rates.try_emplace(currency, 0);
    std::optional<double> first;
    for (const auto& [currency, rate] : rates) {
        if (!budget.currency.empty() && currency != budget.currency) continue;
        const double left = budget.amount - cost.in(currency);
        if (left > 0 && rate <= 0) continue;
        const double seconds = left > 0 ? left / rate * 3600 : 0;
        first = std::min(first.value_or(seconds), seconds);
    }
    if (!first || *first >= static_cast<double>(end_of(budget.period, now) - now)) return std::nullopt;
    return now + static_cast<int64_t>(*first);
}

}  // namespace

bool is_about(const Budget& budget, const std::string& provider, const std::string& pool) {
    return budget.provider.empty() || budget.provider == provider || budget.provider == pool;
}

std::optional<UsedUp> used_up_when(const std::vector<Budget>& budgets, const std::vector<Sighting>& sightings,
                                   const std::vector<PoolLedger>& ledgers, int64_t now) {
    std::optional<UsedUp> first;
    for (const auto& budget : budgets) {
        auto at = used_up_at(budget, cost_within(budget, sightings, ledgers, now), rates_of(budget, sightings), now);
        if (at && (!first || *at < first->from)) first = UsedUp{*at, end_of(budget.period, now)};
    }
    return first;
}

Result<Budget> parse_budget(const std::string& text) {
    const Error wrong{Error::Kind::usage, "'" + text + "' is no budget",
                      "it looks like 50/month, 50EUR/month or 2USD/day"};
    Budget budget;
    const size_t slash = text.find('/');
    if (slash == std::string::npos) return wrong;
    budget.period = text.substr(slash + 1);
    if (budget.period != "month" && budget.period != "day") return wrong;
    const size_t begin = text[0] == '$' ? 1 : 0;
    if (begin > slash) return wrong;
    const auto leading = ui::leading_number(std::string_view(text).substr(begin, slash - begin));
    if (!leading || !std::isfinite(leading->number)) return wrong;
    budget.amount = leading->number;
    budget.currency = begin ? "USD" : ui::upper(std::string(leading->rest));
    budget.currency.erase(0, budget.currency.find_first_not_of(' '));
    const bool word =
        std::all_of(budget.currency.begin(), budget.currency.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
    if (!word || (!budget.currency.empty() && budget.currency.size() != 3) || (begin && !leading->rest.empty()))
        return wrong;
    return budget;
}

Result<std::vector<Budget>> Budgets::all() const {
    auto text = read_file(path_);
    if (!text && text.error().kind == Error::Kind::not_found) return std::vector<Budget>{};
    if (!text) return text.error();
    std::vector<Budget> budgets;
    try {
        for (const auto& each : BudgetsJson::parse(*text))
            budgets.push_back({each.at("provider"), each.at("amount"), each.at("currency"), each.at("period")});
    } catch (const BudgetsJson::exception&) {
        return Error{Error::Kind::internal, path_ + " is damaged", "remove it and run `tnr budget set` again"};
    }
    return budgets;
}

Result<> Budgets::save(const std::vector<Budget>& budgets) {
    auto text = read_file(path_);
    const auto before = text ? BudgetsJson::parse(*text, nullptr, false) : BudgetsJson();
    auto list = BudgetsJson::array();
    for (const auto& each : budgets) {
        BudgetsJson budget = {
            {"provider", each.provider}, {"amount", each.amount}, {"currency", each.currency}, {"period", each.period}};
        keep_newer_fields(budget, before, {"provider", "amount", "currency", "period"});
        list.push_back(budget);
    }
    return write_file(path_, list.dump(2) + "\n", 0600);
}

Result<> Budgets::set(const Budget& budget) {
    return change_file(path_, [&]() -> Result<> {
        auto budgets = all();
        if (!budgets) return budgets.error();
        std::erase_if(*budgets, [&](const Budget& each) { return each.provider == budget.provider; });
        budgets->push_back(budget);
        return save(*budgets);
    });
}

Result<> Budgets::remove(const std::string& provider) {
    return change_file(path_, [&]() -> Result<> {
        auto budgets = all();
        if (!budgets) return budgets.error();
        if (std::erase_if(*budgets, [&](const Budget& each) { return each.provider == provider; }) == 0)
            return Error{Error::Kind::not_found,
                         "there is no budget for " + (provider.empty() ? "all providers" : provider),
                         "`tnr budget show` shows those there are"};
        return save(*budgets);
    });
}

std::vector<BudgetUse> uses_of(const std::vector<Budget>& budgets, const std::vector<Sighting>& sightings,
                               const std::vector<PoolLedger>& ledgers, int64_t now) {
    std::vector<BudgetUse> uses;
    for (const auto& budget : budgets) {
        const Cost cost = cost_within(budget, sightings, ledgers, now);
        const bool partial = cost.partial || cost.hours_unknown > 0;
        if (!budget.currency.empty() || cost.amounts.empty())
            uses.push_back({budget, budget.currency, cost.in(budget.currency), partial});
        else
            for (const auto& [currency, spent] : cost.amounts) uses.push_back({budget, currency, spent, partial});
    }
    return uses;
}

std::optional<int64_t> ledgers_since(const std::vector<Budget>& budgets, int64_t now) {
    std::optional<int64_t> since;
    for (const auto& budget : budgets)
        if (budget.provider.empty() || is_pool(budget.provider))
            since = std::min(since.value_or(now), begin_of(budget.period, now));
    return since;
}

std::vector<PoolLedger> ledgers_for(Session& session, const std::vector<Budget>& budgets, int64_t now) {
    const auto since = ledgers_since(budgets, now);
    if (!since) return {};
    ui::Progress progress(session.screen());
    progress.begin("asking the pools what was used", asking_patience);
    auto ledgers = ask_pool_ledgers(session, *since);
    progress.end();
    return ledgers;
}

std::string use_text(const BudgetUse& use) {
    const Budget& budget = use.budget;
    auto money = [&](double amount) {
        return use.currency.empty() ? std::to_string(std::lround(amount)) : money_text(use.currency, amount);
    };
    return (budget.provider.empty() ? "all together" : budget.provider) + ": " + money(use.spent) +
           (use.partial ? " + unknown" : "") + " of " + money(budget.amount) +
           (budget.period == "day" ? " today" : " this month") + " (" +
           std::to_string(static_cast<long>(use.share() * 100)) + " %)";
}

Result<> check_budget(Session& session, const std::string& provider, const std::string& pool, bool over_budget) {
    auto budgets = session.budgets().all();
    if (!budgets) return budgets.error();
    if (budgets->empty()) return Ok{};
    auto history = session.history().all();
    if (!history) return history.error();
    std::erase_if(*budgets, [&](const Budget& budget) { return !is_about(budget, provider, pool); });
    const int64_t now = ui::seconds_of(session.now()).value_or(0);
    const auto ledgers = ledgers_for(session, *budgets, now);
    for (const auto& use : uses_of(*budgets, history->sightings, ledgers, now)) {
        if (use.share() >= 1 && !over_budget)
            return Error{
                Error::Kind::usage, "the budget is used up: " + use_text(use),
                "`--over-budget` starts it all the same; `tnr budget set` changes it, `tnr billing` shows what for"};
        if (use.share() >= budget_warning_share)
            session.err << session.err_paint.doubtful("warning:")
                        << " the budget is nearly used up, or more: " << use_text(use) << "\n";
        else if (use.partial)
            session.err << session.err_paint.doubtful("warning:")
                        << " how much of the budget is used is not wholly known: " << use_text(use) << "\n";
    }
    return Ok{};
}

}  // namespace tnr::cli
