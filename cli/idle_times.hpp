// For how long nobody has used machines: they count it themselves (install/tnr-idle), so they are asked over SSH.
#pragma once

#include "cli/overview.hpp"

namespace tnr::cli {

// Asks those that run and switch themselves off when they are idle, side by side, for a few seconds at most. One that
// does not answer leaves its idle time unknown; it is no trouble, for it may be booting.
void ask_idle_times(Session& session, Overview& overview);

}  // namespace tnr::cli
