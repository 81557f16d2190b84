// `tnr status`: the user's machines as their providers see them now, and the pools' GPUs.
//
// A provider or pool that does not answer must not hide the rest, so it becomes a line of its own.
#include "cli/commands/status.hpp"

#include <map>

#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"
#include "cli/ui/table.hpp"

namespace tnr::cli {
namespace {

using Json = nlohmann::json;

struct Row {
    std::string name, state, provider, gpu, address, since, hint;
    int count = 0;
    Price price = {};
};

struct PoolView {
    std::string address;
    std::vector<GpuType> types;
    std::optional<Error> error;
};

struct View {
    std::vector<Row> machines;
    std::vector<PoolView> pools;
    std::vector<Error> errors;  // providers that did not answer
};

std::string where(const Machine& machine) {
    if (machine.address.empty()) return "";
    return machine.address + (machine.ssh_port == 22 ? "" : ":" + std::to_string(machine.ssh_port));
}

Row row_of(const Record& record) {
    return {record.name, "", record.provider, record.gpu, "", record.created, "", record.count, {}};
}

void fill(Row& row, const Record& record, const std::optional<Machine>& machine) {
    if (!machine) {
        bool begun = record.step < Step::ordered;
        row.state = begun ? "not created yet" : "gone";
        row.hint = begun ? "`tnr start " + record.name + "` continues, `tnr delete " + record.name + "` forgets it"
                         : "'" + record.name + "' was deleted outside tnr: `tnr delete " + record.name +
                               "` forgets it, `tnr start " + record.name + "` makes it anew";
        return;
    }
    row.state = to_string(machine->state);
    row.address = where(*machine);
    row.price = machine->price;
    if (machine->state == MachineState::running && record.step != Step::proven) {
        row.state += ", not ready";
        row.hint = "'" + record.name + "' is not set up yet: `tnr start " + record.name + "` continues";
    }
}

// What a provider has that we do not know: it may cost money, so it is shown.
Row stranger(const Machine& machine, const std::string& provider) {
    return {machine.name,
            to_string(machine.state),
            provider,
            "",
            where(machine),
            "",
            "'" + machine.name + "' was made by another computer or its record is lost: `tnr delete " + machine.name +
                " --provider " + provider + "` removes it",
            0,
            machine.price};
}

void add_provider(Session& session, const std::string& name, std::vector<Record> records, View& view) {
    auto provider = session.provider(name);
    auto machines = provider ? (*provider)->machines() : Result<std::vector<Machine>>{provider.error()};
    if (!machines && !records.empty()) view.errors.push_back(machines.error());
    std::map<std::string, Machine> by_name;
    if (machines)
        for (auto& machine : *machines)
            if (machine.state != MachineState::gone) by_name[machine.name] = machine;
    for (const auto& record : records) {
        Row row = row_of(record);
        auto found = by_name.find(record.name);
        if (!machines)
            row.state = "unknown";
        else
            fill(row, record, found == by_name.end() ? std::nullopt : std::optional<Machine>{found->second});
        if (found != by_name.end()) by_name.erase(found);
        view.machines.push_back(row);
    }
    for (const auto& [machine_name, machine] : by_name) view.machines.push_back(stranger(machine, name));
}

PoolView look_at(Session& session, const PoolLogin& login) {
    PoolView view{login.address, {}, {}};
    auto pool = session.pool(login);
    auto types = pool ? (*pool)->types() : Result<std::vector<GpuType>>{pool.error()};
    if (types)
        view.types = *types;
    else
        view.error = types.error();
    return view;
}

Result<View> look_around(Session& session) {
    View view;
    auto records = session.records().all();
    if (!records) return records.error();
    std::map<std::string, std::vector<Record>> by_provider;
    for (const auto& name : session.provider_names) by_provider[name];
    for (const auto& record : *records) by_provider[record.provider].push_back(record);
    for (auto& [name, list] : by_provider) add_provider(session, name, list, view);
    auto logins = session.logins().all();
    if (!logins) return logins.error();
    for (const auto& login : *logins) view.pools.push_back(look_at(session, login));
    return view;
}

void print_as_json(Session& session, const View& view) {
    Json document{{"machines", Json::array()}, {"pools", Json::array()}, {"errors", Json::array()}};
    for (const auto& row : view.machines)
        document["machines"].push_back({{"name", row.name},
                                        {"state", row.state},
                                        {"provider", row.provider},
                                        {"gpu", row.gpu},
                                        {"count", row.count},
                                        {"address", row.address},
                                        {"since", row.since},
                                        {"price", price_json(row.price)},
                                        {"hint", row.hint}});
    for (const auto& pool : view.pools) {
        Json entry{{"address", pool.address}, {"types", Json::array()}};
        for (const auto& type : pool.types)
            entry["types"].push_back(
                {{"name", type.name}, {"total", type.total}, {"free", type.free}, {"memory_bytes", type.memory_bytes}});
        if (pool.error) entry["error"] = error_json(*pool.error);
        document["pools"].push_back(entry);
    }
    for (const auto& error : view.errors) document["errors"].push_back(error_json(error));
    print_json(session.out, document);
}

void print_machines(Session& session, const View& view) {
    if (view.machines.empty()) {
        session.out << "No machines. `tnr start NAME --gpu TYPE` makes one.\n";
        return;
    }
    std::vector<std::vector<std::string>> rows = {{"NAME", "STATE", "PROVIDER", "GPU", "ADDRESS", "SINCE", "COST"}};
    for (const auto& row : view.machines)
        rows.push_back({row.name, row.state, row.provider,
                        row.count > 1 ? row.gpu + ":" + std::to_string(row.count) : row.gpu, row.address, row.since,
                        price_text(row.price)});
    ui::print_table(session.out, rows);
    for (const auto& row : view.machines)
        if (!row.hint.empty()) session.err << "hint: " << row.hint << "\n";
}

void print_pools(Session& session, const View& view) {
    for (const auto& pool : view.pools) {
        session.out << "\nPool " << pool.address << (pool.error ? ": not reachable" : "") << "\n";
        if (pool.error) session.err << "tnr: " << pool.error->what << "\nhint: " << pool.error->hint << "\n";
        if (pool.types.empty()) continue;
        std::vector<std::vector<std::string>> rows = {{"GPU", "FREE", "OF", "MEMORY"}};
        for (const auto& type : pool.types)
            rows.push_back(
                {type.name, std::to_string(type.free), std::to_string(type.total), ui::bytes_text(type.memory_bytes)});
        ui::print_table(session.out, rows);
    }
}

}  // namespace

Result<> status(Session& session) {
    auto view = look_around(session);
    if (!view) return view.error();
    if (session.json) {
        print_as_json(session, *view);
        return Ok{};
    }
    print_machines(session, *view);
    print_pools(session, *view);
    for (const auto& error : view->errors) session.err << "tnr: " << error.what << "\n";
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
