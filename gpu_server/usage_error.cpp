// See usage_error.hpp.
#include "gpu_server/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <regex>

#include "api_client/base/text.hpp"
#include "api_client/command_line/parsed.hpp"

namespace tnr::server {
namespace {

std::vector<std::string> options_of(const CLI::App& app) {
    std::vector<std::string> names;
    for (const auto* option : app.get_options())
        for (const auto& name : option->get_lnames())
            if (!option->get_group().empty()) names.push_back("--" + name);
    return names;
}

// CLI11 only says that a command is missing, also where there is a word that is none.
Error no_command(const CLI::App& app, const Reached& at) {
    const auto words = app.remaining(true);
    const auto word = std::find_if(words.begin(), words.end(), [](auto& one) { return !one.starts_with('-'); });
    const auto names = commands_of(*at.command);
    if (word != words.end())
        return {Error::Kind::usage, "`" + at.path + "` has no command '" + *word + "'",
                did_you_mean(*word, names) + "commands: " + comma_separated(names)};
    return {Error::Kind::usage, "`" + at.path + "` needs a command: " + comma_separated(names),
            "`" + at.path + " --help` explains them"};
}

std::string missing(const Reached& at) {
    const std::string what = what_is_missing(at);
    return what.empty() ? "`" + at.path + "` lacks something" : what;
}

// An option that there is not leaves its value behind, too.
Error not_expected(const CLI::App& app, const Reached& at, const std::string& help) {
    const auto words = app.remaining(true);
    if (words.empty()) return {Error::Kind::usage, "`" + at.path + "` is given too much", help};
    auto word = std::find_if(words.begin(), words.end(), [](auto& one) { return one.starts_with('-'); });
    if (word == words.end())
        return {Error::Kind::usage, "`" + at.path + "` does not expect '" + words.front() + "'",
                did_you_mean(words.front(), commands_of(*at.command)) + help};
    const auto name = word->substr(0, word->find('='));
    return {Error::Kind::usage, "`" + at.path + "` has no option '" + name + "'",
            did_you_mean(name, options_of(*at.command)) + help};
}

}  // namespace

std::string value_error(const CLI::Error& problem) {
    std::string said = problem.what();
    static const std::regex range("([^ ]+): Value (.*) not in range \\[?(.*?) (?:-|to) (.*?)\\]?");
    static const std::regex one_of("([^ ]+): (.*) not in \\{(.*)\\}");
    static const std::regex no_value("Could not convert: ([^ ]+) = (.*)");
    static const std::regex own("([^ ]+): (its value .*)");
    std::smatch parts;
    const auto short_number = [](const std::string& number) {  // "100.000000"
        return std::regex_replace(number, std::regex("(\\.[0-9]*[1-9])0+$|\\.0+$"), "$1");
    };
    if (std::regex_match(said, parts, range))
        return parts[1].str() + " takes " + short_number(parts[3]) + " to " + short_number(parts[4]) + ", not '" +
               parts[2].str() + "'";
    if (std::regex_match(said, parts, one_of))
        return parts[1].str() + " takes " + std::regex_replace(parts[3].str(), std::regex(","), ", ") + ", not '" +
               parts[2].str() + "'";
    if (std::regex_match(said, parts, no_value)) return parts[1].str() + " takes no '" + parts[2].str() + "'";
    if (std::regex_match(said, parts, own)) return parts[1].str() + ": " + parts[2].str();
    return said;
}

Error usage_error(const CLI::App& app, const CLI::ParseError& problem) {
    const auto at = reached(app);
    const std::string help = "`" + at.path + " --help` shows what there is";
    if (dynamic_cast<const CLI::RequiredError*>(&problem)) {
        // Told before what is missing: perhaps it was meant to be that. What follows an unknown command may be its own.
        const auto words = app.remaining(true);
        if (!words.empty() && words.front().starts_with('-') && words.front() != "--")
            return not_expected(app, at, help);
        if (at.command->get_require_subcommand_min() > 0) return no_command(app, at);
        return {Error::Kind::usage, missing(at), help};
    }
    if (dynamic_cast<const CLI::ExtrasError*>(&problem)) return not_expected(app, at, help);
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&problem))
        return {Error::Kind::usage, wrong_number_of_values(problem.what()), help};
    if (dynamic_cast<const CLI::ExcludesError*>(&problem))
        return {Error::Kind::usage, problem.what(), "leave one of them away; " + help};
    return {Error::Kind::usage, value_error(problem), help};
}

}  // namespace tnr::server
