// The client's host functions. A stream that reaches one waits, inside the driver, until the client has run it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_server/worker/standing.hpp"

namespace tnr::worker {

// Any thread.
class HostFunctions {
public:
    // `start` has the client run the function with this ticket. It is called on a thread of the driver, so it must
    // neither call the driver nor block.
    HostFunctions(std::function<void(uint64_t ticket)> start, Standing& standing)
        : start_(std::move(start)), standing_(standing) {}

    // Called by the driver when the stream reaches the function. Blocks until done(ticket).
    void run(uint64_t ticket) TNR_EXCLUDES(mutex_);
    // The same for a function that graphs reach: `start` has the client run it, under a number of ours for done(), since
    // two launches may reach it at once.
    void run_again(const std::function<void(uint64_t run)>& start) TNR_EXCLUDES(mutex_);
    // Call it when the client has run the function. Tickets that are not running are ignored.
    void done(uint64_t ticket) TNR_EXCLUDES(mutex_);
    bool any_running() TNR_EXCLUDES(mutex_);

private:
    void wait_until_done(uint64_t number) TNR_EXCLUDES(mutex_);

    std::function<void(uint64_t)> start_;
    Standing& standing_;
    Mutex mutex_;
    Condition done_;
    uint64_t last_run_ TNR_GUARDED_BY(mutex_) = 0;
    std::vector<uint64_t> running_ TNR_GUARDED_BY(mutex_);
};

// What functions beside each other see of one copy. It is sent to the one that a launch reaches first: sent once more, it
// would undo what that one has changed. Launches of an instance follow each other, and each reaches all of them.
struct SeenTogether {
    unsigned functions = 0;
    std::atomic<unsigned> reached{0};

    bool is_first() { return reached++ % functions == 0; }
};

// A part of device memory that a function of a graph sees a copy of, and where that is in what the client takes for one
// copy of all.
struct SeenPart {
    uint64_t address, bytes, offset;
    std::shared_ptr<SeenTogether> together = nullptr;  // null: it is sent each time
};

// By the functions' tickets. Any thread.
class SeenByFunctions {
public:
    std::vector<SeenPart> of(uint64_t ticket) TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        auto found = parts_.find(ticket);
        return found == parts_.end() ? std::vector<SeenPart>() : found->second;
    }
    void set(uint64_t ticket, std::vector<SeenPart> parts) TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        if (parts.empty())
            parts_.erase(ticket);
        else
            parts_[ticket] = std::move(parts);
    }

private:
    Mutex mutex_;
    std::unordered_map<uint64_t, std::vector<SeenPart>> parts_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::worker
