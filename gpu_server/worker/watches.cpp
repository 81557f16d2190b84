// See watches.hpp.
#include "gpu_server/worker/watches.hpp"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

// How often events that found no thread are polled.
static constexpr std::chrono::milliseconds patrol_every{1};

void Watches::add(Watch watch) {
    auto entry = std::make_shared<Entry>();
    entry->watch = std::move(watch);
    {
        LockGuard lock(mutex_);
        untold_.push_back(entry);
        if (untold_.size() > threads_max) {
            if (!std::exchange(patrols_, true)) std::thread([this] { patrol(); }).detach();
            crowded_.notify_one();
        }
    }
    waiting_.run([this, entry] {
        if (entry->told) return;  // by the patrol
        driver().cuCtxSetCurrent(entry->watch.context);
        tell(*entry, driver().cuEventSynchronize(entry->watch.event.get()));
    });
}

void Watches::tell(Entry& entry, CUresult result) {
    if (entry.told.exchange(true)) return;
    completed_(entry.watch, result);
    LockGuard lock(mutex_);
    untold_.remove_if([&](auto& other) { return other.get() == &entry; });
}

void Watches::patrol() {
    while (true) {
        std::this_thread::sleep_for(patrol_every);
        std::vector<std::shared_ptr<Entry>> untold;
        {
            LockGuard lock(mutex_);
            while (untold_.size() <= threads_max) crowded_.wait(mutex_);
            untold.assign(untold_.begin(), untold_.end());
        }
        // The oldest have threads.
        for (size_t i = threads_max; i < untold.size(); ++i) {
            auto& watch = untold[i]->watch;
            driver().cuCtxSetCurrent(watch.context);
            auto result = driver().cuEventQuery(watch.event.get());
            if (result != CUDA_ERROR_NOT_READY) tell(*untold[i], result);
        }
    }
}

}  // namespace tnr::worker
