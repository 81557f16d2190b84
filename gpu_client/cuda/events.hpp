// Events, and when they are known to be complete without asking.
#pragma once

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// The worker's word that the event's record at `position` is complete.
void event_completed(uint64_t number, uint64_t position);
// The context ends, and they with it.
void forget_events_of(const Context& context);

}  // namespace tnr::cuda
