// `tnr completion`: what a shell needs to complete tnr's commands and options.
#pragma once

#include "cli/grammar.hpp"
#include "cli/session.hpp"

namespace tnr::cli {

// The script for `shell`: bash, zsh or fish.
Result<std::string> completion(const std::string& shell, const std::vector<Place>& places);

}  // namespace tnr::cli
