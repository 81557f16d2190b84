// The right to do something that waits: for the network, or for a callback of the program. One thread has it at a time;
// the others that want it wait in line, and nobody holds a lock meanwhile.
//
//     Turn turn_;
//     std::unique_ptr<Client> client_ TNR_GUARDED_BY(turn_);
//     TakenTurn turn(turn_);
//     client_->request(…);
//
// It comes before every lock: who takes one holds no Mutex, and the threads that others wait for (a link's receiver)
// never take one. So waiting in line ends when the network answers. clang checks who may touch what, as for a Mutex.
#pragma once

#include <thread>

#include "api_client/base/mutex.hpp"

namespace tnr {

class TNR_CAPABILITY("turn") Turn {
public:
    // Whoever has it may take it again, as what it calls back may.
    void take() TNR_ACQUIRE() {
        LockGuard lock(mutex_);
        const auto self = std::this_thread::get_id();
        ended_.wait(mutex_, [&]() TNR_REQUIRES(mutex_) { return depth_ == 0 || owner_ == self; });
        owner_ = self;
        ++depth_;
    }
    void end() TNR_RELEASE() {
        LockGuard lock(mutex_);
        if (--depth_ == 0) ended_.notify_one();
    }

private:
    Mutex mutex_;
    Condition ended_;
    std::thread::id owner_ TNR_GUARDED_BY(mutex_);
    int depth_ TNR_GUARDED_BY(mutex_) = 0;
};

// Has the turn to the end of the scope.
class TNR_SCOPED_CAPABILITY TakenTurn {
public:
    explicit TakenTurn(Turn& turn) TNR_ACQUIRE(turn) : turn_(turn) { turn_.take(); }
    ~TakenTurn() TNR_RELEASE() { turn_.end(); }
    TakenTurn(const TakenTurn&) = delete;
    TakenTurn& operator=(const TakenTurn&) = delete;

private:
    Turn& turn_;
};

}  // namespace tnr
