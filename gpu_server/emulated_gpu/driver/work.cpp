#include "gpu_server/emulated_gpu/driver/work.hpp"

#include <thread>

#include "api_client/base/mutex.hpp"

namespace tnr::emulated {
namespace {

// Idle threads, each waiting for a job. Never destroyed: threads may outlive static destructors.
struct Pool {
    Mutex mutex;
    Condition wake;
    std::deque<std::function<void()>> jobs TNR_GUARDED_BY(mutex);
    size_t idle TNR_GUARDED_BY(mutex) = 0;
};

Pool& pool() {
    static Pool& instance = *new Pool;
    return instance;
}

void serve(std::function<void()> job) {
    Pool& p = pool();
    for (;;) {
        job();
        job = nullptr;  // what it holds is released before we wait
        LockGuard lock(p.mutex);
        ++p.idle;
        p.wake.wait(p.mutex, [&]() TNR_REQUIRES(p.mutex) { return !p.jobs.empty(); });
        --p.idle;
        job = std::move(p.jobs.front());
        p.jobs.pop_front();
    }
}

}  // namespace

void run_on_pool(std::function<void()> job) {
    Pool& p = pool();
    {
        LockGuard lock(p.mutex);
        if (p.idle > p.jobs.size()) {
            p.jobs.push_back(std::move(job));
            p.wake.notify_one();
            return;
        }
    }
    std::thread(serve, std::move(job)).detach();
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
    ++completed_;
    progress_.notify_all();
    if (waiting_.empty())
        draining_ = false;
    else
        start_draining();
}

void Queue::drain() {
    UniqueLock lock(mutex_);
    while (!waiting_.empty()) {
        Entry entry = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        for (const Point& point : entry.after) point.wait();
        entry.item();
        entry = {};  // before anybody learns that it is done: what it holds may be waited for
        lock.lock();
        ++completed_;
        progress_.notify_all();
    }
    draining_ = false;
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
