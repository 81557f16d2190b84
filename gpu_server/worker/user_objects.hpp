// The client's user objects: what graphs keep alive. The driver counts; when it lets one go, the client is told.
#pragma once

#include <cstdint>

#include "api_client/base/mutex.hpp"
#include "driver_table.hpp"
#include "gpu_server/worker/numbered_handles.hpp"

namespace tnr::worker {

// Any thread: the driver tells from its own.
class UserObjects {
public:
    // Null when the number is unknown, or the object gone.
    CUuserObject find(uint64_t number) TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        auto* found = objects_.find(number);
        return found ? *found : nullptr;
    }
    CUresult room_for(uint64_t number) TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        return objects_.room_for(number);
    }
    // False if the number is taken, or there are too many.
    bool add(uint64_t number, CUuserObject object) TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        return objects_.add(number, object);
    }
    void remove(uint64_t number) TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        objects_.remove(number);
    }

private:
    Mutex mutex_;
    NumberedHandles<CUuserObject> objects_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::worker
