// The worker's part of a profile: asking for what it has seen.
#pragma once

#include <cstdint>

#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/profile_clock.hpp"

namespace tnr::cuda {

// Makes the worker watch from here on.
void profile_session(ClientSession& session);
// Compares the clocks and fetches the worker's records, which are in the profile's buffer on return. Returns how many
// the worker has dropped since it was last asked.
uint64_t ask_worker(ClientSession& session, WorkerClock& clock);

}  // namespace tnr::cuda
