// Work that other threads leave for the event loop.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "api_client/base/handles.hpp"
#include "api_client/base/mutex.hpp"
#include "gpu_server/supervisor/event_loop.hpp"

namespace tnr::server {

class Mailbox {
public:
    explicit Mailbox(EventLoop& loop);
    ~Mailbox();
    Mailbox(const Mailbox&) = delete;
    Mailbox& operator=(const Mailbox&) = delete;

    // Any thread. Run on the loop, in order.
    void post(std::function<void()> what) TNR_EXCLUDES(mutex_);

private:
    void run_all() TNR_EXCLUDES(mutex_);

    EventLoop& loop_;
    UniqueFd bell_;
    Mutex mutex_;
    std::deque<std::function<void()>> left_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::server
