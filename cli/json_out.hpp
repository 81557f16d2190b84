// What --json prints: one document of one schema for all commands, which README.md writes down and
// tests/cli/json_schema_test.cpp holds every command to.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <vector>

#include "cli/money/costs.hpp"
#include "cli/session.hpp"

namespace tnr::cli {

// Grows when a reader of older documents would misread a newer one; fields are added without.
inline constexpr int json_schema = 1;

// What went wrong, and with what: a machine's name, a provider's, a pool's address; empty: with the command itself.
struct Trouble {
    std::string about;
    Error error;
};

// {"schema": 1, "command": "stop", "errors": [...]} with `results` beside them. Where there are troubles, the exit code is
// the first one's, unless the command has set one already.
void print_document(Session& session, const std::string& command, nlohmann::json results,
                    const std::vector<Trouble>& troubles = {});
// "tnr: what" and its hints, on stderr.
void tell_error(Session& session, const Error& error);
// Each of them; what they mean for the exit code is as with a document.
void tell_troubles(Session& session, const std::vector<Trouble>& troubles);
// What the process ends with because of it.
int exit_code_of(const Error& error);
// How a command ends that did what it could for each of several machines: with a document, or each trouble told.
Result<> finish(Session& session, const std::string& command, nlohmann::json results,
                const std::vector<Trouble>& troubles);

nlohmann::json or_null(const std::string& text);              // null when it is empty
nlohmann::json gpu_json(const std::string& type, int count);  // null when there is no type
nlohmann::json price_json(const Price& price);                // what is unknown is null
nlohmann::json cost_json(const Cost& cost);                   // a list, an entry a currency
nlohmann::json use_json(const BudgetUse& use);
nlohmann::json optional_json(const std::optional<double>& number);

// What is known of a machine beside its record and what its provider says.
struct MachineFacts {
    std::optional<bool> gpu_busy = {};
    std::string running_since = {};  // UTC; empty: it does not run, or nobody knows
    // Of all its GPUs together, while programs use them; nothing: the pool says no price, or was not asked.
    std::optional<double> gpu_per_hour = {};
    std::string gpu_currency = {};
    std::optional<Cost> cost = {};       // of all its life, as far as it was seen; without its GPUs
    std::optional<Cost> gpu_cost = {};   // of its GPUs, where that was asked (gpu_costs.hpp)
    std::optional<int64_t> idle_s = {};  // for how long nobody has used it, where that was asked (idle_times.hpp)
};
// A machine as its record and its provider (when that has it) know it. `state` where the provider tells none.
nlohmann::json machine_json(const Record& record, const std::optional<Machine>& machine, const std::string& state,
                            const std::string& hint = "", const MachineFacts& facts = {});

// `document` as YAML: every reader of YAML 1.2 takes it for the same values.
std::string to_yaml(const nlohmann::json& document);

// One document, indented, and a newline. Bytes that are not UTF-8 (a mistyped name, a server's words) become U+FFFD:
// whatever happened, scripts get a document that they can parse.
void print_json(std::ostream& out, const nlohmann::json& document);

}  // namespace tnr::cli
