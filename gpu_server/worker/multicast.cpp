// See multicast.hpp.
#include "gpu_server/worker/multicast.hpp"

namespace tnr::worker {

std::shared_ptr<void> Places::take() {
    if (taken_.fetch_add(1) < max_) return {this, [](Places* places) { --places->taken_; }};
    --taken_;
    return nullptr;
}

void Multicast::bound(uint64_t offset, uint64_t bytes, std::shared_ptr<Physical> memory, std::shared_ptr<void> place) {
    LockGuard lock(mutex_);
    bindings_.push_back({offset, bytes, std::move(memory), std::move(place)});
}

void Multicast::unbound(uint32_t device, uint64_t offset, uint64_t bytes) {
    std::list<Binding> gone;  // given up without the lock
    LockGuard lock(mutex_);
    for (auto at = bindings_.begin(); at != bindings_.end();) {
        auto binding = at++;
        bool inside =
            binding->offset >= offset && binding->bytes <= bytes && binding->offset - offset <= bytes - binding->bytes;
        if (inside && binding->memory->device == device) gone.splice(gone.end(), bindings_, binding);
    }
}

}  // namespace tnr::worker
