// What `tnr start` is to make, where the command line leaves it open: the cheapest machine that has what was asked for,
// or what somebody at a terminal chooses, a price beside each choice. In a script nobody is asked.
#pragma once

#include "cli/commands/start.hpp"

namespace tnr::cli {

// `options` with a name, and for a new machine with a provider, a size, a region and a GPU as far as they had to be
// chosen. An Error of kind usage says which word is missing where there is nobody to ask.
Result<StartOptions> complete_options(Session& session, const StartOptions& options);

// "project=x"; the Error says how one looks.
Result<std::map<std::string, std::string>> parse_tags(const std::vector<std::string>& tags);

}  // namespace tnr::cli
