// How much may be spent: ~/.config/tnr/budgets.json. A budget is for one provider's machines, for one pool's GPUs, or for
// all of it, by the day or the month (UTC), in one currency or, where none was said, in each by itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/money/costs.hpp"

namespace tnr::cli {

struct Session;

struct Budget {
    std::string provider = {};  // or a pool's address; empty: all of them
    double amount = 0;
    std::string currency = {};  // empty: any, each by itself
    std::string period = "month";
};
// "50/month", "50EUR/month", "$2/day". An Error of kind usage says how one looks.
Result<Budget> parse_budget(const std::string& text);

class Budgets {
public:
    explicit Budgets(std::string path) : path_(std::move(path)) {}
    Result<std::vector<Budget>> all() const;
    Result<> set(const Budget& budget);  // instead of the one for that provider
    Result<> remove(const std::string& provider);

private:
    Result<> save(const std::vector<Budget>& budgets);
    std::string path_;
};

// What of a budget is used in the period that `now` is in, in each currency it is about.
struct BudgetUse {
    Budget budget;
    std::string currency;
    double spent = 0;
    bool partial = false;  // and more, which nobody can tell: at unknown prices, or at a pool that does not answer
    double share() const { return budget.amount > 0 ? spent / budget.amount : spent > 0 ? 2 : 1; }
};
std::vector<BudgetUse> uses_of(const std::vector<Budget>& budgets, const std::vector<Sighting>& sightings,
                               const std::vector<PoolLedger>& ledgers, int64_t now);
// Since when the ledgers must tell for that; nothing where no budget counts GPU time.
std::optional<int64_t> ledgers_since(const std::vector<Budget>& budgets, int64_t now);
// Asks the pools for them.
std::vector<PoolLedger> ledgers_for(Session& session, const std::vector<Budget>& budgets, int64_t now);
// "hetzner: 41.20 EUR of 50.00 EUR this month (82 %)"; "41.20 EUR + unknown" where it is partial.
std::string use_text(const BudgetUse& use);

// Whether it is about a machine at this provider with GPUs of this pool; each may be empty.
bool is_about(const Budget& budget, const std::string& provider, const std::string& pool);
// When the first of these budgets is used up should all machines that run now run on, and until when it then is. GPU time
// is not foreseen: a machine that idles uses none. Nothing: not within their periods.
struct UsedUp {
    int64_t from = 0, until = 0;
};
std::optional<UsedUp> used_up_when(const std::vector<Budget>& budgets, const std::vector<Sighting>& sightings,
                                   const std::vector<PoolLedger>& ledgers, int64_t now);

// From here on a word is said.
inline constexpr double budget_warning_share = 0.8;
// Whether a machine may be started at this provider (empty: a program on this computer), with GPUs of this pool (empty:
// its cloud's own): an Error of kind usage when a budget is used up, unless `over_budget`. Warns before that, and when
// nobody can tell.
Result<> check_budget(Session& session, const std::string& provider, const std::string& pool, bool over_budget);

}  // namespace tnr::cli
