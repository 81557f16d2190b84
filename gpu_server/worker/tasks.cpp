// See tasks.hpp.
#include "gpu_server/worker/tasks.hpp"

#include <thread>
#include <utility>

namespace tnr::worker {

void WaitingThreads::run(Task task) {
    LockGuard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (idle_ >= tasks_.size() || threads_ >= threads_max_) {
        more_.notify_one();
        return;
    }
    ++threads_;
    std::thread([this] { work(); }).detach();
}

bool WaitingThreads::idle() {
    LockGuard lock(mutex_);
    return tasks_.empty() && idle_ == threads_;
}

void WaitingThreads::work() {
    UniqueLock lock(mutex_);
    while (true) {
        ++idle_;
        while (tasks_.empty()) more_.wait(mutex_);
        --idle_;
        auto task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task();
        task = nullptr;  // what it holds is let go before the next wait
        lock.lock();
    }
}

void StreamQueues::post(uint64_t key, Task task) {
    LockGuard lock(mutex_);
    auto& queue = queues_[key];
    if (!queue) queue = std::make_shared<Queue>();
    queue->tasks.push_back({posted_++, std::move(task)});
    if (!std::exchange(queue->busy, true)) ready(queue);
}

void StreamQueues::ready(std::shared_ptr<Queue> queue) {
    auto position = queue->tasks.front().position;
    ready_.emplace(position, std::move(queue));
    if (idle_ >= ready_.size() || threads_ >= queue_threads_max) {
        more_.notify_one();
        return;
    }
    ++threads_;
    std::thread([this] { work(); }).detach();
}

void StreamQueues::work() {
    UniqueLock lock(mutex_);
    while (true) {
        ++idle_;
        while (ready_.empty()) more_.wait(mutex_);
        --idle_;
        auto queue = std::move(ready_.begin()->second);
        ready_.erase(ready_.begin());
        auto task = std::move(queue->tasks.front().task);
        queue->tasks.pop_front();
        lock.unlock();
        task();
        task = nullptr;  // what it holds is let go before the next wait
        lock.lock();
        // This thread goes on with what is first; it is one of those that are not idle, so no other is woken.
        if (queue->tasks.empty())
            queue->busy = false;
        else
            ready_.emplace(queue->tasks.front().position, std::move(queue));
    }
}

void StreamQueues::close(uint64_t key) {
    LockGuard lock(mutex_);
    queues_.erase(key);
}

}  // namespace tnr::worker
