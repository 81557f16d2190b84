// How many streams stand until the client has done something: has run a host function, has received a part of a copy.
#pragma once

#include <cstddef>

#include "api_client/base/mutex.hpp"

namespace tnr::worker {

// Any thread.
class Standing {
public:
    void begins() TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        ++streams_;
        some_.notify_all();
    }
    void ends() TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        --streams_;
    }
    bool any() TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        return streams_ > 0;
    }
    void wait_for_any() TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        while (streams_ == 0) some_.wait(mutex_);
    }

private:
    Mutex mutex_;
    Condition some_;
    size_t streams_ TNR_GUARDED_BY(mutex_) = 0;
};

}  // namespace tnr::worker
