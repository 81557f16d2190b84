// How far the worker's clock is ahead of ours.
#pragma once

#include <cstdint>

namespace tnr::cuda {

// The worker's clock minus ours, measured by round trips. A measurement is wrong by at most half its round trip, and
// less and less accurate as the clocks drift apart.
class WorkerClock {
public:
    int64_t offset_ns() const { return offset_ns_; }
    // How far the worker's count of records is behind ours: it begins when profiling does.
    uint64_t positions_behind = 0;
    // The worker said `worker_ns` between these two moments of ours.
    void compare(uint64_t asked_ns, uint64_t answered_ns, uint64_t worker_ns);

private:
    int64_t offset_ns_ = 0;
    uint64_t error_ns_ = UINT64_MAX;  // at most, when it was measured
    uint64_t measured_ns_ = 0;
};

}  // namespace tnr::cuda
