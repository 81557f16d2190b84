// `tnr status`: the user's machines as their providers see them now, and the pools' GPUs.
//
// A provider or pool that does not answer must not hide the rest, so it becomes a line of its own.
#include "cli/commands/status.hpp"

#include <sstream>

#include "api_client/base/interrupt.hpp"
#include "cli/budget_stop.hpp"
#include "cli/commands/commands.hpp"
#include "cli/gpu_costs.hpp"
#include "cli/idle_times.hpp"
#include "cli/json_out.hpp"
#include "cli/live.hpp"
#include "cli/overview.hpp"
#include "cli/ui/table.hpp"
#include "cli/ui/text.hpp"
#include "cli/ui/time.hpp"

namespace tnr::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t hints_max = 5;  // more would push the machines themselves off the screen
constexpr int watch_ms = 2000;   // clouds count requests: 1,800 an hour are within every limit we know

const std::vector<Column> status_columns = {
    {"name"},       {"state"},      {"provider"}, {"region"},         {"gpu"},        {"busy"},       {"address"},
    {"up"},         {"price"},      {"cost"},     {"gpu-cost", true}, {"idle", true}, {"size", true}, {"age", true},
    {"pool", true}, {"tags", true}, {"id", true}};

std::string where(const std::optional<Machine>& machine) {
    if (!machine || machine->address.empty()) return "";
    return machine->address + (machine->ssh_port == 22 ? "" : ":" + std::to_string(machine->ssh_port));
}

Json to_json(const Overview& overview) {
    Json machines = Json::array(), pools = Json::array();
    for (const auto& view : overview.machines)
        machines.push_back(machine_json(view.record, view.machine, view.state, view.hint, view.facts));
    for (const auto& pool : overview.pools)
        pools.push_back({{"address", pool.address},
                         {"also", pool.also},
                         {"reachable", !pool.error},
                         {"types", gpu_types_json(pool.types)},
                         {"claims", claims_json(pool.claims)}});
    return {{"machines", machines}, {"pools", pools}};
}

std::string painted(const ui::Paint& paint, const MachineView& view) {
    bool unready =
        view.machine && view.machine->state == MachineState::running && !view.hint.empty() && !view.record.pool.empty();
    if (unready) return paint.doubtful(view.state + ", not ready");
    if (view.state == "running") return paint.good(view.state);
    return view.state == "gone" || view.state == "unknown" ? paint.bad(view.state) : view.state;
}

std::string busy_text(const MachineView& view) {
    if (!view.facts.gpu_busy) return "";
    return *view.facts.gpu_busy ? "busy" : "idle";
}

// The machine's, and what its GPUs add while programs use them.
std::string whole_price_text(const MachineView& view) {
    std::string text = view.machine ? price_text(view.machine->price) : "";
    if (view.facts.gpu_per_hour)
        text += (text.empty() ? "" : " + ") + price_text(view.facts.gpu_currency, view.facts.gpu_per_hour) + " GPU";
    return text;
}

std::string tags_text(const std::map<std::string, std::string>& tags) {
    std::string text;
    for (const auto& [key, value] : tags) {
        if (!text.empty()) text += ',';
        text.append(key).append("=").append(value);
    }
    return text;
}

Row row_of(const Session& session, const MachineView& view) {
    const Record& record = view.record;
    const auto& machine = view.machine;
    const std::string now = session.now();
    auto since = ui::seconds_of(view.facts.running_since), is = ui::seconds_of(now);
    bool has = !record.has_gpu.empty();
    return {record.name,
            painted(session.out_paint, view),
            record.provider,
            machine ? machine->region : record.region,
            has ? gpu_text(record.has_gpu, record.has_count) : gpu_text(record.gpu, record.count),
            busy_text(view),
            where(machine),
            since && is ? ui::duration_text(*is - *since) : "",
            whole_price_text(view),
            view.facts.cost ? money_text(*view.facts.cost) : "",
            view.facts.gpu_cost ? money_text(*view.facts.gpu_cost) : "",
            view.facts.idle_s ? ui::duration_text(*view.facts.idle_s) : "",
            machine && !machine->offer.empty() ? machine->offer : record.size,
            ui::age(record.created, now),
            record.pool,
            tags_text(record.tags),
            machine ? machine->id : record.id};
}

std::vector<Row> rows_of(const Session& session, const Overview& overview) {
    std::vector<Row> rows;
    for (const auto& view : overview.machines) rows.push_back(row_of(session, view));
    return rows;
}

// One machine, a line a fact: what does not fit into a table is what one wants to read here.
void print_details(std::ostream& out, const Session& session, const Overview& overview) {
    for (const auto& row : rows_of(session, overview)) {
        for (size_t i = 0; i < row.size(); ++i) {
            if (row[i].empty()) continue;
            std::string title = status_columns[i].name + ":";
            title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
            out << session.out_paint.strong(title) << std::string(12 - title.size(), ' ') << ui::plain_cell(row[i])
                << "\n";
        }
    }
}

std::string why_silent(const PoolView& pool) {
    if (!pool.error) return "";
    return ": " + (pool.error->kind == Error::Kind::network ? "not reachable" : ui::plain(pool.error->what));
}

