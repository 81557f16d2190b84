// The client's user objects: what graphs keep alive. The driver counts; when it lets one go, the client is told.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "api_client/base/mutex.hpp"
#include "driver_table.hpp"

namespace tnr::worker {

// Any thread: the driver tells from its own.
class UserObjects {
public:
    // Null when the number is unknown, or the object gone.
    CUuserObject find(uint64_t number) TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        auto found = objects_.find(number);
        return found == objects_.end() ? nullptr : found->second;
    }
    // False if the number is taken.
    bool add(uint64_t number, CUuserObject object) TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        return objects_.emplace(number, object).second;
    }
    void remove(uint64_t number) TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        objects_.erase(number);
    }

private:
    Mutex mutex_;
    std::unordered_map<uint64_t, CUuserObject> objects_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::worker
