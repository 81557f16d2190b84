// How many unreceived bytes a sender may keep so that the line never runs dry: twice what the line carries in the time
// that a receipt takes to come back. Learned from receipts alone.
//
// A short line needs little, and a slow receiver must not make us keep more; so what counts is the quickest receipt
// yet, not the time that batches spend in queues. One connection's numbers say nothing about the next one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tnr::wire {

class Pace {
public:
    using Clock = std::chrono::steady_clock;
    // What was known when a batch was sent; handed back with its receipt.
    struct Mark {
        Clock::time_point sent{};
        uint64_t arrived = 0;  // bytes, until then
    };

    Pace(size_t least, size_t most) : least_(least), most_(most), limit_(least) {}

    Mark mark(Clock::time_point now) const { return {now, arrived_}; }
    // A receipt says that `bytes` more have arrived; `last` is the mark of the last batch among them.
    void arrived(size_t bytes, const Mark& last, Clock::time_point now);
    size_t limit() const { return limit_; }
    // Marks made before this must not be reported any more.
    void new_connection();

private:
    size_t least_, most_, limit_;
    uint64_t arrived_ = 0;
    std::chrono::nanoseconds quickest_ = std::chrono::nanoseconds::max();
};

}  // namespace tnr::wire
