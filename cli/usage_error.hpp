// What a newcomer can act on when the command line was not understood, instead of the parser's own words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace tnr::cli {

// `tnr` after it has failed to parse `words`, in their order.
Error usage_error(const CLI::App& tnr, const CLI::ParseError& problem, const std::vector<std::string>& words);

// What is said to `tnr ports list` and other pairs of words that the original tnr, of Thunder Compute, has where ours has a
// machine's name: which command it is here. Nothing for other words. For errors only, since a machine may be called "list".
std::optional<Error> other_way(const std::vector<std::string>& words);

// `connect` and `run`: their last words, "command" in the grammar, are a program and its arguments, options too.
bool takes_program(const CLI::App& command);

}  // namespace tnr::cli
