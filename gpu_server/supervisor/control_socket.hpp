// The supervisor's ROUTER: whom ZeroMQ let in, what they ask, and the way back to each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <zmq.hpp>

#include "api_client/base/result.hpp"
#include "gpu_client/protocol/keys.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/pool/zap.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/event_loop.hpp"
#include "gpu_server/supervisor/handler.hpp"
#include "gpu_server/supervisor/turns.hpp"

namespace tnr::server {

struct ControlSocketOptions {
    Endpoint listen;
    bool plain = false;
    wire::KeyPair keys;      // unless plain
    int descriptors = 1024;  // that this process may have
};

class ControlSocket {
public:
    // `store` says which keys are known; a peer with another one gets nothing.
    static Result<std::unique_ptr<ControlSocket>> open(const ControlSocketOptions& options, Store& store);

    std::string address() const { return address_.text(); }
    // From now on requests go to `handler`, those of different peers in turn.
    void serve(EventLoop& loop, Handler& handler);

private:
    ControlSocket() = default;
    void receive_some();
    bool receive_one();
    void answer_some(EventLoop& loop, Handler& handler);
    void send(const std::string& route, const std::string& answer);
    void tell_dropped(const Asked& request);

    zmq::context_t context_{1};
    std::unique_ptr<Zap> zap_;
    zmq::socket_t socket_;
    Endpoint address_;
    Turns turns_;
    EventLoop::TimerId next_turns_ = 0;
    EventLoop::Clock::time_point told_dropped_{};
};

}  // namespace tnr::server
