// Getting into a machine that should be running, for commands that work on it.
#pragma once

#include "cli/session.hpp"
#include "cli/ssh/client.hpp"

namespace tnr::cli {

// A machine that its provider calls running may still be booting for about this long.
inline constexpr std::chrono::seconds ssh_patience{60};

// Waits a little for SSH, and shows that it does.
Result<std::unique_ptr<ssh::Client>> reach(Session& session, const std::string& name,
                                           std::chrono::milliseconds patience = ssh_patience);

}  // namespace tnr::cli
