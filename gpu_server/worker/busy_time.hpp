// How long the GPUs of a session had work: what the ledger calls busy. The dispatcher's.
//
// No driver tells when a GPU is at work, but each tells of a stream whether something in it is unfinished. So the dispatcher
// asks, some thirty times a second and at moments that do not follow the program's own: if any of the session's streams on a
// device has unfinished work, the time since the last look counts as busy for that device. A kernel that is queued behind
// another process's counts, too; a copy counts like a kernel. Once nothing is unfinished, nobody is asked until the next
// record comes, so that an idle program costs nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>

#include "gpu_server/worker/handles.hpp"

namespace tnr::worker {

class BusyTime {
public:
    using Clock = std::chrono::steady_clock;

    // A look asks about every stream, so programs with very many are asked about some.
    static constexpr size_t streams_looked_at_max = 1024;
    // Between two looks; chosen anew each time, in between. A look at ten streams takes some microseconds.
    static constexpr std::chrono::milliseconds look_after_min{15}, look_after_max{45};
    // What one look may add: a dispatcher that was held up for longer does not know what was meanwhile.
    static constexpr std::chrono::milliseconds counted_max{250};

    explicit BusyTime(Handles& handles) : handles_(handles) {}

    // A record has come: there may be work from now on.
    void touched(Clock::time_point now);
    // Looks if it is time to, and returns within which time it wants to be asked again. `steady`: no other thread is
    // destroying what it would ask about.
    std::chrono::milliseconds look_within(std::chrono::milliseconds otherwise, bool steady);
    // So far. Any thread.
    uint64_t milliseconds() const { return busy_us_ / 1000; }

private:
    int devices_at_work();
    bool context_at_work(uint64_t number, size_t& left);

    Handles& handles_;
    std::minstd_rand random_{std::random_device{}()};
    bool asleep_ = true;  // nothing is unfinished, as far as is known
    Clock::time_point looked_{}, next_{};
    std::atomic<uint64_t> busy_us_{0};  // of all devices
};

}  // namespace tnr::worker
