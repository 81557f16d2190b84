// Who may connect: ZeroMQ asks here during the handshake, before it hands a single byte of the peer to anybody.
//
// One Zap per context decides for all its sockets that have a zap_domain. A peer that is refused gets nothing: no
// answer, no error text; its connection just never comes about.
#pragma once

#include <chrono>
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
    int connection = -1;     // its descriptor, ZeroMQ's own
    bool from_loopback() const;
};

// The peer's user id (sockets see it as the metadata "User-Id"), or nothing: refused, and why, for the log.
struct Admission {
    Admission(std::optional<std::string> user, std::string why_not = "unknown key")
        : user(std::move(user)), why_not(std::move(why_not)) {}
    std::optional<std::string> user;
    std::string why_not;
};
// Called on Zap's own thread.
using Admit = std::function<Admission(const Knock&)>;

// Refusals are logged, but not more than one in this time: strangers make as many as they like.
inline constexpr std::chrono::seconds refusals_told_every{10};

class Zap {
public:
    // Before any socket of `context` binds. `context` must outlive the object.
    static Result<std::unique_ptr<Zap>> start(zmq::context_t& context, Admit admit);
    ~Zap();

private:
    Zap(zmq::context_t& context, Admit admit);
    void serve();
    void answer_one();
    void tell_refusal(const Knock& knock, const std::string& why);

    zmq::socket_t socket_;  // the thread's, once it runs
    Admit admit_;
    std::chrono::steady_clock::time_point told_{};  // of a refusal
    uint64_t untold_ = 0;                           // refusals since
    UniqueFd stop_;
    std::thread thread_;
};

}  // namespace tnr::server
