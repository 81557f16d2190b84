// The client's host functions. A stream that reaches one waits, inside the driver, until the client has run it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "api_client/base/mutex.hpp"

namespace tnr::worker {

// Any thread.
class HostFunctions {
public:
    // `start` has the client run the function with this ticket. It is called on a thread of the driver, so it must
    // neither call the driver nor block.
    explicit HostFunctions(std::function<void(uint64_t ticket)> start) : start_(std::move(start)) {}

    // Called by the driver when the stream reaches the function. Blocks until done(ticket).
    void run(uint64_t ticket) TNR_EXCLUDES(mutex_);
    // Call it when the client has run the function. Tickets that are not running are ignored.
    void done(uint64_t ticket) TNR_EXCLUDES(mutex_);
    bool any_running() TNR_EXCLUDES(mutex_);

private:
    std::function<void(uint64_t)> start_;
    Mutex mutex_;
    Condition done_;
    std::vector<uint64_t> running_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::worker
