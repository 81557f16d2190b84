// A picture that is shown anew again and again, as `watch` does.
#pragma once

#include <string>

#include "cli/session.hpp"

namespace tnr::cli {

// The whole picture over the one before, without a flicker: no more lines than the window has, none longer than it is wide.
// Where `out` is no terminal, one picture below the other.
void show_live(Session& session, const std::string& picture, bool first);

}  // namespace tnr::cli
