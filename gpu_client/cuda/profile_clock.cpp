// See profile_clock.hpp.
#include "gpu_client/cuda/profile_clock.hpp"

namespace tnr::cuda {

// Crystals of two computers differ by 50 millionths at most.
static constexpr uint64_t drift_divisor = 20'000;

void WorkerClock::compare(uint64_t asked_ns, uint64_t answered_ns, uint64_t worker_ns) {
    uint64_t half = (answered_ns - asked_ns) / 2, drifted = (answered_ns - measured_ns_) / drift_divisor;
    if (measured_ns_ != 0 && half >= error_ns_ + drifted) return;
    offset_ns_ = static_cast<int64_t>(worker_ns - (asked_ns + half));
    error_ns_ = half;
    measured_ns_ = answered_ns;
}

}  // namespace tnr::cuda
