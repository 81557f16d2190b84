// See grammar.hpp.
#include "cli/grammar.hpp"

#include <CLI/CLI.hpp>

#include "cli/own_gpu.hpp"

namespace tnr::cli {
namespace {

Choice choice_of(const CLI::Option& option) {
    Choice choice{"", option.get_description()};
    choice.takes_value = option.get_items_expected_max() > 0;
    choice.required = option.get_required();
    choice.many = option.get_items_expected_max() > 1;
    for (const auto& name : option.get_snames()) choice.aliases.push_back("-" + name);
    return choice;
}

void collect(const CLI::App& app, const std::string& path, std::vector<Place>& places) {
    Place place{path, {}, {}, {}, app.get_description(), app.get_footer()};
    place.text = app.get_formatter()->make_help(&app, path.empty() ? "tnr" : "tnr " + path, CLI::AppFormatMode::Normal);
    for (const auto* option : app.get_options()) {
        Choice choice = choice_of(*option);
        choice.word = option->get_name();
        if (option->get_positional()) place.arguments.push_back(choice);
        for (const auto& name : option->get_lnames()) {
            choice.word = "--" + name;
            place.options.push_back(choice);
        }
    }
    auto commands = app.get_subcommands([](const CLI::App*) { return true; });
    for (const auto* command : commands)
        place.commands.push_back({command->get_name(), command->get_description(), command->get_aliases()});
    places.push_back(std::move(place));
    for (const auto* command : commands)
        collect(*command, path.empty() ? command->get_name() : path + " " + command->get_name(), places);
}

// A script's variable that is not set must not read as an option that was left out: `--max-price "$LIMIT"`.
std::string not_empty(const std::string& value) {
    return value.empty() ? "its value is empty" : "";
}

// Users of the original tnr type numbers for machines.
void take_machines(CLI::Option* option, const std::string& name) {
    if (name == "name" || name == "machine") option->transform(machine_meant);
}

}  // namespace

std::vector<Place> Grammar::places() const {
    std::vector<Place> all;
    collect(app_, "", all);
    return all;
}

Grammar Grammar::command(const std::string& name, const std::string& what) {
    return Grammar(*app_.add_subcommand(name, what));
}

void Grammar::alias(const std::string& name) {
    app_.alias(name);
}

void Grammar::requires_command() {
    app_.require_subcommand(1);
}

void Grammar::option(const std::string& names, std::string& value, const std::string& what) {
    auto* option = app_.add_option(names, value, what);
    if (names[0] == '-') option->check(not_empty);
    take_machines(option, names);
}

void Grammar::required(const std::string& names, std::string& value, const std::string& what) {
    take_machines(app_.add_option(names, value, what)->required(), names);
}

void Grammar::options(const std::string& names, std::vector<std::string>& values, const std::string& what) {
    app_.add_option(names, values, what)->allow_extra_args(false)->check(not_empty);
}

void Grammar::flag(const std::string& names, bool& value, const std::string& what) {
    app_.add_flag(names, value, what);
}

void Grammar::words(const std::string& name, std::vector<std::string>& values, const std::string& what) {
    take_machines(app_.add_option(name, values, what), name);
}

void Grammar::required_words(const std::string& name, std::vector<std::string>& values, const std::string& what) {
    take_machines(app_.add_option(name, values, what)->required(), name);
}

void Grammar::footer(const std::string& text) {
    app_.footer(text);
}

void Grammar::run(std::function<void()> run) {
    app_.callback(std::move(run));
}

}  // namespace tnr::cli
