// `tnr connect`: a shell on a machine, one command there, or its ports here.
#pragma once

#include <string>
#include <vector>

#include "cli/session.hpp"
#include "cli/ssh/exec.hpp"

namespace tnr::cli {

struct ConnectOptions {
    std::string name = {};  // empty: the only machine
    std::vector<std::string> words = {};
    bool no_terminal = false;
    std::vector<std::string> forwards = {};  // as parse_forward() reads them
    bool no_shell = false;                   // forwards alone
    bool agent = false;                      // the user's SSH agent can be asked from there
    std::string agent_socket = {};           // SSH_AUTH_SOCK
    ssh::Streams streams = {0, 1, 2};
};

// A shell on a terminal, and forwards alone, dial again when the connection breaks. A command is never run twice.
Result<> connect(Session& session, const ConnectOptions& options);

}  // namespace tnr::cli