void print_pools(std::ostream& out, const Session& session, const Overview& overview) {
    for (const auto& pool : overview.pools) {
        out << "\nPool " << pool.address << why_silent(pool) << "\n";
        if (pool.types.empty()) continue;
        std::vector<Row> rows = {{"GPU", "FREE", "OF", "MEMORY", "HELD BY"}};
        for (const auto& type : pool.types)
            rows.push_back({type.name, std::to_string(type.free), std::to_string(type.total),
                            ui::bytes_text(static_cast<double>(type.memory_bytes)), holders_of(type, pool.claims)});
        ui::print_table(out, rows, session.out_paint);
    }
}

void print_hints(std::ostream& err, const Session& session, const Overview& overview) {
    size_t hints = 0;
    for (const auto& view : overview.machines)
        if (!view.hint.empty() && hints++ < hints_max)
            err << session.err_paint.strong("hint:") << " " << ui::plain(view.hint) << "\n";
    if (hints > hints_max)
        err << session.err_paint.strong("hint:") << " " << hints - hints_max
            << " more machines have one: `tnr status NAME` tells that of NAME\n";
}

void print_overview(std::ostream& out, std::ostream& err, Session& session, const StatusOptions& options,
                    const Overview& overview) {
    if (options.names.size() == 1 && options.list.format.empty() && options.list.columns.empty()) {
        print_details(out, session, overview);
    } else if (!overview.machines.empty() || bare(options.list)) {
        print_list(out, session.out_paint, options.list, status_columns, rows_of(session, overview));
    } else if (options.names.empty()) {
        out << "No machines. `tnr start NAME --gpu TYPE` makes one.\n";
    }
    if (options.names.empty() && !bare(options.list)) print_pools(out, session, overview);
    print_hints(err, session, overview);
}

// Until Ctrl-C, which is how one ends it: no failure once there was something to see.
Result<> watch(Session& session, const StatusOptions& options) {
    for (bool first = true;; first = false) {
        auto overview = look_around(session, {options.names, true});
        if (interrupt::interrupted() && first) return interrupt::error();
        if (interrupt::interrupted()) return Ok{};
        std::ostringstream picture;
        print_overview(picture, picture, session, options, overview);
        for (const auto& trouble : overview.troubles) picture << "tnr: " << ui::plain(trouble.error.what) << "\n";
        show_live(session, picture.str(), first);
        if (!session.out) return Ok{};  // nobody looks any more
        if (!session.pause(watch_ms)) return Ok{};
    }
}

}  // namespace

Result<> status(Session& session, const StatusOptions& options) {
    if (auto good = begin_list(session, options.list, status_columns); !good) return good;
    if (options.watch && session.json)
        return Error{Error::Kind::usage, "--watch shows pictures, and a document is one",
                     "ask again and again: `while sleep 2; do tnr status --json; done`"};
    if (options.watch) return watch(session, options);
    auto overview = look_around(session, {options.names});
    obey_budgets(session, overview);
    if (!options.names.empty() || shows(options.list, "idle", status_columns)) ask_idle_times(session, overview);
    if (!options.names.empty() || shows(options.list, "gpu-cost", status_columns)) ask_gpu_costs(session, overview);
    if (interrupt::interrupted()) return interrupt::error();
    if (session.json) {
        print_document(session, "status", to_json(overview), overview.troubles);
        return Ok{};
    }
    print_overview(session.out, session.err, session, options, overview);
    tell_troubles(session, overview.troubles);
    return Ok{};
}

void add_status(Grammar& tnr, Session& session) {
    auto options = std::make_shared<StatusOptions>();
    auto command = tnr.command("status", "Show your machines and the pool's GPUs");
    command.alias("ls");
    command.alias("list");
    command.alias("ps");
    command.words("name", options->names, "Only these machines; of a single one all that is known");
    command.flag("-w,--watch", options->watch, "Show it anew every two seconds, until Ctrl-C");
    add_list_options(command, options->list);
    command.footer(
        "Asks the clouds and pools, all at once, so it also shows what was made or deleted outside tnr. One that\n"
        "does not answer within seconds is named, and the others are shown; it then ends with 1, or with 4 where a "
        "cloud\n"
        "refuses you. It ends with 1 also when a machine that you name is not there.\n\n"
        "BUSY tells whether a program uses the machine's GPU now; UP how long it has been running; PRICE what the\n"
        "machine costs by the hour, and what its GPUs cost in hours in which programs use them, where the pool says; "
        "COST\n"
        "what the machine has cost so far, as far as this computer saw it. Of machines that are named, and with -o "
        "wide:\n"
        "GPU-COST is what its GPUs have cost, out of the pool's ledger; IDLE for how long nobody has used one that "
        "was\n"
        "started with --idle-stop or --ttl, which is asked for that.\n\n"
        "Examples:\n"
        "  tnr status\n"
        "  tnr status demo                       all about one machine\n"
        "  tnr status --watch\n"
        "  tnr status -o wide\n"
        "  tnr status --columns name,state,cost\n"
        "  tnr status -o name | xargs -n1 tnr stop\n"
        "  tnr status --json | jq '.machines[].name'");
    command.run([&session, options] { session.result = status(session, *options); });
}

}  // namespace tnr::cli
