// The generated support.md is all that is known here: it is printed whole, or searched for a name.
#include "cli/commands/support.hpp"

#include <algorithm>
#include <sstream>

#include "cli/commands/commands.hpp"
#include "cli/install/embedded.hpp"
#include "cli/json_out.hpp"
#include "cli/ui/table.hpp"
#include "cli/ui/text.hpp"

namespace tnr::cli {
namespace {

// The call itself if there is one of that name, else all that have it in their names.
std::vector<CallSupport> find_calls(const std::vector<CallSupport>& calls, const std::string& name) {
    std::vector<CallSupport> exact, partly;
    std::string wanted = ui::lower(name);
    for (const auto& one : calls) {
        if (ui::lower(one.call) == wanted || ui::lower(one.symbol) == wanted) exact.push_back(one);
        if (ui::lower(one.symbol).find(wanted) != std::string::npos) partly.push_back(one);
    }
    return exact.empty() ? partly : exact;
}

Error unknown_call(const std::string& name) {
    Error error{Error::Kind::not_found, "no call of the CUDA driver has '" + name + "' in its name",
                "try a part of it, like `tnr support memcpy`; `tnr support` shows all"};
    if (ui::lower(name).starts_with("cuda"))
        error.hint = "cuda… are the runtime's, which makes the driver's calls, cu…, of them: " + error.hint;
    return error;
}

nlohmann::json to_json(const std::vector<CallSupport>& calls) {
    auto list = nlohmann::json::array();
    for (const auto& one : calls)
        list.push_back({{"call", one.call},
                        {"symbol", one.symbol},
                        {"since_cuda", one.since},
                        {"how", one.how},
                        {"runs", one.runs()}});
    return list;
}

}  // namespace

std::vector<CallSupport> parse_support(std::string_view text) {
    std::vector<CallSupport> calls;
    std::istringstream lines{std::string(text)};
    bool in_table = false;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words{line};
        CallSupport one;
        std::string bar;
        in_table = in_table || line.starts_with("| call |");
        if (!in_table || !line.starts_with("| cu")) continue;
        if (words >> bar >> one.call >> bar >> one.symbol >> bar >> one.since >> bar >> one.how >> bar)
            calls.push_back(one);
    }
    return calls;
}

Result<> support(Session& session, std::string_view text, const std::string& name) {
    auto calls = find_calls(parse_support(text), name);
    if (calls.empty()) return unknown_call(name);
    if (session.json) {
        print_document(session, "support", {{"calls", to_json(calls)}});
    } else if (name.empty()) {
        session.out << text;
    } else {
        std::vector<std::vector<std::string>> rows{{"CALL", "SYMBOL", "SINCE CUDA", "RUNS", "HOW"}};
        for (const auto& one : calls)
            rows.push_back({one.call, one.symbol, one.since, one.runs() ? "yes" : "no", one.runs() ? one.how : ""});
        ui::print_table(session.out, rows);
    }
    return Ok{};
}

void add_support(Grammar& tnr, Session& session) {
    auto name = std::make_shared<std::string>();
    auto command = tnr.command("support", "Show which CUDA driver calls run, and which do not yet");
    command.option("call", *name, "A driver call, or a part of its name; all unless told");
    command.footer(
        "HOW: local and cached need no network, async is not waited for, sync is, custom waits where CUDA\n"
        "makes the caller wait. A call that does not run answers CUDA_ERROR_NOT_SUPPORTED. Where CUDA has\n"
        "changed a call there is a symbol for each version; a program uses that of the CUDA it was built with.\n\n"
        "Examples:\n"
        "  tnr support                  everything, in Markdown\n"
        "  tnr support cuGraphLaunch\n"
        "  tnr support memcpy --json");
    command.run([&session, name] {
        std::string_view text;
        for (const auto& file : install::embedded_files())
            if (file.name == "support.md") text = file.bytes;
        session.result = support(session, text, *name);
    });
}

}  // namespace tnr::cli
