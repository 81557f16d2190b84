// See grammar.hpp.
#include "cli/grammar.hpp"

#include <CLI/CLI.hpp>

namespace tnr::cli {
namespace {

void collect(const CLI::App& app, const std::string& path, std::vector<Place>& places) {
    Place place{path, {}, {}};
    for (const auto* option : app.get_options())
        for (const auto& name : option->get_lnames()) place.options.push_back({"--" + name, option->get_description()});
    auto commands = app.get_subcommands([](const CLI::App*) { return true; });
    for (const auto* command : commands) place.commands.push_back({command->get_name(), command->get_description()});
    places.push_back(std::move(place));
    for (const auto* command : commands)
        collect(*command, path.empty() ? command->get_name() : path + " " + command->get_name(), places);
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

void Grammar::requires_command() {
    app_.require_subcommand(1);
}

void Grammar::option(const std::string& names, std::string& value, const std::string& what) {
    app_.add_option(names, value, what);
}

void Grammar::required(const std::string& names, std::string& value, const std::string& what) {
    app_.add_option(names, value, what)->required();
}

void Grammar::flag(const std::string& names, bool& value, const std::string& what) {
    app_.add_flag(names, value, what);
}

void Grammar::words(const std::string& name, std::vector<std::string>& values, const std::string& what) {
    app_.add_option(name, values, what);
}

void Grammar::required_words(const std::string& name, std::vector<std::string>& values, const std::string& what) {
    app_.add_option(name, values, what)->required();
}

void Grammar::footer(const std::string& text) {
    app_.footer(text);
}

void Grammar::run(std::function<void()> run) {
    app_.callback(std::move(run));
}

}  // namespace tnr::cli
