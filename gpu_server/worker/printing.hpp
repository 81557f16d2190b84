// Device printf. A driver writes it to the process's stdout; the worker's stdout is a pipe to itself, and what comes
// out of it goes to the client.
#pragma once

#include <functional>
#include <string_view>

#include "api_client/base/handles.hpp"
#include "api_client/base/mutex.hpp"

namespace tnr::worker {

class PrintCapture {
public:
    // From now on stdout belongs to the client. `tell` is called with what was printed, from several threads but never
    // concurrently.
    void start(std::function<void(std::string_view)> tell);
    // Call it after a wait for the GPU. When it returns, everything printed so far has been told.
    void flush() TNR_EXCLUDES(mutex_);

private:
    bool read_once() TNR_REQUIRES(mutex_);

    Mutex mutex_;  // what is read is told before anybody else reads
    std::function<void(std::string_view)> tell_;
    UniqueFd read_end_;
};

}  // namespace tnr::worker
