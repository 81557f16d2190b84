// What the worker's clock says when ours says something.
#pragma once

#include <cstdint>

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

}  // namespace tnr::cuda
