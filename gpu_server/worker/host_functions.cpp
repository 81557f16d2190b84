// See host_functions.hpp.
#include "gpu_server/worker/host_functions.hpp"

#include <algorithm>

#include "gpu_client/protocol/record.hpp"

namespace tnr::worker {

void HostFunctions::run(uint64_t ticket) {
    {
        LockGuard lock(mutex_);
        running_.push_back(ticket);
    }
    start_(ticket);
    wait_until_done(ticket);
}

void HostFunctions::run_again(const std::function<void(uint64_t)>& start) {
    uint64_t run = 0;
    {
        LockGuard lock(mutex_);
        run = wire::first_number_of_worker + ++last_run_;
        running_.push_back(run);
    }
    start(run);
    wait_until_done(run);
}

void HostFunctions::wait_until_done(uint64_t number) {
    standing_.begins();
    {
        LockGuard lock(mutex_);
        while (std::find(running_.begin(), running_.end(), number) != running_.end()) done_.wait(mutex_);
    }
    standing_.ends();
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
