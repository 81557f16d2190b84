// What a program of ours tells about a command line that CLI11 did not understand: the words that tnr and tnr-gpu-server
// share. Texts are ready for people; whoever asks makes the Error of them.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace tnr {

// The command that was being parsed, with the words that lead to it: "tnr login pool". `command` lives as long as the App.
struct Reached {
    const CLI::App* command;
    std::string path;
};
Reached reached(const CLI::App& program);

// The commands of `command` that its `--help` shows.
std::vector<std::string> commands_of(const CLI::App& command);

// "`tnr start` needs NAME (what the machine is called)", of the first thing that is required and was not given; empty when
// nothing is lacking.
std::string what_is_missing(const Reached& at);

// "--gpu needs a value", of what CLI11 says when there are too few values or too many.
std::string wrong_number_of_values(const std::string& said);

}  // namespace tnr
