// See json_out.hpp.
#include "cli/json_out.hpp"

#include <set>
#include <sstream>
#include <utility>

#include "api_client/base/interrupt.hpp"
#include "cli/ui/text.hpp"
#include "cli/ui/time.hpp"
#include "gpu_client/protocol/control.hpp"

namespace tnr::cli {
namespace {

void end_with_first(Session& session, const std::vector<Trouble>& troubles) {
    if (!troubles.empty() && session.exit_code == exit_done) session.exit_code = exit_code_of(troubles.front().error);
}

}  // namespace

void print_document(Session& session, const std::string& command, nlohmann::json results,
                    const std::vector<Trouble>& troubles) {
    results["schema"] = json_schema;
    results["command"] = command;
    results["errors"] = nlohmann::json::array();
    for (const auto& trouble : troubles) {
        auto error = control::to_json(trouble.error);
        error["about"] = trouble.about;
        results["errors"].push_back(error);
    }
    end_with_first(session, troubles);
    if (session.yaml)
        session.out << to_yaml(results) << std::flush;
    else
        print_json(session.out, results);
}

void tell_error(Session& session, const Error& error) {
    session.err << session.err_paint.bad("tnr:") << " " << ui::plain(error.what) << "\n";
    std::istringstream hints{ui::plain(error.hint)};
    for (std::string hint; std::getline(hints, hint);)
        session.err << session.err_paint.strong("hint:") << " " << hint << "\n";
}

void tell_troubles(Session& session, const std::vector<Trouble>& troubles) {
    for (const auto& trouble : troubles) tell_error(session, trouble.error);
    end_with_first(session, troubles);
}

int exit_code_of(const Error& error) {
    if (interrupt::interrupted()) return interrupt::exit_code();
    if (error.kind == Error::Kind::usage) return exit_usage;
    return error.kind == Error::Kind::auth ? exit_sign_in : exit_failed;
}

Result<> finish(Session& session, const std::string& command, nlohmann::json results,
                const std::vector<Trouble>& troubles) {
    if (session.json)
        print_document(session, command, std::move(results), troubles);
    else if (troubles.size() == 1)
        return troubles.front().error;
    else
        tell_troubles(session, troubles);
    return Ok{};
}

nlohmann::json or_null(const std::string& text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(text);
}

nlohmann::json gpu_json(const std::string& type, int count) {
    if (type.empty()) return nullptr;
    return {{"type", type}, {"count", count}};
}

nlohmann::json optional_json(const std::optional<double>& number) {
    return number ? nlohmann::json(*number) : nlohmann::json();
}

nlohmann::json cost_json(const Cost& cost) {
    auto list = nlohmann::json::array();
    for (const auto& [currency, amount] : cost.amounts) list.push_back({{"currency", currency}, {"amount", amount}});
    return {{"amounts", list},
            {"hours_running", cost.hours_running},
            {"hours_stopped", cost.hours_stopped},
            {"hours_gpu", cost.hours_gpu},
            {"hours_unknown", cost.hours_unknown},
            {"partial", cost.partial}};
}

nlohmann::json use_json(const BudgetUse& use) {
    return {{"provider", or_null(use.budget.provider)},
            {"currency", or_null(use.currency)},
            {"amount", use.budget.amount},
            {"period", use.budget.period},
            {"spent", use.spent},
            {"partial", use.partial},
            {"share", use.share()}};
}

nlohmann::json price_json(const Price& price) {
    return {{"currency", or_null(price.currency)},
            {"per_hour", optional_json(price.running())},
            {"per_hour_stopped", optional_json(price.stopped())},
            {"per_month", optional_json(price.monthly())},
            {"source", or_null(price.source)},
            {"date", or_null(price.date)}};
}

static nlohmann::json gpu_price_json(const MachineFacts& facts) {
    if (!facts.gpu_per_hour) return nullptr;
    return {{"currency", facts.gpu_currency}, {"per_hour", *facts.gpu_per_hour}};
}

nlohmann::json machine_json(const Record& record, const std::optional<Machine>& machine, const std::string& state,
                            const std::string& hint, const MachineFacts& facts) {
    bool reachable = machine && !machine->address.empty();
    bool ready = machine && machine->state == MachineState::running && record.step == Step::proven &&
                 record.has_its_gpu() && (record.setup.empty() || record.setup_done);
    auto tags = nlohmann::json::array();
    for (const auto& [key, value] : record.tags) tags.push_back({{"key", key}, {"value", value}});
    return {
        {"name", record.name},
        {"provider", record.provider},
        {"id", or_null(machine ? machine->id : record.id)},
        {"state", machine ? to_string(machine->state) : state},
        {"ready", ready},
        {"address", reachable ? nlohmann::json(machine->address) : nlohmann::json()},
        {"ssh_port", reachable ? nlohmann::json(machine->ssh_port) : nlohmann::json()},
        {"gpu", gpu_json(record.has_gpu, record.has_count)},
        {"wanted_gpu", gpu_json(record.gpu, record.count)},
        {"pool", or_null(record.pool)},
        {"price", machine ? price_json(machine->price) : nlohmann::json()},
        {"created", or_null(record.created)},
        {"idle_stop_s", record.idle_stop_s > 0 ? nlohmann::json(record.idle_stop_s) : nlohmann::json()},
        {"idle_s", facts.idle_s ? nlohmann::json(*facts.idle_s) : nlohmann::json()},
        {"ttl_ends", record.ttl_ends > 0 ? nlohmann::json(ui::utc_text(record.ttl_ends)) : nlohmann::json()},
        {"budget_ends", record.budget_from > 0 ? nlohmann::json(ui::utc_text(record.budget_from)) : nlohmann::json()},
        {"region", or_null(machine ? machine->region : record.region)},
        {"size", or_null(machine && !machine->offer.empty() ? machine->offer : record.size)},
        {"tags", tags},
        {"gpu_busy", facts.gpu_busy ? nlohmann::json(*facts.gpu_busy) : nlohmann::json()},
        {"running_since", or_null(facts.running_since)},
        {"gpu_price", gpu_price_json(facts)},
        {"cost", facts.cost ? cost_json(*facts.cost) : nlohmann::json()},
        {"gpu_cost", facts.gpu_cost ? cost_json(*facts.gpu_cost) : nlohmann::json()},
        {"hint", hint}};
}

namespace {

// All documents come from here, YAML's quoted words as well.
std::string json_text(const nlohmann::json& value, int indent) {
    return ui::plain_json(value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace));
}

// Words that YAML would take for something else, and all that is not plainly a word, are quoted as in JSON.
std::string yaml_scalar(const nlohmann::json& value) {
    if (!value.is_string()) return value.dump();
    static const std::set<std::string> not_plain = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
    const std::string text = value;
    bool plain = !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) != 0 &&
                 not_plain.count(ui::lower(text)) == 0;
    for (unsigned char letter : text) plain &= std::isalnum(letter) != 0 || letter == '-' || letter == '_';
    return plain ? text : json_text(value, -1);
}

// What stands behind "key:" or "-": on the same line, or on lines of its own.
void write_yaml(std::string& out, const nlohmann::json& value, const std::string& indent, bool in_list) {
    if (!value.is_structured()) {
        out += " " + yaml_scalar(value) + "\n";
    } else if (value.empty()) {
        out += value.is_array() ? " []\n" : " {}\n";
    } else if (value.is_array()) {
        out += "\n";
        for (const auto& each : value) {
            out += indent + "-";
            write_yaml(out, each, indent + "  ", true);
        }
    } else {
        bool first = in_list;  // "- key: value"
        if (!first) out += "\n";
        for (const auto& [key, each] : value.items()) {
            out += (std::exchange(first, false) ? " " : indent) + yaml_scalar(key) + ":";
            write_yaml(out, each, indent + "  ", false);
        }
    }
}

}  // namespace

std::string to_yaml(const nlohmann::json& document) {
    std::string text;
    write_yaml(text, document, "", false);
    return text.substr(text.find_first_not_of('\n'));
}

void print_json(std::ostream& out, const nlohmann::json& document) {
    out << json_text(document, 2) << std::endl;
}

}  // namespace tnr::cli
