// How a server that is asked to make room for a newer one (SIGHUP) does so: it asks the binary at its own path whether it can
// take over, takes no more requests for a moment, and waits until all that is in between has come to rest: claims that begin or
// end, GPUs that are wiped, workers that wait. Then all that is left can be written down (handover.hpp).
//
// Where that does not come about, it goes on as before, and says why.
#pragma once

#include <functional>
#include <string>

#include "gpu_server/supervisor/control_socket.hpp"
#include "gpu_server/supervisor/handover.hpp"
#include "gpu_server/supervisor/membership.hpp"
#include "gpu_server/supervisor/worker_processes.hpp"
#include "gpu_server/watch/pool_state.hpp"

namespace tnr::server {

class Replacing {
public:
    struct Parts {
        Reaper& reaper;
        ControlSocket& socket;
        Handler& handler;
        Claims& claims;
        Gpus& gpus;
        WorkerProcesses& workers;
        Membership& pool;
    };
    // `told` hears of each attempt that failed.
    using Told = std::function<void(const watch::Reloads& reloads)>;
    Replacing(EventLoop& loop, Parts parts, OwnCommand command, watch::Reloads before, Told told)
        : loop_(loop),
          parts_(parts),
          command_(std::move(command)),
          reloads_(std::move(before)),
          told_(std::move(told)) {}

    // What is asked for before begin() is done then: a server that has not taken over all yet has nothing to hand over.
    void asked();
    void begin();
    // All is at rest, now: leave the loop, and hand over.
    bool ready() { return state_ == State::resting && what_moves().empty(); }
    // The server stops: there is nothing to hand over any more.
    void never();
    const watch::Reloads& reloads() const { return reloads_; }

private:
    enum class State { none, asking, resting, never };
    void failed(const std::string& why);
    void answered(int control, int status);
    void rest();
    void look();
    void go_on();
    std::string what_moves();  // nothing: all is at rest

    EventLoop& loop_;
    Parts parts_;
    const OwnCommand command_;
    watch::Reloads reloads_;
    const Told told_;
    State state_ = State::none;
    bool begun_ = false, wanted_ = false;
    EventLoop::Clock::time_point give_up_at_{};
};

}  // namespace tnr::server
