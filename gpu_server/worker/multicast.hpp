// Multicast objects, and what is bound to them: bound memory stays charged to the session until it is unbound or the
// object has gone, as the driver keeps it for so long. Any thread: bindings are made where they wait for the team.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>

#include "api_client/base/mutex.hpp"
#include "gpu_server/worker/limits.hpp"
#include "gpu_server/worker/memory_accounts.hpp"

namespace tnr::worker {

// Counts what a session holds of something that has a limit. It outlives what was taken from it.
class Places {
public:
    explicit Places(size_t max) : max_(max) {}
    // Null if all are taken. The place is free again when the last copy has gone.
    std::shared_ptr<void> take();

private:
    const size_t max_;
    std::atomic<size_t> taken_{0};
};

struct MulticastPlaces {
    Places objects{multicast_objects_max};
    Places bindings{multicast_bindings_max};
    Places waits{multicast_waits_max};
};

class Multicast {
public:
    // `place`: one of the session's for objects. `borrowed`: what lasts as long as the object; null for our own.
    explicit Multicast(std::shared_ptr<void> place, std::shared_ptr<void> borrowed = {})
        : place_(std::move(place)), borrowed_(std::move(borrowed)) {}

    // The driver has bound memory of `device`. `place`: one of the session's for bindings.
    void bound(uint64_t offset, uint64_t bytes, std::shared_ptr<Physical> memory, std::shared_ptr<void> place)
        TNR_EXCLUDES(mutex_);
    // The driver has unbound what the device had in [offset, offset + bytes).
    void unbound(uint32_t device, uint64_t offset, uint64_t bytes) TNR_EXCLUDES(mutex_);

private:
    struct Binding {
        uint64_t offset = 0, bytes = 0;
        std::shared_ptr<Physical> memory;
        std::shared_ptr<void> place;
    };
    const std::shared_ptr<void> place_, borrowed_;
    Mutex mutex_;
    std::list<Binding> bindings_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::worker
