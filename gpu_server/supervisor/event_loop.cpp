// See event_loop.hpp.
#include "gpu_server/supervisor/event_loop.hpp"

#include <algorithm>
#include <vector>

namespace tnr::server {

using std::chrono::milliseconds;

void EventLoop::watch(int fd, Callback readable) {
    watched_[fd] = std::make_shared<Callback>(std::move(readable));
}

void EventLoop::unwatch(int fd) {
    watched_.erase(fd);
}

void EventLoop::watch_socket(zmq::socket_t& socket, Callback readable) {
    socket_ = &socket;
    socket_readable_ = std::move(readable);
}

EventLoop::TimerId EventLoop::after(milliseconds delay, Callback due) {
    timers_[++last_timer_] = {now() + delay, std::move(due)};
    return last_timer_;
}

void EventLoop::cancel(TimerId timer) {
    timers_.erase(timer);
}

void EventLoop::run() {
    while (!stopped_) run_once(milliseconds::max());
}

milliseconds EventLoop::until_next_timer(milliseconds limit) const {
    if (auto next = next_due()) limit = std::min(limit, std::chrono::ceil<milliseconds>(*next - now()));
    return std::max(limit, milliseconds(0));
}

std::optional<EventLoop::Clock::time_point> EventLoop::next_due() const {
    std::optional<Clock::time_point> next;
    for (auto& [id, timer] : timers_)
        if (!next || timer.due < *next) next = timer.due;
    return next;
}

void EventLoop::run_due_timers() {
    auto now = this->now();
    std::vector<TimerId> due;
    for (auto& [id, timer] : timers_)
        if (timer.due <= now) due.push_back(id);
    for (auto id : due) {
        auto found = timers_.find(id);
        if (found == timers_.end()) continue;  // cancelled by one before it
        Callback callback = std::move(found->second.callback);
        timers_.erase(found);
        callback();
    }
}

void EventLoop::run_once(milliseconds limit) {
    std::vector<zmq::pollitem_t> items;
    std::vector<std::shared_ptr<Callback>> callbacks;
    const bool has_socket = socket_ != nullptr;  // a callback may change that
    if (has_socket) items.push_back({socket_->handle(), 0, ZMQ_POLLIN, 0});
    for (auto& [fd, callback] : watched_) {
        items.push_back({nullptr, fd, ZMQ_POLLIN, 0});
        callbacks.push_back(callback);
    }
    auto wait = until_next_timer(limit);
    try {
        zmq::poll(items.data(), items.size(), wait == milliseconds::max() ? milliseconds(-1) : wait);
    } catch (const zmq::error_t& error) {
        if (error.num() != EINTR) throw;
        return;
    }
    size_t first = has_socket ? 1 : 0;
    for (size_t i = first; i < items.size(); ++i) {
        if (!items[i].revents) continue;
        auto found = watched_.find(items[i].fd);  // an earlier callback may have removed or replaced it
        if (found != watched_.end() && found->second == callbacks[i - first]) (*callbacks[i - first])();
    }
    if (has_socket && socket_ && items[0].revents) socket_readable_();
    run_due_timers();
}

}  // namespace tnr::server
