// The worker's part of a profile: asking for what it has seen, and what our clock said when its did.
#pragma once

#include <cstdint>
#include <span>

#include "gpu_client/cuda/session.hpp"
#include "gpu_client/protocol/profile_records.hpp"

namespace tnr::cuda {

// The worker's clock minus ours, by round trips: what a quick one tells is wrong by at most half of it, and less and less
// right as the clocks drift apart.
class WorkerClock {
public:
    int64_t offset_ns() const { return offset_ns_; }
    // Its count of records is behind ours by so much: it began when it was told to.
    uint64_t positions_behind = 0;
    // The worker said `worker_ns` between these two moments of ours.
    void compare(uint64_t asked_ns, uint64_t answered_ns, uint64_t worker_ns);

private:
    int64_t offset_ns_ = 0;
    uint64_t error_ns_ = UINT64_MAX;  // at most, when it was measured
    uint64_t measured_ns_ = 0;
};

uint64_t profile_now();

// Makes the worker watch from here on.
void profile_session(Session& session);
// Compares the clocks, and has the worker's records sent: take_profiled() gets them before this returns. Returns how many the
// worker has had to drop since it was last asked.
uint64_t ask_worker(Session& session, WorkerClock& clock);

// What wire::Profiled has brought. Any thread; must not wait.
void take_profiled(std::span<const wire::ProfiledRecord> records);

}  // namespace tnr::cuda
