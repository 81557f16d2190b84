// See tasks.hpp.
#include "gpu_server/worker/tasks.hpp"

#include <thread>

namespace tnr::worker {

void WaitingThreads::run(Task task) {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (idle_ >= tasks_.size() || threads_ >= waiting_threads_max) {
        more_.notify_one();
        return;
    }
    ++threads_;
    std::thread([this] { work(); }).detach();
}

void WaitingThreads::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        ++idle_;
        more_.wait(lock, [&] { return !tasks_.empty(); });
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
    std::lock_guard lock(mutex_);
    auto& queue = queues_[key];
    if (!queue) {
        queue = std::make_shared<Queue>();
        std::thread([this, queue] { work(queue); }).detach();
    }
    queue->tasks.push_back(std::move(task));
    queue->more.notify_one();
}

void StreamQueues::work(std::shared_ptr<Queue> queue) {
    std::unique_lock lock(mutex_);
    while (true) {
        queue->more.wait(lock, [&] { return queue->closed || !queue->tasks.empty(); });
        if (queue->tasks.empty()) return;
        auto task = std::move(queue->tasks.front());
        queue->tasks.pop_front();
        queue->running = true;
        lock.unlock();
        task();
        task = nullptr;
        lock.lock();
        queue->running = false;
    }
}

bool StreamQueues::idle(uint64_t key) {
    std::lock_guard lock(mutex_);
    auto found = queues_.find(key);
    return found == queues_.end() || (found->second->tasks.empty() && !found->second->running);
}

bool StreamQueues::all_idle() {
    std::lock_guard lock(mutex_);
    for (auto& [key, queue] : queues_)
        if (!queue->tasks.empty() || queue->running) return false;
    return true;
}

void StreamQueues::close(uint64_t key) {
    std::lock_guard lock(mutex_);
    auto found = queues_.find(key);
    if (found == queues_.end()) return;
    found->second->closed = true;
    found->second->more.notify_one();
    queues_.erase(found);
}

}  // namespace tnr::worker
