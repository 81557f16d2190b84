// See tasks.hpp.
#include "gpu_server/worker/tasks.hpp"

#include <thread>

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
    if (!queue) {
        queue = std::make_shared<Queue>();
        std::thread([this, queue] { work(queue); }).detach();
    }
    queue->tasks.push_back(std::move(task));
    queue->more.notify_one();
}

void StreamQueues::work(std::shared_ptr<Queue> queue) {
    UniqueLock lock(mutex_);
    while (true) {
        while (!queue->closed && queue->tasks.empty()) queue->more.wait(mutex_);
        if (queue->tasks.empty()) return;
        auto task = std::move(queue->tasks.front());
        queue->tasks.pop_front();
        lock.unlock();
        task();
        task = nullptr;
        lock.lock();
    }
}

void StreamQueues::close(uint64_t key) {
    LockGuard lock(mutex_);
    auto found = queues_.find(key);
    if (found == queues_.end()) return;
    found->second->closed = true;
    found->second->more.notify_one();
    queues_.erase(found);
}

}  // namespace tnr::worker
