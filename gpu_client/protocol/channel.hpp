// A ZeroMQ socket that several threads may send on while one receives: the pipe under a session.
//
// ZeroMQ sockets are not thread-safe, and a dedicated I/O thread in between would cost every waiting call two thread
// switches. So a short lock guards the socket, and whoever waits for a reply receives for itself.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"
#include "gpu_client/protocol/keys.hpp"

namespace tnr::wire {

using Frames = std::vector<zmq::message_t>;

class Channel {
public:
    enum class Event { message, timeout, woken, disconnected };

    // The client's end. `identity`: the session id, non-empty. Connecting happens behind our back and is retried.
    static Result<std::unique_ptr<Channel>> connect(zmq::context_t& context, const std::string& endpoint,
                                                    const ClientKeys& keys, const std::string& identity);
    // The worker's end, on a socket that already listens. Only messages of `peer` are received. An empty secret key
    // means plain text. Who may connect is decided by the ZAP handler that runs in `context`.
    static Result<std::unique_ptr<Channel>> serve(zmq::context_t& context, int listening_fd, const KeyPair& keys,
                                                  const std::string& peer);

    // Never blocks: the credit window above us bounds what is queued. Any thread. Consumes the frames.
    void send(Frames&& frames);
    // One thread at a time. `disconnected`: the connection to the peer broke (it may come back by itself).
    Event receive(Frames& frames, std::chrono::milliseconds timeout);
    // Makes a receive() that is waiting return `woken`. Any thread.
    void wake();

private:
    Channel(zmq::context_t& context, int type);
    bool take_message(Frames& frames);
    void watch_connection(zmq::context_t& context);
    bool take_disconnect();

    std::mutex mutex_;  // guards socket_ and receiver_waits_
    zmq::socket_t socket_;
    zmq::socket_t monitor_;  // receiver's only
    std::string peer_;       // ROUTER side: the identity frame
    bool receiver_waits_ = false;
    UniqueFd wake_fd_;
    int socket_fd_ = -1;  // the sockets' own, to poll on; asking for them again would need the lock
    int monitor_fd_ = -1;
};

}  // namespace tnr::wire
