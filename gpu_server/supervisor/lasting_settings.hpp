// Settings that stay as they are for as long as a node's programs run: a newer server that takes over (handover.hpp) goes on with
// those of the one before, whatever its configuration says now. The others hold from then on.
#pragma once

#include "gpu_server/supervisor/handover.hpp"
#include "gpu_server/supervisor/supervisor.hpp"

namespace tnr::server {

void hand_over(const ServeOptions& options, Handover& handover);
// The log names those that would have changed.
Result<> take_over(ServeOptions& options, const Handover& handover);

}  // namespace tnr::server
