// What a newcomer can act on when the command line was not understood, instead of the parser's own words.
#pragma once

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

// `connect` and `run`: their last words, "command" in the grammar, are a program and its arguments, options too.
bool takes_program(const CLI::App& command);

}  // namespace tnr::cli
