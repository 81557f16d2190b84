// One thread, all events: descriptors that became readable, and times that have come. No polling, no locks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <zmq.hpp>

namespace tnr::server {

class EventLoop {
public:
    using Clock = std::chrono::steady_clock;
    using Callback = std::function<void()>;
    using TimerId = uint64_t;  // never 0

    // `now`: tests have a time of their own.
    explicit EventLoop(std::function<Clock::time_point()> now = Clock::now) : now_(std::move(now)) {}
    Clock::time_point now() const { return now_(); }

    // Callbacks may add and remove anything, themselves included.
    void watch(int fd, Callback readable);
    void unwatch(int fd);  // before the descriptor is closed
    // The callback runs at least once whenever the socket may have something; it must read until there is no more.
    void watch_socket(zmq::socket_t& socket, Callback readable);
    void unwatch_socket() { socket_ = nullptr; }

    TimerId after(std::chrono::milliseconds delay, Callback due);
    // When the next timer is due, if there is one.
    std::optional<Clock::time_point> next_due() const;
    void cancel(TimerId timer);  // does nothing if it has fired already, or is 0

    void run();  // until stop()
    void stop() { stopped_ = true; }
    bool stopped() const { return stopped_; }
    // One round: waits for the next event, for `limit` at most.
    void run_once(std::chrono::milliseconds limit);

private:
    struct Timer {
        Clock::time_point due;
        Callback callback;
    };
    void run_due_timers();
    std::chrono::milliseconds until_next_timer(std::chrono::milliseconds limit) const;

    std::function<Clock::time_point()> now_;
    std::map<int, std::shared_ptr<Callback>> watched_;
    zmq::socket_t* socket_ = nullptr;
    Callback socket_readable_;
    std::map<TimerId, Timer> timers_;  // few: the next is found by looking at all
    TimerId last_timer_ = 0;
    bool stopped_ = false;
};

}  // namespace tnr::server
