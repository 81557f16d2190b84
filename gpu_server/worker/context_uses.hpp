// Which contexts our own threads use: a context is destroyed only when none of them uses it.
#pragma once

#include <map>
#include <memory>

#include "api_client/base/mutex.hpp"
#include "driver_table.hpp"

namespace tnr::worker {

class ContextUses {
public:
    // A task that calls the driver in `context` holds one until it has ended.
    using Use = std::shared_ptr<void>;
    Use begin(CUcontext context) TNR_EXCLUDES(mutex_);

    // Blocks until nobody uses `context`. The caller sees to it that no use begins meanwhile. Users wait only for the
    // context's own work, which its destruction waits for as well.
    void wait_until_unused(CUcontext context) TNR_EXCLUDES(mutex_);

private:
    void end(CUcontext context) TNR_EXCLUDES(mutex_);

    Mutex mutex_;
    Condition ended_;
    std::map<CUcontext, size_t> users_ TNR_GUARDED_BY(mutex_);  // counts, all above 0
};

}  // namespace tnr::worker
