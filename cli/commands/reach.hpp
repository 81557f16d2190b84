// Getting into a machine that should be running, for commands that work on it.
#pragma once

#include "cli/session.hpp"
#include "cli/ssh/client.hpp"

namespace tnr::cli {

// Waits a little for SSH, and shows that it does: a machine that its provider calls running may still be booting.
Result<std::unique_ptr<ssh::Client>> reach(Session& session, const std::string& name);

}  // namespace tnr::cli
