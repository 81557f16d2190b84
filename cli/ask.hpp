// Questions to who sits at the terminal. What is asked is on stderr, so that stdout has results alone.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cli/session.hpp"

namespace tnr::cli {

// One line of an answer, without its end; nothing when there will be none (Ctrl-D, the end of a file). Where nobody sits
// there, the question is not shown. An Error after Ctrl-C.
Result<std::optional<std::string>> ask(Session& session, const std::string& question);

// For a file that the user has named: tells on stderr that nobody writes into it, which a pipe may wait for without end.
std::function<void()> waiting_for(Session& session, const std::string& path);

// "QUESTION [y/N] ": true for yes, false for all else.
Result<bool> ask_whether(Session& session, const std::string& question);

}  // namespace tnr::cli
