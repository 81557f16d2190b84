// `tnr status`: the user's machines as their providers see them now, and the pools' GPUs.
//
// A provider or pool that does not answer must not hide the rest, so it becomes a line of its own.
#include "cli/commands/status.hpp"

#include <map>

#include "api_client/base/interrupt.hpp"
#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"
#include "cli/ui/table.hpp"
#include "cli/ui/text.hpp"

namespace tnr::cli {
namespace {

using Json = nlohmann::json;

struct Row {
    Record record;
    std::optional<Machine> machine;
    std::string state, hint;
};

struct PoolView {
    std::string address;
    std::vector<GpuType> types;
    bool reachable = true;
};

struct View {
    std::vector<Row> machines;
    std::vector<PoolView> pools;
    std::vector<Trouble> troubles;  // providers and pools that did not answer, records that cannot be read
};

std::string where(const std::optional<Machine>& machine) {
    if (!machine || machine->address.empty()) return "";
    return machine->address + (machine->ssh_port == 22 ? "" : ":" + std::to_string(machine->ssh_port));
}

std::string gpu_text(const std::string& type, int count) {
    return count > 1 ? type + ":" + std::to_string(count) : type;
}

Row row_of(const Record& record, const std::optional<Machine>& machine) {
    const std::string& name = record.name;
    Row row{record, machine, machine ? to_string(machine->state) : "gone", ""};
    if (!machine && record.step < Step::ordered) {
        row.state = "not created";
        row.hint =
            "'" + name + "' is not made yet: `tnr start " + name + "` continues, `tnr delete " + name + "` forgets it";
    } else if (!machine) {
        row.hint = "'" + name + "' was deleted outside tnr: `tnr delete " + name + "` forgets it, `tnr start " + name +
                   "` makes it anew";
    } else if (record.step >= Step::installed && !record.has_its_gpu()) {
        row.hint = "'" + name + "' still has " + gpu_text(record.has_gpu, record.has_count) + ": `tnr start " + name +
                   "` gives it " + gpu_text(record.gpu, record.count);
    } else if (machine->state == MachineState::running && record.step != Step::proven) {
        row.hint = "'" + name + "' is not set up yet: `tnr start " + name + "` continues";
    }
    return row;
}

// What a provider has that we do not know: it may cost money, so it is shown.
Row stranger(const Machine& machine, const std::string& provider) {
    Record none;
    none.name = machine.name;
    none.provider = provider;
    none.count = 0;
    return {none, machine, to_string(machine.state),
            "'" + machine.name + "' was made by another computer or its record is lost: `tnr delete " + machine.name +
                " --provider " + provider + "` removes it"};
}

void add_provider(Session& session, const std::string& name, const std::vector<Record>& records, View& view) {
    auto provider = session.provider(name);
    auto machines = provider ? (*provider)->machines() : Result<std::vector<Machine>>{provider.error()};
    if (!machines && (!records.empty() || machines.error().kind != Error::Kind::auth))
        view.troubles.push_back({name, machines.error()});
    std::map<std::string, Machine> by_name;
    if (machines)
        for (auto& machine : *machines)
            if (machine.state != MachineState::gone) by_name[machine.name] = machine;
    for (const auto& record : records) {
        auto found = by_name.find(record.name);
        auto machine = found == by_name.end() ? std::nullopt : std::optional<Machine>{found->second};
        view.machines.push_back(machines ? row_of(record, machine) : Row{record, std::nullopt, "unknown", ""});
        if (found != by_name.end()) by_name.erase(found);
    }
    for (const auto& [machine_name, machine] : by_name) view.machines.push_back(stranger(machine, name));
}

void add_pool(Session& session, const PoolLogin& login, View& view) {
    auto pool = session.pool(login);
    auto types = pool ? (*pool)->types() : Result<std::vector<GpuType>>{pool.error()};
    view.pools.push_back({login.address, types ? *types : std::vector<GpuType>{}, static_cast<bool>(types)});
    if (!types) view.troubles.push_back({login.address, types.error()});
}

View look_around(Session& session) {
    View view;
    ui::Progress progress(session.screen());
    auto known = session.records().all();
    for (const auto& damaged : known.damaged) view.troubles.push_back({damaged.name, damaged.error});
    std::map<std::string, std::vector<Record>> by_provider;
    for (const auto& name : session.provider_names) by_provider[name];
    for (const auto& record : known.records) by_provider[record.provider].push_back(record);
    for (auto& [name, list] : by_provider) {
        progress.begin("asking provider " + name, asking_patience);
        add_provider(session, name, list, view);
    }
    progress.end();
    auto logins = session.logins().all();
    if (!logins) view.troubles.push_back({"pool.json", logins.error()});
    for (const auto& login : logins ? *logins : std::vector<PoolLogin>{}) {
        progress.begin("asking the pool at " + login.address, asking_patience);
        add_pool(session, login, view);
        if (view.pools.back().reachable) progress.end();
    }
    return view;
}

Json to_json(const View& view) {
    Json machines = Json::array(), pools = Json::array();
    for (const auto& row : view.machines)
        machines.push_back(machine_json(row.record, row.machine, row.state, row.hint));
    for (const auto& pool : view.pools) {
        Json types = Json::array();
        for (const auto& type : pool.types)
            types.push_back(
                {{"name", type.name}, {"total", type.total}, {"free", type.free}, {"memory_bytes", type.memory_bytes}});
        pools.push_back({{"address", pool.address}, {"reachable", pool.reachable}, {"types", types}});
    }
    return {{"machines", machines}, {"pools", pools}};
}

std::string painted(const ui::Paint& paint, const Row& row) {
    bool unready =
        row.machine && row.machine->state == MachineState::running && !row.hint.empty() && !row.record.pool.empty();
    if (unready) return paint.doubtful(row.state + ", not ready");
    if (row.state == "running") return paint.good(row.state);
    return row.state == "gone" || row.state == "unknown" ? paint.bad(row.state) : row.state;
}

void print_machines(Session& session, const View& view) {
    if (view.machines.empty()) {
        session.out << "No machines. `tnr start NAME --gpu TYPE` makes one.\n";
        return;
    }
    std::vector<std::vector<std::string>> rows = {{"NAME", "STATE", "PROVIDER", "GPU", "ADDRESS", "AGE", "COST"}};
    for (const auto& row : view.machines) {
        const Record& record = row.record;
        bool has = !record.has_gpu.empty();
        rows.push_back({record.name, painted(session.out_paint, row), record.provider,
                        has ? gpu_text(record.has_gpu, record.has_count) : gpu_text(record.gpu, record.count),
                        where(row.machine), ui::age(record.created, session.now()),
                        row.machine ? price_text(row.machine->price) : ""});
    }
    ui::print_table(session.out, rows, session.out_paint);
    for (const auto& row : view.machines)
        if (!row.hint.empty()) session.err << session.err_paint.strong("hint:") << " " << row.hint << "\n";
}

void print_pools(Session& session, const View& view) {
    for (const auto& pool : view.pools) {
        session.out << "\nPool " << pool.address << (pool.reachable ? "" : ": not reachable") << "\n";
        if (pool.types.empty()) continue;
        std::vector<std::vector<std::string>> rows = {{"GPU", "FREE", "OF", "MEMORY"}};
        for (const auto& type : pool.types)
            rows.push_back({type.name, std::to_string(type.free), std::to_string(type.total),
                            ui::bytes_text(static_cast<double>(type.memory_bytes))});
        ui::print_table(session.out, rows, session.out_paint);
    }
}

}  // namespace

Result<> status(Session& session) {
    View view = look_around(session);
    if (interrupt::interrupted()) return interrupt::error();
    if (session.json) {
        print_document(session, "status", to_json(view), view.troubles);
        return Ok{};
    }
    print_machines(session, view);
    print_pools(session, view);
    for (const auto& trouble : view.troubles) tell_error(session, trouble.error);
    return Ok{};
}

void add_status(Grammar& tnr, Session& session) {
    auto command = tnr.command("status", "Show your machines and the pool's GPUs");
    command.footer(
        "Asks the providers, so it also shows what was made or deleted outside tnr.\n\n"
        "Examples:\n  tnr status\n  tnr status --json | jq '.machines[].name'");
    command.run([&session] { session.result = status(session); });
}

}  // namespace tnr::cli
