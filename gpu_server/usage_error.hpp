// What an operator can act on when the command line was not understood, instead of the parser's own words.
#pragma once

#include <string>

#include "api_client/base/result.hpp"

namespace CLI {
class App;
class Error;
class ParseError;
}  // namespace CLI

namespace tnr::server {

// `app` after it has failed to parse.
Error usage_error(const CLI::App& app, const CLI::ParseError& problem);

// What is wrong with an option's value, as CLI11 says it, in our words: "--gpus takes 0 to 1000000, not '-1'".
std::string value_error(const CLI::Error& problem);

}  // namespace tnr::server
