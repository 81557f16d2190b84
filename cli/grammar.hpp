// The command line's grammar as the commands write it down: options, flags, help. CLI11 does the work, behind this: a
// file that includes all of CLI11 takes half a minute to compile, and there is one a command.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tnr::cli {

// What can be typed at one place of the command line: after no command (""), after "start", after "login pool".
struct Choice {
    std::string word;  // a command, or an option with its dashes
    std::string what;
};
struct Place {
    std::string path;
    std::vector<Choice> commands, options;
};

// One command, or `tnr` itself. What is parsed into must live until parsing is over.
class Grammar {
public:
    explicit Grammar(CLI::App& app) : app_(app) {}

    // A command below this one.
    Grammar command(const std::string& name, const std::string& what);
    // One of the commands below must be given.
    void requires_command();

    // `names` as CLI11 has them: "--gpu" or "-y,--yes" for an option, "name" for an argument by position.
    void option(const std::string& names, std::string& value, const std::string& what);
    void required(const std::string& names, std::string& value, const std::string& what);
    void flag(const std::string& names, bool& value, const std::string& what);
    // All words that are left, those after `--` too.
    void words(const std::string& name, std::vector<std::string>& values, const std::string& what);
    void required_words(const std::string& name, std::vector<std::string>& values, const std::string& what);

    // Below the options in --help: what else to know, and examples.
    void footer(const std::string& text);
    // What to do when the command line names this command and all of it was understood.
    void run(std::function<void()> run);

    // This place and all below it, as far as the grammar is written down by now.
    std::vector<Place> places() const;

private:
    CLI::App& app_;
};

}  // namespace tnr::cli
