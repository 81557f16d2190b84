// An event of the driver that several of our threads may hold.
#pragma once

#include <memory>

#include "driver_table.hpp"

namespace tnr::worker {

// Destroyed when its last holder lets go, so that nobody waits for an event that is being destroyed. Whoever holds one
// on another thread also holds a use of its context (context_uses.hpp).
using SharedEvent = std::shared_ptr<CUevent_st>;

CUresult make_event(SharedEvent& event, unsigned flags);
// Makes an event and records it behind all work that `stream` holds now.
CUresult mark(SharedEvent& event, CUstream stream);
// True when the work before it is done or has failed. Any thread.
bool is_reached(const SharedEvent& event);

}  // namespace tnr::worker
