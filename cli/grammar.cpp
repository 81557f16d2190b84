// See grammar.hpp.
#include "cli/grammar.hpp"

#include <CLI/CLI.hpp>

namespace tnr::cli {

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
