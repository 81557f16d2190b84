// Work in order: a Stream is a queue of functions, run one after another on some thread; a Point is a place
// in such a queue that others can wait for. Knows nothing of contexts: rules between streams are the
// context's (context.hpp).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "api_client/base/mutex.hpp"

namespace tnr::emulated {

class Queue;

// "Everything up to and including the item `ticket` of `queue`". A default Point is in the past.
struct Point {
    std::shared_ptr<Queue> queue;
    uint64_t ticket = 0;

    bool passed() const;
    void wait() const;
};

// Thread-safe. Items start in the order of their submission and only when their `after` points have passed;
// these must have been submitted before, so a cycle cannot arise. An item must not throw.
class Queue : public std::enable_shared_from_this<Queue> {
public:
    using Item = std::function<void()>;

    // Runs `item` in its turn on a pool thread.
    Point submit(Item item, std::vector<Point> after = {});
    // Runs `item` in its turn and returns when it is done: on this thread if the queue is idle, which
    // saves two thread switches for a synchronous copy. In two steps, so that the caller's lock can decide the order:
    // place() gives the item its place and does not wait; complete() must follow, without a lock.
    struct Placed;
    Placed place(Item item, std::vector<Point> after);
    void complete(Placed placed) TNR_EXCLUDES(mutex_);

    Point last();  // the newest item
    bool passed(uint64_t ticket);
    void wait(uint64_t ticket) TNR_EXCLUDES(mutex_);

private:
    struct Entry {
        Item item;
        std::vector<Point> after;
    };
    void start_draining() TNR_REQUIRES(mutex_);
    void drain() TNR_EXCLUDES(mutex_);
    // True if `other`, which is being drained, will be drained further once `ticket` has passed; false if it has already.
    bool goes_on_behind(uint64_t ticket, std::shared_ptr<Queue> other) TNR_EXCLUDES(mutex_);
    void completed_one() TNR_REQUIRES(mutex_);

    Mutex mutex_;
    Condition progress_;
    std::deque<Entry> waiting_ TNR_GUARDED_BY(mutex_);
    std::multimap<uint64_t, std::shared_ptr<Queue>> behind_ TNR_GUARDED_BY(mutex_);  // by the ticket they wait for
    uint64_t submitted_ TNR_GUARDED_BY(mutex_) = 0;
    uint64_t completed_ TNR_GUARDED_BY(mutex_) = 0;
    // Some thread is running items, or another queue will go on with them, until none is left.
    bool draining_ TNR_GUARDED_BY(mutex_) = false;
};

// An item that has its place in a queue.
struct Queue::Placed {
    uint64_t ticket = 0;
    Item item = nullptr;  // null: another thread runs it
    std::vector<Point> after = {};
};

// Runs `job` on a thread of its own, taken from those that have become idle; where pool_threads_max are busy, once one of
// them is not. There are as many as have ever been busy at once; they live until the process ends.
void run_on_pool(std::function<void()> job);

}  // namespace tnr::emulated
