// Events, and when they are known to be complete without asking.
#pragma once

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// The worker reports that the event, as recorded at `position`, is complete.
void event_completed(uint64_t number, uint64_t position);
// Destroys the events of a context that ends.
void forget_events_of(const Context& context);

}  // namespace tnr::cuda
