// See host_functions.hpp.
#include "gpu_server/worker/host_functions.hpp"

#include <algorithm>

namespace tnr::worker {

void HostFunctions::run(uint64_t ticket) {
    {
        LockGuard lock(mutex_);
        running_.push_back(ticket);
    }
    start_(ticket);
    LockGuard lock(mutex_);
    while (std::find(running_.begin(), running_.end(), ticket) != running_.end()) done_.wait(mutex_);
}

void HostFunctions::done(uint64_t ticket) {
    LockGuard lock(mutex_);
    std::erase(running_, ticket);
    done_.notify_all();
}

bool HostFunctions::any_running() {
    LockGuard lock(mutex_);
    return !running_.empty();
}

}  // namespace tnr::worker
