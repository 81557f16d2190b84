// Finding machines, and words that several commands use.
#include "cli/session.hpp"

#include <cmath>
#include <cstdio>

#include "api_client/base/text.hpp"
#include "cli/money/costs.hpp"
#include "cli/own_gpu.hpp"
#include "cli/ui/time.hpp"

namespace tnr::cli {
namespace {

std::vector<std::string> known_names(Session& session) {
    std::vector<std::string> names;
    for (const auto& record : session.records().all().records) names.push_back(record.name);
    return names;
}

}  // namespace

Result<std::optional<Machine>> look_up(Provider& provider, const Record& record) {
    if (!record.id.empty()) {
        auto machine = provider.machine(record.id);
        if (machine && machine->state != MachineState::gone) return std::optional<Machine>{*machine};
        if (!machine && machine.error().kind != Error::Kind::not_found) return machine.error();
        return std::optional<Machine>{};
    }
    // We were cut off after ordering it and before we heard its id: the name finds it.
    auto machines = provider.machines();
    if (!machines) return machines.error();
    for (auto& machine : *machines)
        if (machine.name == record.name && machine.state != MachineState::gone) return std::optional<Machine>{machine};
    return std::optional<Machine>{};
}

Result<std::string> this_or_only_machine(Session& session, const std::string& name) {
    if (!name.empty()) return name;
    auto names = known_names(session);
    if (names.size() == 1) return names.front();
    if (names.empty())
        return Error{Error::Kind::not_found, "there is no machine yet", "`tnr start NAME --gpu TYPE` makes one"};
    return Error{Error::Kind::usage, "say which machine", "there are " + comma_separated(names)};
}

Result<Known> find_machine(Session& session, const std::string& name) {
    if (auto good = check_machine_name(name); !good) return good.error();
    auto record = session.records().find(name);
    if (!record) return record.error();
    if (!*record && !number_in(name).empty())
        return Error{Error::Kind::not_found, "instance " + number_in(name) + " of Thunder's is not taken over yet",
                     "`tnr start " + number_in(name) + "` does so where there is one; `tnr status` shows them"};
    if (!*record)
        return Error{Error::Kind::not_found, "there is no machine called '" + name + "'",
                     did_you_mean(name, known_names(session)) + "`tnr status` shows yours; `tnr start " + name +
                         " --gpu TYPE` makes it"};
    auto provider = session.provider((*record)->provider);
    if (!provider) return provider.error();
    auto machine = look_up(**provider, **record);
    if (!machine) return machine.error();
    if (*machine) take_own_gpu(**record, **machine);
    if (*machine) return Known{**record, std::move(*provider), **machine};
    if ((*record)->step < Step::ordered)
        return Error{Error::Kind::not_found, "'" + name + "' was begun but its machine does not exist yet",
                     "`tnr start " + name + "` continues, `tnr delete " + name + "` forgets it"};
    return Error{Error::Kind::not_found,
                 "'" + name + "' no longer exists at provider " + (*record)->provider + ": it was deleted outside tnr",
                 "`tnr delete " + name + "` forgets it, `tnr start " + name + "` makes it anew"};
}

Result<Known> find_running(Session& session, const std::string& name) {
    auto known = find_machine(session, name);
    if (!known || known->machine.state == MachineState::running) return known;
    return Error{Error::Kind::remote, "'" + name + "' is " + to_string(known->machine.state) + ", not running",
                 "`tnr start " + name + "` starts it"};
}

Result<> note_machine(Session& session, const Machine& machine, const Record& record) {
    std::vector<Sighting> unwritten;
    return note_machine(session, machine, record, unwritten);
}

Result<> note_machine(Session& session, const Machine& machine, const Record& record,
                      std::vector<Sighting>& unwritten) {
    unwritten.push_back(sighting_of(session.now(), record.provider, machine, record));
    auto noted = session.history().note(unwritten);
    if (!noted) return not_written_down("'" + record.name + "' costs", noted.error());
    unwritten.clear();
    return Ok{};
}

Error not_written_down(const std::string& what, const Error& why) {
    const std::string mend = why.hint.empty() ? "" : why.hint + ". ";
    return Error{Error::Kind::internal, "what " + what + " could not be written down: " + why.what,
                 mend +
                     "Once that is mended `tnr status` writes down what is there by then; what changed before it is "
                     "missing from `tnr billing` and from budgets"};
}

// "its GPUs have cost $0.50 in 12 min"
static std::string gpu_cost_so_far(Session& session, const Record& record) {
    auto since = ui::seconds_of(record.created);
    if (record.pool.empty() || !since) return "";
    ui::Progress progress(session.screen());
    progress.begin("asking the pool what its GPUs have cost", asking_patience);
    auto cost = gpu_cost_of(ask_pool_ledger(session, record.pool, *since), record.name, *since);
    progress.end();
    if (cost.hours_gpu == 0) return cost.partial ? "what its GPUs have cost its pool does not tell" : "";
    const std::string time = ui::duration_text(std::llround(cost.hours_gpu * 3600));
    if (cost.amounts.empty() && cost.hours_unknown > 0)
        return "its GPUs were used for " + time + ", at a price that its pool does not tell";
    return "its GPUs have cost " + money_text(cost) + " in " + time;
}

std::string cost_so_far(Session& session, const Machine& machine, const Record& record) {
    auto history = session.history().all();
    if (!history) return "";
    auto now = ui::seconds_of(session.now()).value_or(0);
    auto cost = cost_of(history->sightings, record.provider, machine.id, now);
    auto seconds = static_cast<int64_t>((cost.hours_running + cost.hours_stopped) * 3600);
    const bool free = cost.amounts.empty() && cost.hours_unknown == 0;
    const std::string own = free ? "" : "it has cost " + money_text(cost) + " in " + ui::duration_text(seconds);
    const std::string gpus = gpu_cost_so_far(session, record);
    return own.empty() || gpus.empty() ? own + gpus : own + "; " + gpus;
}

std::string to_string(MachineState state) {
    switch (state) {
        case MachineState::starting:
            return "starting";
        case MachineState::running:
            return "running";
        case MachineState::stopping:
            return "stopping";
        case MachineState::stopped:
            return "stopped";
        case MachineState::gone:
            return "gone";
    }
    return "unknown";
}

std::string price_text(const std::string& currency, const std::optional<double>& amount, const std::string& per) {
    if (!amount) return "price unknown";
    if (*amount == 0) return "free";
    char number[32];
    std::snprintf(number, sizeof number, "%.4g", *amount);
    return currency == "USD" ? std::string("$") + number + per : number + (" " + currency) + per;
}

std::string price_text(const Price& price) {
    return price_text(price.currency, price.running());
}

}  // namespace tnr::cli
