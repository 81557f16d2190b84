// Events, and when they are known to be complete without asking.
#pragma once

#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/protocol/exchange_records.hpp"

namespace tnr::cuda {

// The worker reports that the event, as recorded at `position`, is complete.
void event_completed(uint64_t number, uint64_t position);
// Destroys the events of a context that ends.
void forget_events_of(const Context& context);

// The name under which the claim's other processes find the event, which must be of several processes
// (CU_EVENT_INTERPROCESS); and an event of this process that is another one's.
CUresult lend_event(CUevent handle, wire::ThingName& name);
CUresult borrow_event(const wire::ThingName& name, CUevent& handle);

}  // namespace tnr::cuda
