// See parsed.hpp.
#include "api_client/command_line/parsed.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

namespace tnr {

Reached reached(const CLI::App& program) {
    Reached at{&program, program.get_name()};
    while (!at.command->get_subcommands().empty()) {
        at.command = at.command->get_subcommands().front();
        at.path += " " + at.command->get_name();
    }
    return at;
}

std::vector<std::string> commands_of(const CLI::App& command) {
    std::vector<std::string> names;
    for (const auto* one : command.get_subcommands([](const CLI::App*) { return true; }))
        if (!one->get_group().empty()) names.push_back(one->get_name());
    return names;
}

std::string what_is_missing(const Reached& at) {
    for (const auto* option : at.command->get_options()) {
        if (!option->get_required() || option->count() > 0) continue;
        std::string name = option->get_name(), what = option->get_description();
        if (name[0] != '-') std::transform(name.begin(), name.end(), name.begin(), ::toupper);
        const bool word = what.size() > 1 && std::islower(static_cast<unsigned char>(what[1])) != 0;  // not SRC
        if (word) what[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(what[0])));
        return "`" + at.path + "` needs " + name.append(" (").append(what).append(")");
    }
    return "";
}

// "--gpu: 1 required TEXT missing", "--gpu: At Most 1 required but received 2"
std::string wrong_number_of_values(const std::string& said) {
    const std::string option = said.substr(0, said.find(':'));
    return option + (said.find("At Most") == std::string::npos ? " needs a value" : " is given more than once");
}

}  // namespace tnr
