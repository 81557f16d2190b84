// Which contexts our own threads are at work in: a context is not destroyed under them.
#pragma once

#include <map>
#include <memory>

#include "api_client/base/mutex.hpp"
#include "driver_table.hpp"

namespace tnr::worker {

class ContextUses {
public:
    // Held by a task that will call the driver in `context`, until it has ended.
    using Use = std::shared_ptr<void>;
    Use begin(CUcontext context) TNR_EXCLUDES(mutex_);

    // Blocks until nobody uses `context` any more. No use may begin meanwhile. What users wait for is the context's own
    // work, which its destruction waits for as well.
    void wait_until_unused(CUcontext context) TNR_EXCLUDES(mutex_);

private:
    void end(CUcontext context) TNR_EXCLUDES(mutex_);

    Mutex mutex_;
    Condition ended_;
    std::map<CUcontext, size_t> users_ TNR_GUARDED_BY(mutex_);  // more than none
};

}  // namespace tnr::worker
