// See downloads.hpp.
#include "gpu_server/worker/downloads.hpp"

namespace tnr::worker {

uint64_t Downloads::begin(PastGpu past_gpu) {
    auto shared = std::make_shared<const PastGpu>(std::move(past_gpu));
    LockGuard lock(mutex_);
    copies_.emplace(next_, std::move(shared));
    return next_++;
}

void Downloads::end(uint64_t copy) {
    std::shared_ptr<const PastGpu> last;  // released after the lock
    LockGuard lock(mutex_);
    auto found = copies_.find(copy);
    last = std::move(found->second);
    copies_.erase(found);
    ended_.notify_all();
}

uint64_t Downloads::next() {
    LockGuard lock(mutex_);
    return next_;
}

// A copy of the list, so that the driver is asked without the lock.
std::vector<Downloads::Copy> Downloads::begun_before(uint64_t before) {
    std::vector<Copy> begun;
    LockGuard lock(mutex_);
    const auto end = copies_.lower_bound(before);
    for (auto copy = copies_.begin(); copy != end; ++copy) begun.push_back({copy->first, copy->second});
    return begun;
}

bool Downloads::any_leaving(uint64_t before) {
    for (auto& copy : begun_before(before))
        if ((*copy.past_gpu)()) return true;
    return false;
}

void Downloads::wait_until_gone(uint64_t before) {
    for (auto& copy : begun_before(before)) {
        if (!(*copy.past_gpu)()) continue;
        LockGuard lock(mutex_);
        while (copies_.contains(copy.number)) ended_.wait(mutex_);
    }
}

}  // namespace tnr::worker
