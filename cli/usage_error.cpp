// See usage_error.hpp.
#include "cli/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/ui/text.hpp"

namespace tnr::cli {
namespace {

// The command that was being parsed, with the words that lead to it: "tnr login pool".
struct Reached {
    const CLI::App* command;
    std::string path;
};
Reached reached(const CLI::App& tnr) {
    Reached at{&tnr, tnr.get_name()};
    while (!at.command->get_subcommands().empty()) {
        at.command = at.command->get_subcommands().front();
        at.path += " " + at.command->get_name();
    }
    return at;
}

std::vector<std::string> names_below(const CLI::App& command) {
    std::vector<std::string> names;
    for (const auto* one : command.get_subcommands([](const CLI::App*) { return true; }))
        names.push_back(one->get_name());
    return names;
}

std::string commands_below(const CLI::App& command) {
    std::string list;
    for (const auto& name : names_below(command)) list += (list.empty() ? "" : ", ") + name;
    return list;
}

// CLI11 only says that a command is missing.
std::string unknown_command(const Reached& at, const std::vector<std::string>& words) {
    if (at.command->get_parent()) return "";
    auto word = std::find_if(words.begin(), words.end(), [](const std::string& each) { return each[0] != '-'; });
    return word == words.end() ? "" : *word;
}

std::string missing(const Reached& at) {
    for (const auto* option : at.command->get_options()) {
        if (!option->get_required() || option->count() > 0) continue;
        std::string name = option->get_name(), what = option->get_description();
        if (name[0] != '-') std::transform(name.begin(), name.end(), name.begin(), ::toupper);
        what[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(what[0])));
        return "`" + at.path + "` needs " + name + " (" + what + ")";
    }
    return "`" + at.path + "` needs a command: " + commands_below(*at.command);
}

// "The following argument was not expected: WORD …"
std::string not_expected(const Reached& at, const std::string& said) {
    constexpr std::string_view before = "expected: ";
    auto begin = said.find(before);
    if (begin == std::string::npos) return said;
    std::string word = said.substr(begin + before.size());
    word = word.substr(0, word.find(' '));
    if (word[0] == '-') return "`" + at.path + "` has no option '" + word + "'";
    return "`" + at.path + "` does not expect '" + word + "'";
}

}  // namespace

bool takes_program(const CLI::App& command) {
    return command.get_option_no_throw("command") != nullptr;
}

Error usage_error(const CLI::App& tnr, const CLI::ParseError& problem, const std::vector<std::string>& words) {
    auto at = reached(tnr);
    std::string what = problem.what(), hint = "`" + at.path + " --help` shows what there is";
    if (auto unknown = unknown_command(at, words); !unknown.empty())
        return {Error::Kind::usage, "there is no command '" + unknown + "'",
                ui::did_you_mean(unknown, names_below(tnr)) + "commands: " + commands_below(tnr)};
    if (dynamic_cast<const CLI::RequiredError*>(&problem)) what = missing(at);
    if (dynamic_cast<const CLI::ExtrasError*>(&problem)) {
        what = not_expected(at, what);
        if (takes_program(*at.command))
            hint = "what a program shall get goes after `--`: `" + at.path + " … -- PROGRAM …`; " + hint;
    }
    // "--gpu: 1 required TEXT missing"
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&problem)) what = what.substr(0, what.find(':')) + " needs a value";
    return {Error::Kind::usage, what, hint};
}

}  // namespace tnr::cli
