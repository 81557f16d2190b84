// See overview.hpp.
#include "cli/overview.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "api_client/base/files.hpp"
#include "api_client/base/text.hpp"
#include "cli/own_gpu.hpp"
#include "cli/same_pool.hpp"
#include "cli/setup.hpp"
#include "cli/side_by_side.hpp"
#include "cli/timers.hpp"
#include "cli/ui/text.hpp"
#include "cli/ui/time.hpp"

namespace tnr::cli {
namespace {

// One provider, what we know of it, and what it says.
struct AskedCloud {
    std::string name;
    std::vector<Record> records;
    std::unique_ptr<Provider> provider = {};
    Result<std::vector<Machine>> machines = std::vector<Machine>{};
    std::vector<Trouble> troubles = {};  // with machines whose time is over
};

struct AskedPool {
    AskedLogin login;
    Result<std::vector<GpuType>> types = std::vector<GpuType>{};
    Result<std::vector<GpuClaim>> claims = std::vector<GpuClaim>{};
};

MachineView view_of(Record record, const std::optional<Machine>& machine) {
    if (machine) take_own_gpu(record, *machine);
    const std::string& name = record.name;
    MachineView view{record, machine, machine ? to_string(machine->state) : "gone", ""};
    if (!machine && record.step < Step::ordered) {
        view.state = "not created";
        view.hint =
            "'" + name + "' is not made yet: `tnr start " + name + "` continues, `tnr delete " + name + "` forgets it";
    } else if (!machine) {
        view.hint = "'" + name + "' was deleted outside tnr: `tnr delete " + name + "` forgets it, `tnr start " + name +
                    "` makes it anew";
    } else if (record.step >= Step::installed && !record.has_its_gpu()) {
        view.hint = "'" + name + "' still has " + gpu_text(record.has_gpu, record.has_count) + ": `tnr start " + name +
                    "` gives it " + gpu_text(record.gpu, record.count);
    } else if (machine->state == MachineState::running && (record.step != Step::proven || wants_setup(record))) {
        view.hint = "'" + name + "' is not set up yet: `tnr start " + name + "` continues";
    }
    return view;
}

// A machine's name that is none of ours may be as long as a reply.
constexpr size_t foreign_columns_max = 100;

// What a provider has that we do not know: it may cost money, so it is shown.
MachineView stranger(const Machine& machine, const std::string& provider) {
    Record none;
    none.name = machine.name;
    none.provider = provider;
    none.count = 0;
    take_own_gpu(none, machine);
    const std::string number = machine.foreign ? number_in(machine.name) : "";
    if (!number.empty())
        return {none, machine, to_string(machine.state),
                "'" + machine.name + "' is instance " + number + ", which " + provider +
                    "'s own tool has made: `tnr start " + number + "` takes it over, `tnr delete " + number +
                    "` removes it"};
    // A name that tnr would not have given is not made part of a command.
    const std::string way_out =
        check_machine_name(machine.name)
            ? "`tnr delete " + machine.name + " --provider " + provider + "` removes it"
            : "its name is none of tnr's; remove " + machine.id + " with the provider's own tools";
    return {none, machine, to_string(machine.state),
            "'" + ui::cut(ui::plain(machine.name, "\n\t"), foreign_columns_max) +
                "' was made by another computer or its record is lost: " + way_out};
}

// Whom to ask: those of the machines that are named, or everybody.
std::vector<AskedCloud> providers_to_ask(Session& session, const std::vector<Record>& records, const Scope& scope) {
    auto named = [&](const Record& record) {
        return std::find(scope.names.begin(), scope.names.end(), record.name) != scope.names.end();
    };
    const bool all_known =
        !scope.names.empty() && std::count_if(records.begin(), records.end(), named) == std::ssize(scope.names);
    std::map<std::string, std::vector<Record>> by_provider;
    if (!all_known)
        for (const auto& name : session.provider_names) by_provider[name];
    for (const auto& record : records)
        if (!all_known || named(record)) by_provider[record.provider];
    for (const auto& record : records)
        if (by_provider.count(record.provider)) by_provider[record.provider].push_back(record);
    std::vector<AskedCloud> all;
    for (auto& [name, list] : by_provider) all.push_back({name, std::move(list)});
    return all;
}

// What machines cannot do themselves when their time is over.
void obey_timers(AskedCloud& asked, const std::string& now) {
    if (!asked.machines) return;
    for (auto& machine : *asked.machines)
        for (const auto& record : asked.records) {
            if (record.name != machine.name) continue;
            auto ended = end_overdue(record, *asked.provider, machine, now);
            if (!ended) asked.troubles.push_back({record.name, ended.error()});
        }
}

std::vector<std::function<void()>> questions_to(Session& session, std::vector<AskedCloud>& all) {
    std::vector<std::function<void()>> questions;
    for (auto& asked : all) {
        auto provider = open_to_ask(session, asked.name);
        if (!provider) {
            asked.machines = provider.error();
            continue;
        }
        asked.provider = std::move(*provider);
        questions.push_back([&asked, now = session.now()] {
            asked.machines = asked.provider->machines();
            obey_timers(asked, now);
        });
    }
    return questions;
}

std::vector<AskedPool> pools_to_ask(Session& session, std::vector<Trouble>& troubles) {
    std::vector<AskedPool> all;
    auto logins = session.logins().all();
    if (!logins) troubles.push_back({"pool.json", logins.error()});
    if (logins)
        for (auto& login : open_logins(session, *logins)) all.push_back({std::move(login)});
    return all;
}

std::vector<std::function<void()>> questions_to(std::vector<AskedPool>& all) {
    std::vector<std::function<void()>> questions;
    for (auto& asked : all)
        questions.push_back([&asked] {
            asked.types = asked.login.ask([](Pool& pool) { return pool.types(); });
            if (asked.types) asked.claims = (*asked.login.pool)->claims();
        });
    return questions;
}

void add_machines(const AskedCloud& asked, Overview& overview) {
    const auto& machines = asked.machines;
    // Where one is not signed in there is nothing to ask; one that refuses us may have machines that cost.
    const bool signed_in = asked.provider || (!machines && machines.error().kind != Error::Kind::auth);
    if (!machines && (!asked.records.empty() || signed_in)) {
        Error error = machines.error();
        if (error.what.find(asked.name) == std::string::npos) error.what = asked.name + ": " + error.what;
        overview.troubles.push_back({asked.name, error});
    }
    overview.troubles.insert(overview.troubles.end(), asked.troubles.begin(), asked.troubles.end());
    std::map<std::string, Machine> by_name;
    if (machines)
        for (const auto& machine : *machines)
            if (machine.state != MachineState::gone) by_name[machine.name] = machine;
    for (const auto& record : asked.records) {
        auto found = by_name.find(record.name);
        auto machine = found == by_name.end() ? std::nullopt : std::optional<Machine>{found->second};
        overview.machines.push_back(machines ? view_of(record, machine)
                                             : MachineView{record, std::nullopt, "unknown", ""});
        if (found != by_name.end()) by_name.erase(found);
    }
    for (const auto& [name, machine] : by_name) overview.machines.push_back(stranger(machine, asked.name));
}

std::vector<PoolView> pool_views(Session& session, std::vector<AskedPool> all, std::vector<Trouble>& troubles) {
    std::vector<AskedLogin> logins;
    std::vector<PoolView> views;
    for (auto& asked : all) {
        PoolView view{{asked.login.login.address}};
        if (!asked.types) view.error = asked.types.error();
        if (asked.types) view.types = *asked.types;
        if (asked.claims) view.claims = *asked.claims;  // a pool that does not tell us is no trouble
        views.push_back(std::move(view));
        logins.push_back(std::move(asked.login));
    }
    views = one_of_each_pool(session, logins, std::move(views));
    for (const auto& view : views)
        if (view.error) troubles.push_back({view.address, *view.error});
    return views;
}

// Only a cache: that it cannot be written is no matter.
void keep_type_names(const Session& session, const std::vector<PoolView>& pools) {
    std::set<std::string> names;
    for (const auto& pool : pools)
        for (const auto& type : pool.types) names.insert(type.name);
    std::string text;
    for (const auto& name : names) text += name + "\n";
    auto before = read_file(seen_gpu_types_path(session));
    if (!names.empty() && (!before || *before != text)) (void)write_file(seen_gpu_types_path(session), text);
}

// What was seen now of those who answered; what is no longer there is gone.
std::vector<Sighting> sightings_of(const std::string& now, const std::vector<AskedCloud>& all, const Overview& overview,
                                   const std::vector<Sighting>& before) {
    std::vector<Sighting> seen;
    std::set<std::string> answered;
    std::set<std::pair<std::string, std::string>> there;
    for (const auto& asked : all)
        if (asked.machines) answered.insert(asked.name);
    for (const auto& view : overview.machines)
        if (view.machine) {
            seen.push_back(sighting_of(now, view.record.provider, *view.machine, view.record));
            there.insert({view.record.provider, view.machine->id});
        }
    for (auto& [machine, last] : last_of_each(before)) {
        if (last.state == MachineState::gone || !answered.count(machine.first) || there.count(machine)) continue;
        seen.push_back(last);
        seen.back().at = now;
        seen.back().state = MachineState::gone;
    }
    return seen;
}

// When the last unbroken time of running began.
std::string running_since(const std::vector<Sighting>& sightings, const std::string& provider, const std::string& id) {
    std::string since;
    for (const auto& seen : sightings) {
        if (seen.provider != provider || seen.id != id) continue;
        const bool up = seen.state == MachineState::running || seen.state == MachineState::starting;
        if (!up) since.clear();
        if (up && (since.empty() || seen.at < since)) since = seen.at;  // earlier: a clock that had been ahead
    }
    return since;
}

void add_gpu_price(const PoolView& pool, MachineView& view) {
    const Record& record = view.record;
    const bool has = !record.has_gpu.empty();
    for (const auto& type : pool.types) {
        if (type.name != (has ? record.has_gpu : record.gpu) || !type.per_hour) continue;
        view.facts.gpu_per_hour = *type.per_hour * (has ? record.has_count : record.count);
        view.facts.gpu_currency = type.currency;
    }
}

// Their history by machine, so that 200 machines are 200 short looks.
void add_facts(const std::string& now, const std::vector<Sighting>& sightings, Overview& overview) {
    std::map<std::pair<std::string, std::string>, std::vector<Sighting>> by_machine;
    for (const auto& seen : sightings) by_machine[{seen.provider, seen.id}].push_back(seen);
    for (auto& view : overview.machines) {
        const std::string id = view.machine ? view.machine->id : view.record.id;
        const auto& own = by_machine[{view.record.provider, id}];
        if (!own.empty()) view.facts.cost = cost_of(own, view.record.provider, id, ui::seconds_of(now).value_or(0));
        if (view.machine && view.machine->state == MachineState::running)
            view.facts.running_since = running_since(own, view.record.provider, id);
        for (const auto& pool : overview.pools) {
            if (pool.error || !pool.is_at(view.record.pool)) continue;
            view.facts.gpu_busy = std::any_of(pool.claims.begin(), pool.claims.end(), [&](const GpuClaim& claim) {
                return claim.machine == view.record.name && claim.sessions > 0;
            });
            add_gpu_price(pool, view);
        }
    }
}

void remember(Session& session, const std::vector<AskedCloud>& asked, Overview& overview) {
    const std::string now = session.now();
    auto before = session.history().all();
    auto noted = before ? session.history().note(sightings_of(now, asked, overview, before->sightings))
                        : Result<>{before.error()};
    if (!noted) overview.troubles.push_back({"", not_written_down("machines cost", noted.error())});
    auto after = session.history().all();
    add_facts(now, after ? after->sightings : std::vector<Sighting>{}, overview);
}

void keep_named(const Scope& scope, const std::vector<std::string>& known, Overview& overview) {
    if (scope.names.empty()) return;
    std::erase_if(overview.machines, [&](const MachineView& view) {
        return std::find(scope.names.begin(), scope.names.end(), view.record.name) == scope.names.end();
    });
    for (const auto& name : scope.names) {
        auto is_it = [&](const auto& each) { return each.record.name == name; };
        if (std::any_of(overview.machines.begin(), overview.machines.end(), is_it)) continue;
        overview.troubles.push_back({name, Error{Error::Kind::not_found, "there is no machine called '" + name + "'",
                                                 did_you_mean(name, known) + "`tnr status` shows yours"}});
    }
}

}  // namespace

std::string seen_gpu_types_path(const Session& session) {
    return session.cache_folder + "/gpu_types";
}

std::string gpu_text(const std::string& type, int count) {
    return count > 1 ? type + ":" + std::to_string(count) : type;
}

nlohmann::json gpu_types_json(const std::vector<GpuType>& types) {
    auto list = nlohmann::json::array();
    for (const auto& type : types)
        list.push_back({{"name", type.name},
                        {"total", type.total},
                        {"free", type.free},
                        {"memory_bytes", type.memory_bytes},
                        {"currency", or_null(type.currency)},
                        {"per_hour", optional_json(type.per_hour)}});
    return list;
}

nlohmann::json claims_json(const std::vector<GpuClaim>& claims) {
    auto list = nlohmann::json::array();
    for (const auto& claim : claims)
        list.push_back({{"machine", claim.machine},
                        {"gpu", gpu_json(claim.gpu, claim.count)},
                        {"since", claim.since},
                        {"programs", claim.sessions}});
    return list;
}

std::string holders_of(const GpuType& type, const std::vector<GpuClaim>& claims) {
    std::string text;
    int ours = 0;
    for (const auto& claim : claims)
        if (claim.gpu == type.name) {
            text += (text.empty() ? "" : ", ") + claim.machine;
            if (claim.count > 1) text += " (" + std::to_string(claim.count) + ")";
            ours += claim.count;
        }
    const int others = type.total - type.free - ours;
    if (others > 0)
        text += (text.empty() ? "" : ", ") + std::string("others or not ready (") + std::to_string(others) + ")";
    return text;
}

std::vector<PoolView> look_at_pools(Session& session, std::vector<Trouble>& troubles) {
    ui::Progress progress(session.screen());
    progress.begin("asking the pools", asking_patience);
    auto pools = pools_to_ask(session, troubles);
    side_by_side(session, questions_to(pools));
    progress.end();
    auto views = pool_views(session, std::move(pools), troubles);
    keep_type_names(session, views);
    return views;
}

Overview look_around(Session& session, const Scope& scope) {
    Overview overview;
    std::optional<ui::Progress> progress;
    if (!scope.quiet) progress.emplace(session.screen()).begin("asking clouds and pools", asking_patience);
    auto known = session.records().all();
    for (const auto& damaged : known.damaged) overview.troubles.push_back({damaged.name, damaged.error});
    auto clouds = providers_to_ask(session, known.records, scope);
    std::vector<Trouble> pool_troubles;
    auto pools = pools_to_ask(session, pool_troubles);
    auto questions = questions_to(session, clouds);
    for (auto& question : questions_to(pools)) questions.push_back(std::move(question));
    side_by_side(session, questions);
    if (progress) progress->end();
    for (const auto& asked : clouds) add_machines(asked, overview);
    for (const auto& trouble : pool_troubles) overview.troubles.push_back(trouble);
    overview.pools = pool_views(session, std::move(pools), overview.troubles);
    keep_type_names(session, overview.pools);
    remember(session, clouds, overview);
    std::vector<std::string> names;
    for (const auto& view : overview.machines) names.push_back(view.record.name);
    keep_named(scope, names, overview);
    return overview;
}

}  // namespace tnr::cli
