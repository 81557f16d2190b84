// The worker's part of a profile: asking for what it has seen, and what our clock said when its did.
#pragma once

#include <cstdint>
#include <span>

#include "gpu_client/cuda/session.hpp"
#include "gpu_client/protocol/profile_records.hpp"

namespace tnr::cuda {

// The worker's clock minus ours. The quickest of some round trips tells it best: the error is at most half of that one.
struct WorkerClock {
    int64_t offset_ns = 0;
};

uint64_t profile_now();

// Makes the worker watch from its session's first record on: to be called before anything else is appended.
void profile_session(Session& session);
// Sets the clock anew, and has the worker's records sent: take_profiled() gets them before this returns. Returns how many the
// worker has had to drop since it was last asked.
uint64_t ask_worker(Session& session, WorkerClock& clock);

// What op_profiled has brought. Any thread; must not wait.
void take_profiled(std::span<const wire::ProfiledRecord> records);
// False: no op_profiled.
bool take_profiled(wire::Reader in);

}  // namespace tnr::cuda
