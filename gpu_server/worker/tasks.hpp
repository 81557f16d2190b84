// Threads that wait for the GPU, so that the dispatcher never does.
//
// A wait that a client thread asked for (synchronise) gets a thread from an elastic pool: there are never more of them
// than threads waiting in the client. What must happen when a stream has reached a point (give a staging block back,
// send what was copied) goes to that stream's own queue, one thread a stream, in order.
//
// Threads are never joined: a session ends with its process.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace tnr::worker {

using Task = std::function<void()>;

// Concurrent waits of one client process; further ones queue up. Programs with more threads than this do not wait on
// all.
inline constexpr size_t waiting_threads_max = 256;

class WaitingThreads {
public:
    void run(Task task);

private:
    void work();

    std::mutex mutex_;
    std::condition_variable more_;
    std::deque<Task> tasks_;
    size_t threads_ = 0, idle_ = 0;
};

class StreamQueues {
public:
    // `key`: stream number and context make one, see Session::queue_key.
    void post(uint64_t key, Task task);
    bool idle(uint64_t key);
    bool all_idle();
    // The stream is gone: its thread ends once its tasks have run.
    void close(uint64_t key);

private:
    struct Queue {
        std::condition_variable more;
        std::deque<Task> tasks;
        bool running = false;  // a task is being run
        bool closed = false;
    };
    void work(std::shared_ptr<Queue> queue);

    std::mutex mutex_;
    std::map<uint64_t, std::shared_ptr<Queue>> queues_;
};

}  // namespace tnr::worker
