// See pace.hpp.
#include "gpu_client/protocol/pace.hpp"

#include <algorithm>

namespace tnr::wire {

void Pace::arrived(size_t bytes, const Mark& last, Clock::time_point now) {
    arrived_ += bytes;
    auto took = std::max<std::chrono::nanoseconds>(now - last.sent, std::chrono::microseconds(1));
    quickest_ = std::min(quickest_, took);
    // While the limit holds us back, what arrives within one answer's time is the limit, so it doubles until the line
    // is full. It never shrinks: a program that was quiet for a while need not learn again.
    double per_ns = static_cast<double>(arrived_ - last.arrived) / static_cast<double>(took.count());
    auto wanted = static_cast<size_t>(2 * per_ns * static_cast<double>(quickest_.count()));
    limit_ = std::clamp(wanted, std::max(limit_, least_), most_);
}

void Pace::new_connection() {
    limit_ = least_;
    quickest_ = std::chrono::nanoseconds::max();
}

}  // namespace tnr::wire
