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

namespace tnr::server {

struct ControlSocketOptions {
    Endpoint listen;
    bool plain = false;
    wire::KeyPair keys;  // unless plain
};

class ControlSocket {
public:
    // `store` says which keys are known; a peer with another one gets nothing.
    static Result<std::unique_ptr<ControlSocket>> open(const ControlSocketOptions& options, Store& store);

    std::string address() const { return address_.text(); }
    // From now on requests go to `handler`.
    void serve(EventLoop& loop, Handler& handler);

private:
    ControlSocket() = default;
    void receive_all(Handler& handler);
    bool receive_one(Handler& handler);

    zmq::context_t context_{1};
    std::unique_ptr<Zap> zap_;
    zmq::socket_t socket_;
    Endpoint address_;
};

}  // namespace tnr::server
