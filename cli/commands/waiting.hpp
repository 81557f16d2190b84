// Waiting for a machine to become what it was told to.
#pragma once

#include "cli/session.hpp"

namespace tnr::cli {

// Asks once a second until `machine` is no longer in this state, which it then says; fifteen minutes at most.
Result<> wait_while(Session& session, Provider& provider, Machine& machine, MachineState state);

}  // namespace tnr::cli
