// See json_out.hpp.
#include "cli/json_out.hpp"

#include <sstream>

#include "api_client/base/interrupt.hpp"
#include "gpu_client/protocol/control.hpp"

namespace tnr::cli {

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
    print_json(session.out, results);
}

void tell_error(Session& session, const Error& error) {
    session.err << session.err_paint.bad("tnr:") << " " << error.what << "\n";
    std::istringstream hints{error.hint};
    for (std::string hint; std::getline(hints, hint);)
        session.err << session.err_paint.strong("hint:") << " " << hint << "\n";
}

int exit_code_of(const Error& error) {
    if (interrupt::interrupted()) return interrupt::exit_code();
    if (error.kind == Error::Kind::usage) return exit_usage;
    return error.kind == Error::Kind::auth ? exit_sign_in : exit_failed;
}

Result<> finish(Session& session, const std::string& command, nlohmann::json results,
                const std::vector<Trouble>& troubles) {
    if (!troubles.empty()) session.exit_code = exit_code_of(troubles.front().error);
    if (session.json)
        print_document(session, command, std::move(results), troubles);
    else if (troubles.size() == 1)
        return troubles.front().error;
    else
        for (const auto& trouble : troubles) tell_error(session, trouble.error);
    return Ok{};
}

nlohmann::json or_null(const std::string& text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(text);
}

nlohmann::json gpu_json(const std::string& type, int count) {
    if (type.empty()) return nullptr;
    return {{"type", type}, {"count", count}};
}

nlohmann::json price_json(const Price& price) {
    auto number = [](const std::optional<double>& value) { return value ? nlohmann::json(*value) : nlohmann::json(); };
    return {{"currency", or_null(price.currency)},
            {"per_hour", number(price.running())},
            {"per_hour_stopped", number(price.stopped())},
            {"per_month", number(price.monthly())},
            {"source", or_null(price.source)},
            {"date", or_null(price.date)}};
}

nlohmann::json machine_json(const Record& record, const std::optional<Machine>& machine, const std::string& state,
                            const std::string& hint) {
    bool reachable = machine && !machine->address.empty();
    bool ready =
        machine && machine->state == MachineState::running && record.step == Step::proven && record.has_its_gpu();
    return {{"name", record.name},
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
            {"hint", hint}};
}

void print_json(std::ostream& out, const nlohmann::json& document) {
    out << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

}  // namespace tnr::cli
