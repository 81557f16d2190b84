#include "gpu_server/emulated_gpu/driver/work.hpp"

#include <system_error>
#include <thread>

#include "api_client/base/mutex.hpp"

namespace tnr::emulated {
namespace {

// A GPU runs 128 kernels at once. A process may not have any number of threads, and a program may have ten thousand streams.
constexpr size_t pool_threads_max = 256;

// Idle threads, each waiting for a job. Never destroyed: threads may outlive static destructors.
struct Pool {
    Mutex mutex;
    Condition wake;
    std::deque<std::function<void()>> jobs TNR_GUARDED_BY(mutex);
    size_t threads TNR_GUARDED_BY(mutex) = 0;
    size_t idle TNR_GUARDED_BY(mutex) = 0;
};

Pool& pool() {
    static Pool& instance = *new Pool;
    return instance;
}

void serve() {
    Pool& p = pool();
    for (;;) {
        std::function<void()> job;
        {
            LockGuard lock(p.mutex);
            ++p.idle;
            p.wake.wait(p.mutex, [&]() TNR_REQUIRES(p.mutex) { return !p.jobs.empty(); });
            --p.idle;
            job = std::move(p.jobs.front());
            p.jobs.pop_front();
        }
        job();
    }
}

}  // namespace

void run_on_pool(std::function<void()> job) {
    Pool& p = pool();
    LockGuard lock(p.mutex);
    p.jobs.push_back(std::move(job));
    if (p.idle >= p.jobs.size() || p.threads >= pool_threads_max) {
        p.wake.notify_one();
        return;
    }
    try {
        std::thread(serve).detach();
        ++p.threads;
    } catch (const std::system_error&) {
        if (p.threads == 0) throw;  // else one of those that there are takes it
    }
}

bool Point::passed() const {
    return !queue || queue->passed(ticket);
}

void Point::wait() const {
    if (queue) queue->wait(ticket);
}

Point Queue::submit(Item item, std::vector<Point> after) {
    LockGuard lock(mutex_);
    waiting_.push_back({std::move(item), std::move(after)});
    Point point{shared_from_this(), ++submitted_};
    if (!draining_) start_draining();
    return point;
}

void Queue::start_draining() {
    draining_ = true;
    run_on_pool([self = shared_from_this()] { self->drain(); });
}

Queue::Placed Queue::place(Item item, std::vector<Point> after) {
    LockGuard lock(mutex_);
    if (draining_) {
        waiting_.push_back({std::move(item), std::move(after)});
        return {++submitted_};
    }
    draining_ = true;
    return {++submitted_, std::move(item), std::move(after)};
}

void Queue::complete(Placed placed) {
    if (!placed.item) return wait(placed.ticket);
    for (const Point& point : placed.after) point.wait();
    placed.item();
    LockGuard lock(mutex_);
    completed_one();
    if (waiting_.empty())
        draining_ = false;
    else
        start_draining();
}

// Keeps no thread while an item waits for another queue: queues that wait may be more than there are threads.
void Queue::drain() {
    UniqueLock lock(mutex_);
    while (!waiting_.empty()) {
        auto& after = waiting_.front().after;  // stays where it is while others append
        while (!after.empty()) {
            Point point = std::move(after.back());
            after.pop_back();
            lock.unlock();
            if (point.queue && point.queue->goes_on_behind(point.ticket, shared_from_this())) return;
            lock.lock();
        }
        Entry entry = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        entry.item();
        entry = {};  // before anybody learns that it is done: what it holds may be waited for
        lock.lock();
        completed_one();
    }
    draining_ = false;
}

bool Queue::goes_on_behind(uint64_t ticket, std::shared_ptr<Queue> other) {
    LockGuard lock(mutex_);
    if (completed_ >= ticket) return false;
    behind_.emplace(ticket, std::move(other));
    return true;
}

void Queue::completed_one() {
    ++completed_;
    progress_.notify_all();
    while (!behind_.empty() && behind_.begin()->first <= completed_) {
        run_on_pool([queue = std::move(behind_.begin()->second)] { queue->drain(); });
        behind_.erase(behind_.begin());
    }
}

Point Queue::last() {
    LockGuard lock(mutex_);
    return {shared_from_this(), submitted_};
}

bool Queue::passed(uint64_t ticket) {
    LockGuard lock(mutex_);
    return completed_ >= ticket;
}

void Queue::wait(uint64_t ticket) {
    LockGuard lock(mutex_);
    progress_.wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return completed_ >= ticket; });
}

}  // namespace tnr::emulated
