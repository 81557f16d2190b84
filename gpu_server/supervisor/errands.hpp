// What takes its time, such as a change of the accounts where they are in etcd: done on a thread of its own, one after the
// other, while the event loop goes on.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "api_client/base/result.hpp"
#include "gpu_server/supervisor/mailbox.hpp"

namespace tnr::server {

class Errands {
public:
    explicit Errands(EventLoop& loop);
    ~Errands();
    Errands(const Errands&) = delete;
    Errands& operator=(const Errands&) = delete;

    // `job` on the thread, then `done` on the loop; at once, with an Error, when errands_max wait already.
    void run(std::function<Result<>()> job, std::function<void(Result<>)> done) TNR_EXCLUDES(mutex_);

private:
    struct Errand {
        std::function<Result<>()> job;
        std::function<void(Result<>)> done;
    };
    void work() TNR_EXCLUDES(mutex_);

    Mailbox mailbox_;
    Mutex mutex_;
    Condition wanted_;
    std::deque<Errand> errands_ TNR_GUARDED_BY(mutex_);
    bool stopping_ TNR_GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

}  // namespace tnr::server
