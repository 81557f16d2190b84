// Instances that the original tnr, of Thunder Compute, has made: they have numbers instead of names, and know no key of
// ours. `tnr start 0` takes one over: this computer's new key is let in, and from then on it is a machine like any other.
#pragma once

#include "cli/commands/start.hpp"

namespace tnr::cli {

// Before a start: where its name is a number's (own_gpu.hpp) that no record has, that instance is taken over. What is to be
// started then; anything else as it came.
Result<StartOptions> taken_over(Session& session, StartOptions options);

}  // namespace tnr::cli
