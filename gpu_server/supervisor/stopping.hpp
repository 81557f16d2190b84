// How a server that is asked to stop does so: no new claims from then on; programs that run may go on for a while; then
// everything ends. Asked a second time, it ends at once.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "gpu_server/supervisor/claims.hpp"

namespace tnr::server {

class Stopping {
public:
    // `grace`: how long programs may go on. `begun`: is called once, when it begins; `end_now`: once, at its end.
    Stopping(EventLoop& loop, Claims& claims, milliseconds grace, std::function<void()> begun,
             std::function<void(const std::string& why)> end_now)
        : loop_(loop), claims_(claims), grace_(grace), begun_(std::move(begun)), end_now_(std::move(end_now)) {}

    void asked(int signal);

private:
    void look();
    void end(const std::string& why);
    std::string who_runs() const;  // empty: nobody

    EventLoop& loop_;
    Claims& claims_;
    milliseconds grace_;
    std::function<void()> begun_;
    std::function<void(const std::string&)> end_now_;
    bool waiting_ = false, over_ = false;
    EventLoop::Clock::time_point until_{}, told_{};
};

}  // namespace tnr::server
