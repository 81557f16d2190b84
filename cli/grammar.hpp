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
    std::string word;  // a command, an option with its dashes, or what stands for an argument
    std::string what;
    std::vector<std::string> aliases = {};  // a command's other names; an option's short ones
    bool takes_value = false;               // options
    bool required = false, many = false;    // arguments
};
struct Place {
    std::string path;
    std::vector<Choice> commands, options;
    std::vector<Choice> arguments = {};  // by position
    std::string what = {}, notes = {};   // its help: the line, and what stands below the options
    std::string text = {};               // all of it, as --help shows it
};

// One command, or `tnr` itself. What is parsed into must live until parsing is over.
class Grammar {
public:
    explicit Grammar(CLI::App& app) : app_(app) {}

    // A command below this one.
    Grammar command(const std::string& name, const std::string& what);
    // Another word for this command: `ls` for `status`.
    void alias(const std::string& name);
    // One of the commands below must be given.
    void requires_command();

    // `names` as CLI11 has them: "--gpu" or "-y,--yes" for an option, "name" for an argument by position.
    // What is called `name`, `provider` or `gpu` here is a machine, a provider or a type of GPU, and is completed as such.
    void option(const std::string& names, std::string& value, const std::string& what);
    void required(const std::string& names, std::string& value, const std::string& what);
    // May be given several times, with one value each.
    void options(const std::string& names, std::vector<std::string>& values, const std::string& what);
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
