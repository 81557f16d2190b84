// Where threads leave the events of a profile until its writer takes them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_client/protocol/profile_records.hpp"

namespace tnr::cuda {

struct ProfileEvent {
    enum class Kind : uint8_t { begin, end, appended, batch_sent, batch_received };
    Kind kind;
    uint32_t thread;
    uint64_t when_ns;            // by steady_clock
    const char* name = nullptr;  // begin: of the slice; valid for ever, as is `why`
    const char* why = nullptr;   // begin: what a wait is for
    uint64_t number = 0;         // end: the result; appended: the position; batches: the sequence
    uint64_t bytes = 0, records = 0;
};

class ProfileBuffer {
public:
    // 16 MiB.
    static constexpr size_t events_max = size_t{1} << 18;

    // False if the event was dropped, and counted. A slice that has begun is sure of room for its end.
    bool add(const ProfileEvent& event) TNR_EXCLUDES(mutex_);
    void add_worker(std::span<const wire::ProfiledRecord> records) TNR_EXCLUDES(mutex_);
    void add_kernel(uint64_t function, const std::string& name) TNR_EXCLUDES(mutex_);
    void add_thread(uint32_t thread, const std::string& name) TNR_EXCLUDES(mutex_);

    struct Contents {
        std::vector<ProfileEvent> events;
        std::vector<wire::ProfiledRecord> worker;
        std::map<uint64_t, std::string> kernels;  // by function number
        std::map<uint32_t, std::string> threads;
        uint64_t dropped = 0;
    };
    // All that was added since the last time.
    Contents take() TNR_EXCLUDES(mutex_);

    // For the writer: sleeps until stop() is called, the buffer is half full or the time is over. True: stopped.
    bool wait(std::chrono::milliseconds at_most) TNR_EXCLUDES(mutex_);
    void stop() TNR_EXCLUDES(mutex_);
    // The writer calls finished() when it has written everything and ends; wait_until_finished() waits for that, but
    // not for ever.
    void finished() TNR_EXCLUDES(mutex_);
    void wait_until_finished(std::chrono::milliseconds at_most) TNR_EXCLUDES(mutex_);

private:
    Mutex mutex_;  // a leaf: taken inside the session's locks
    Contents now_ TNR_GUARDED_BY(mutex_);
    size_t open_slices_ TNR_GUARDED_BY(mutex_) = 0;
    bool stopped_ TNR_GUARDED_BY(mutex_) = false;
    bool finished_ TNR_GUARDED_BY(mutex_) = false;
    Condition changed_;
};

// This process's. Never destroyed.
ProfileBuffer& profile_buffer();
// By steady_clock, in nanoseconds.
uint64_t profile_now();

}  // namespace tnr::cuda
