// Who may connect: ZeroMQ asks here during the handshake, before it hands a single byte of the peer to anybody.
//
// One Zap per context decides for all its sockets that have a zap_domain. A peer that is refused gets nothing: no
// answer, no error text; its connection just never comes about.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <zmq.hpp>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr::server {

// What ZeroMQ knows of a peer that knocks.
struct Knock {
    bool plain = false;      // the NULL mechanism: no key, no encryption
    std::string public_key;  // z85, proven by the handshake; empty when plain
    std::string address;     // the peer's IP address
    bool from_loopback() const;
};

// Answers with the peer's user id (sockets see it as the metadata "User-Id"), or with nothing: refused.
// Called on Zap's own thread.
using Admit = std::function<std::optional<std::string>(const Knock&)>;

class Zap {
public:
    // Before any socket of `context` binds. `context` must outlive the object.
    static Result<std::unique_ptr<Zap>> start(zmq::context_t& context, Admit admit);
    ~Zap();

private:
    Zap(zmq::context_t& context, Admit admit);
    void serve();
    void answer_one();

    zmq::socket_t socket_;  // the thread's, once it runs
    Admit admit_;
    UniqueFd stop_;
    std::thread thread_;
};

}  // namespace tnr::server
