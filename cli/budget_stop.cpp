// See budget_stop.hpp.
#include "cli/budget_stop.hpp"

#include <algorithm>
#include <cstdlib>

#include "cli/side_by_side.hpp"
#include "cli/timers.hpp"
#include "cli/ui/time.hpp"

namespace tnr::cli {
namespace {

// A forecast that has moved by less is not worth a connection.
constexpr int64_t forecast_tolerance_s = 3600;

// All that budgets are sums over.
struct Spending {
    std::vector<Budget> budgets;
    std::vector<Sighting> sightings;
    std::vector<PoolLedger> ledgers;
    int64_t now = 0;
};

Result<Spending> spending_of(Session& session, std::vector<Budget> budgets) {
    auto history = session.history().all();
    if (!history) return history.error();
    const int64_t now = ui::seconds_of(session.now()).value_or(0);
    auto ledgers = ledgers_for(session, budgets, now);
    return Spending{std::move(budgets), std::move(history->sightings), std::move(ledgers), now};
}

// What the machine is to know; zeros where nothing is to switch it off.
UsedUp due(const Spending& spending, const Record& record) {
    if (record.over_budget) return {};
    std::vector<Budget> own;
    for (const auto& budget : spending.budgets)
        if (is_about(budget, record.provider, record.pool)) own.push_back(budget);
    return used_up_when(own, spending.sightings, spending.ledgers, spending.now).value_or(UsedUp{});
}

bool is_now(const UsedUp& used_up, int64_t now) {
    return used_up.from <= now && now < used_up.until;
}

bool knows(const Record& record, const UsedUp& due, int64_t now) {
    const UsedUp told{record.budget_from, record.budget_until};
    if (told.until != due.until || is_now(told, now) != is_now(due, now)) return false;
    return is_now(due, now) || std::abs(told.from - due.from) < forecast_tolerance_s;
}

// A machine that runs and has what tnr brings. One with its cloud's own GPU is at a cloud that cannot stop it.
bool can_be_told(const MachineView& view) {
    return view.machine && view.machine->state == MachineState::running && !view.machine->address.empty() &&
           view.record.step >= Step::installed && !view.record.pool.empty();
}

// One machine to be told, which nobody else changes meanwhile.
struct Telling {
    MachineView* view;
    RecordLock lock;
    Record record;  // as it is to be
    std::unique_ptr<MachineAccess> access;
    Result<> told = Ok{};
};

// Nothing: it knows all already, or another tnr is at work on it, which tells it.
std::optional<Telling> telling_of(Session& session, const Spending& spending, MachineView& view) {
    if (!can_be_told(view) || knows(view.record, due(spending, view.record), spending.now)) return std::nullopt;
    auto lock = session.records().lock(view.record.name);
    if (!lock) return std::nullopt;
    auto record = session.records().find(view.record.name);
    if (!record || !*record) return std::nullopt;
    const UsedUp used_up = due(spending, **record);
    (*record)->budget_from = used_up.from;
    (*record)->budget_until = used_up.until;
    return Telling{&view, std::move(*lock), **record, session.access()};
}

void tell_all(Session& session, std::vector<Telling>& tellings) {
    if (tellings.empty()) return;
    ui::Progress progress(session.screen());
    progress.begin("telling machines of their budget", asking_patience);
    std::vector<std::function<void()>> questions;
    for (auto& each : tellings)
        questions.push_back([&each] {
            each.told = each.access->change_timers(*each.view->machine, each.record, timers_config(each.record));
        });
    side_by_side(session, questions);
    progress.end();
    for (auto& each : tellings) {
        if (each.told) each.told = session.records().save(each.record);
        if (each.told) each.view->record = each.record;
    }
}

std::string what_happens(Session& session, const MachineView& view) {
    const std::string& name = view.record.name;
    const std::string text = "'" + name + "' switches itself off when nobody has used it for " +
                             ui::duration_text(budget_idle_s(view.record));
    if (view.machine->price.billed_while_stopped) return text + ", and costs until `tnr delete " + name + "`";
    auto provider = session.provider(view.record.provider);
    const bool bills_on = provider && !(*provider)->power_off_ends_billing();
    return bills_on ? text + ", and the next `tnr status` ends its bill" : text;
}

void warn(Session& session, const std::string& words) {
    session.err << session.err_paint.doubtful("warning:") << " " << ui::plain(words) << "\n";
}

// Of the machines that run on a budget that is used up.
void tell_user(Session& session, const Spending& spending, const Overview& overview,
               const std::vector<Telling>& tellings) {
    for (const auto& use : uses_of(spending.budgets, spending.sightings, spending.ledgers, spending.now))
        if (use.share() >= 1) warn(session, "the budget is used up: " + use_text(use));
    for (const auto& view : overview.machines) {
        const Record& record = view.record;
        const bool runs = view.machine && view.machine->state == MachineState::running;
        if (!runs || !is_now(due(spending, record), spending.now)) continue;
        auto telling =
            std::find_if(tellings.begin(), tellings.end(), [&](const Telling& each) { return each.view == &view; });
        if (!can_be_told(view))
            warn(session,
                 "'" + record.name + "' cannot switch itself off: `tnr delete " + record.name + "` ends what it costs");
        else if (telling != tellings.end() && !telling->told)
            warn(session,
                 "'" + record.name + "' could not be told that its budget is used up: " + telling->told.error().what);
        else
            warn(session, what_happens(session, view));
    }
}

}  // namespace

Result<> plan_budget_stop(Session& session, Record& record) {
    auto budgets = session.budgets().all();
    if (!budgets) return budgets.error();
    std::erase_if(*budgets, [&](const Budget& each) { return !is_about(each, record.provider, record.pool); });
    record.budget_from = record.budget_until = 0;
    if (budgets->empty()) return Ok{};
    auto spending = spending_of(session, std::move(*budgets));
    if (!spending) return spending.error();
    const UsedUp used_up = due(*spending, record);
    record.budget_from = used_up.from;
    record.budget_until = used_up.until;
    return Ok{};
}

void obey_budgets(Session& session, Overview& overview) {
    auto budgets = session.budgets().all();
    const bool told_before = std::any_of(overview.machines.begin(), overview.machines.end(),
                                         [](const MachineView& view) { return view.record.budget_from > 0; });
    if (!budgets || (budgets->empty() && !told_before)) return;  // a damaged file is `tnr budget`'s to tell
    auto spending = spending_of(session, std::move(*budgets));
    if (!spending) return;
    std::vector<Telling> tellings;
    tellings.reserve(overview.machines.size());
    for (auto& view : overview.machines)
        if (auto telling = telling_of(session, *spending, view)) tellings.push_back(std::move(*telling));
    tell_all(session, tellings);
    tell_user(session, *spending, overview, tellings);
}

}  // namespace tnr::cli
