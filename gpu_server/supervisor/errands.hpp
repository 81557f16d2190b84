// What takes its time, such as a change of the accounts where they are in etcd: done on a thread of its own, one after the
// other, while the event loop goes on. No user's fill the queue, nor do they come so often that the store has no time for
// others.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "api_client/base/mutex.hpp"
#include "api_client/base/result.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/mailbox.hpp"
#include "gpu_server/supervisor/turns.hpp"

namespace tnr::server {

class Errands {
public:
    explicit Errands(EventLoop& loop);
    ~Errands();
    Errands(const Errands&) = delete;
    Errands& operator=(const Errands&) = delete;

    // `job` on the thread, then `done` on the loop; at once, with an Error, when errands_max wait already,
    // errands_per_user_max of this user, or when he has had more than changes_per_second_max.
    void run(const std::string& user, std::function<Result<>()> job, std::function<void(Result<>)> done)
        TNR_EXCLUDES(mutex_);
    // All that were run have been told that they are done.
    bool none() const { return under_way_ == 0; }

private:
    struct Errand {
        std::string user;
        std::function<Result<>()> job;
        std::function<void(Result<>)> done;
    };
    bool take_in(Errand& errand) TNR_EXCLUDES(mutex_);
    void work() TNR_EXCLUDES(mutex_);

    EventLoop& loop_;
    Mailbox mailbox_;
    Allowances allowances_{changes_per_second_max, changes_burst};  // the loop's
    size_t under_way_ = 0;                                          // likewise
    Mutex mutex_;
    Condition wanted_;
    std::deque<Errand> errands_ TNR_GUARDED_BY(mutex_);
    std::map<std::string, size_t> of_user_ TNR_GUARDED_BY(mutex_);  // none is zero
    bool stopping_ TNR_GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

}  // namespace tnr::server
