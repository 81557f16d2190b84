// `tnr help`: what --help shows, man pages, and the reference of all commands.
#pragma once

#include <string>
#include <vector>

#include "cli/grammar.hpp"
#include "cli/session.hpp"

namespace tnr::cli {

// What --help shows for the command at `path`: as text, or under --json as a document for programs that offer commands and
// options.
void print_help(Session& session, const std::string& path, const std::vector<Place>& places);

}  // namespace tnr::cli
