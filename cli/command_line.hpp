// A whole command line, from its words to what the process ends with: the only place that prints a command's error and
// picks exit codes. main() adds the real world; tests run it in theirs.
#pragma once

#include <string>
#include <vector>

#include "cli/session.hpp"

namespace tnr::cli {

// `words` are what was typed after "tnr".
int run_command_line(Session& session, const std::vector<std::string>& words);

}  // namespace tnr::cli
