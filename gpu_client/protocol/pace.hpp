// How many bytes a sender may keep unreceived so that the line never runs dry: twice what the line carries in the time that
// word of an arrival takes to come back. Learned from those words alone.
//
// A short line needs little, and a receiver that is slow must not make us keep more; so what counts is the quickest
// answer yet, not the time that batches spend in queues. One connection's numbers say nothing of the next one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tnr::wire {

class Pace {
public:
    using Clock = std::chrono::steady_clock;
    // What was known when a batch was sent; comes back with the word of its arrival.
    struct Mark {
        Clock::time_point sent{};
        uint64_t arrived = 0;  // bytes, until then
    };

    Pace(size_t least, size_t most) : least_(least), most_(most), limit_(least) {}

    Mark mark(Clock::time_point now) const { return {now, arrived_}; }
    // Word has come that `bytes` more have arrived; `last` is the mark of the last batch among them.
    void arrived(size_t bytes, const Mark& last, Clock::time_point now);
    size_t limit() const { return limit_; }
    // Marks of before are not to be reported any more.
    void new_connection();

private:
    size_t least_, most_, limit_;
    uint64_t arrived_ = 0;
    std::chrono::nanoseconds quickest_ = std::chrono::nanoseconds::max();
};

}  // namespace tnr::wire
