// The grammar as man pages and as one page of Markdown.
#pragma once

#include <string>
#include <vector>

#include "cli/grammar.hpp"

namespace tnr::cli {

// The page of `tnr` ("") or of one of its commands, those below it included; in roff, for `man`.
std::string man_page(const std::vector<Place>& places, const std::string& command, const std::string& version);
// "tnr-start.1"
std::string man_page_name(const std::string& command);
std::string reference(const std::vector<Place>& places);

}  // namespace tnr::cli
