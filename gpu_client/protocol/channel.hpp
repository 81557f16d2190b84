// A ZeroMQ socket that several threads may send on while one receives: the pipe under a session.
//
// ZeroMQ sockets are not thread-safe, and a dedicated I/O thread in between would cost every waiting call two thread
// switches. So a short lock guards the socket, and whoever waits for a reply receives for itself.
//
// The client's end makes each connection with a socket of its own (dial) instead of letting ZeroMQ reconnect: what was
// queued for a broken connection would otherwise travel over the next one first, in vain.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "api_client/base/handles.hpp"
#include "api_client/base/mutex.hpp"
#include "api_client/base/result.hpp"
#include "gpu_client/protocol/callers.hpp"
#include "gpu_client/protocol/keys.hpp"
#include "gpu_client/protocol/monitor.hpp"

namespace tnr::wire {

using Frames = std::vector<zmq::message_t>;

class Channel {
public:
    enum class Event { message, timeout, woken, disconnected };

    // The client's end, dialled once. `identity`: the session id, non-empty. Connecting happens behind our back.
    static Result<std::unique_ptr<Channel>> connect(zmq::context_t& context, const std::string& endpoint,
                                                    const ClientKeys& keys, const std::string& identity);
    // The worker's end, on a socket that already listens. Only messages of `peer` are received. An empty secret key
    // means plain text. Who may connect is decided by the ZAP handler that runs in `context`.
    static Result<std::unique_ptr<Channel>> serve(zmq::context_t& context, int listening_fd, const KeyPair& keys,
                                                  const std::string& peer);
    bool dials() const { return peer_.empty(); }

    // Never blocks: the credit window above us bounds what is queued. Any thread. Consumes the frames; without a
    // connection they are lost.
    void send(Frames& frames);
    // One thread at a time. `disconnected` comes on the worker's end only: its client's connection ended.
    Event receive(Frames& frames, std::chrono::milliseconds timeout);
    // Makes a receive() that is waiting return `woken`. Any thread.
    void wake();

    // The client's end; one thread, which may be another than receive()'s.
    // A new connection takes the place of the old one, whose messages that have arrived are still received. False: the
    // system has no more sockets for us.
    bool dial();
    void close();
    // Tells of the latest dial: ZMQ_EVENT_DISCONNECTED and ZMQ_EVENT_CLOSED are its end.
    Monitor& monitor() { return monitor_; }
    const std::string& endpoint() const { return endpoint_; }

    // The worker's end; receive()'s thread. `frame` is of the client's latest connection.
    void client_speaks(zmq::message_t& frame);
    const Callers& callers() const { return callers_; }

private:
    explicit Channel(zmq::context_t& context) : context_(context) {}
    zmq::socket_t make_socket(int type);
    void dial_or_throw();
    bool take_message(Frames& frames) TNR_REQUIRES(mutex_);
    bool take_from_socket(Frames& frames) TNR_REQUIRES(mutex_);
    bool note_news();

    zmq::context_t& context_;
    std::string endpoint_, identity_;  // the client's end
    ClientKeys keys_;
    std::string peer_;  // the worker's end: the client's identity frame
    Callers callers_;
    Monitor monitor_;

    Mutex mutex_;
    zmq::socket_t socket_ TNR_GUARDED_BY(mutex_);
    int socket_fd_ TNR_GUARDED_BY(mutex_) = -1;            // its own, to poll on
    std::deque<Frames> left_over_ TNR_GUARDED_BY(mutex_);  // of sockets that have been replaced
    bool receiver_waits_ TNR_GUARDED_BY(mutex_) = false;
    UniqueFd wake_fd_;
};

}  // namespace tnr::wire
