// The supervisor's ROUTER: whom ZeroMQ let in, what they ask, and the way back to each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <zmq.hpp>

#include "api_client/base/result.hpp"
#include "gpu_server/pool/zap.hpp"
#include "gpu_server/supervisor/doorkeeper.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/event_loop.hpp"
#include "gpu_server/supervisor/front_door.hpp"
#include "gpu_server/supervisor/handler.hpp"
#include "gpu_server/supervisor/handover.hpp"
#include "gpu_server/supervisor/turns.hpp"

namespace tnr::server {

struct ControlSocketOptions {
    Endpoint listen;
    bool plain = false;
    int descriptors = 1024;  // that this process may have
    bool one_port = false;   // workers, too, are reached there
    // One that listens already, under this address (handover.hpp).
    UniqueFd listener = {};
    Endpoint listens_at = {};
};

class ControlSocket {
public:
    // `door` says who is let in; whoever is not gets nothing.
    static Result<std::unique_ptr<ControlSocket>> open(ControlSocketOptions options, Doorkeeper& door);

    std::string address() const { return address_.text(); }
    const Endpoint& endpoint() const { return address_; }
    FrontDoor* front_door() { return front_door_.get(); }  // null: workers have ports of their own
    // From now on requests go to `handler`, those of different peers in turn.
    void serve(EventLoop& loop, Handler& handler);
    // Requests that come now wait in ZeroMQ, until serve() is called again.
    void pause(EventLoop& loop);
    // Whoever connects after this one has closed waits for the next server. What clients have not been answered they ask again.
    void hand_over(Handover& handover);
    static Result<> take_over(Handover& handover, ControlSocketOptions& options);

private:
    ControlSocket() = default;
    void receive_some();
    bool receive_one();
    void answer_some(EventLoop& loop, Handler& handler);
    void send(const std::string& route, const std::string& answer);
    void refuse(const Asked& request, Turns::Taken why);
    void tell_dropped(const Asked& request);

    zmq::context_t context_{1};
    std::unique_ptr<Zap> zap_;
    UniqueFd listener_;  // the same socket as ZeroMQ's, or the front door's
    std::unique_ptr<FrontDoor> front_door_;
    zmq::socket_t socket_;
    Endpoint address_;
    Turns turns_;
    EventLoop::TimerId next_turns_ = 0;
    Allowance refusals_{refusals_per_second_max, refusals_per_second_max};
    Allowances dropped_{dropped_per_second_max, dropped_burst};  // by user
    EventLoop::Clock::time_point told_dropped_{};
};

}  // namespace tnr::server
