// Threads that wait for the GPU, so that the dispatcher never does.
//
// A wait that a client thread asked for (synchronise) gets a thread from an elastic pool: there are never more of them
// than threads waiting in the client. What must happen when a stream has reached a point (give a staging block back,
// send what was copied) goes to that stream's own queue, in order.
//
// Threads are never joined: a session ends with its process.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "api_client/base/mutex.hpp"

namespace tnr::worker {

using Task = std::function<void()>;

// Concurrent waits of one client process; further ones queue up. Programs with more threads than this do not let all of
// them wait.
inline constexpr size_t waiting_threads_max = 256;

// Any thread.
class WaitingThreads {
public:
    explicit WaitingThreads(size_t threads_max) : threads_max_(threads_max) {}

    // Runs the task on an idle thread, or on a new one. Tasks begin in the order in which they came.
    void run(Task task) TNR_EXCLUDES(mutex_);
    // True if no task is running or queued.
    bool idle() TNR_EXCLUDES(mutex_);

private:
    void work() TNR_EXCLUDES(mutex_);

    const size_t threads_max_;
    Mutex mutex_;
    Condition more_;
    std::deque<Task> tasks_ TNR_GUARDED_BY(mutex_);
    size_t threads_ TNR_GUARDED_BY(mutex_) = 0;
    size_t idle_ TNR_GUARDED_BY(mutex_) = 0;
};

// Streams whose queues run at the same time. More stream queues than a GPU has connections gain nothing, and a session may
// not have 1,024 threads (limits.hpp); a program may have ten thousand streams.
inline constexpr size_t queue_threads_max = 256;

// Any thread.
class StreamQueues {
public:
    // `key`: made of stream number and context by WorkerSession::queue_key(). Tasks of one key run in order. Where more keys
    // have tasks than there may be threads, the task that came first begins first: what a task waits for came before it.
    void post(uint64_t key, Task task) TNR_EXCLUDES(mutex_);
    // Call it when the stream is gone: its queue is forgotten, and its tasks still run.
    void close(uint64_t key) TNR_EXCLUDES(mutex_);

private:
    struct Queue {  // guarded by mutex_, too
        struct Entry {
            uint64_t position;  // among all tasks
            Task task;
        };
        std::deque<Entry> tasks;
        bool busy = false;  // a thread runs its first task, or it is in ready_
    };
    void ready(std::shared_ptr<Queue> queue) TNR_REQUIRES(mutex_);
    void work() TNR_EXCLUDES(mutex_);

    Mutex mutex_;
    Condition more_;
    std::map<uint64_t, std::shared_ptr<Queue>> queues_ TNR_GUARDED_BY(mutex_);
    std::map<uint64_t, std::shared_ptr<Queue>> ready_ TNR_GUARDED_BY(mutex_);  // by the position of the first task
    uint64_t posted_ TNR_GUARDED_BY(mutex_) = 0;
    size_t threads_ TNR_GUARDED_BY(mutex_) = 0;
    size_t idle_ TNR_GUARDED_BY(mutex_) = 0;
};

}  // namespace tnr::worker
