// A ZeroMQ socket that several threads may send on while one receives: the pipe under a session.
//
// ZeroMQ sockets are not thread-safe, and a dedicated I/O thread in between would cost every waiting call two thread
// switches. So a short lock guards the socket, and whoever waits for a reply receives for itself.
//
// The client's end dials each connection on a socket of its own instead of letting ZeroMQ reconnect: that would first
// send over the new connection, in vain, what was queued for the broken one.
//
// A channel with lanes (lanes.hpp) has several connections on its socket; lane 0 is the main one.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "api_client/base/handles.hpp"
#include "api_client/base/mutex.hpp"
#include "api_client/base/result.hpp"
#include "gpu_client/protocol/callers.hpp"
#include "gpu_client/protocol/dialled.hpp"
#include "gpu_client/protocol/keys.hpp"
#include "gpu_client/protocol/monitor.hpp"

namespace tnr::wire {

using Frames = std::vector<zmq::message_t>;

class Channel {
public:
    enum class Event { message, timeout, woken, disconnected };
    // One of the session's connections. Both ends name it by the session's id alone or, where the client has lanes, by
    // "ID/CONNECTION/LANE", so that no name is used twice: a ROUTER that hands a name over to a newer connection while
    // the older one lives leaves the older one in the state in which ZeroMQ aborts (dialled.hpp).
    struct Way {
        uint64_t connection = 0;  // as the client counts; 0: it has no lanes
        size_t lane = 0;
    };

    // The client's end, dialled once. `identity`: the session id, not empty. ZeroMQ connects in the background.
    // `context` has one I/O thread more than there are lanes.
    static Result<std::unique_ptr<Channel>> connect(zmq::context_t& context, const std::string& endpoint,
                                                    const ClientKeys& keys, const std::string& identity,
                                                    size_t lanes = 0);
    // The worker's end, on a socket that already listens. Only messages of `peer` are received. An empty secret key
    // means plain text. Who may connect is decided by the ZAP handler that runs in `context`; `hooks`, if there are any, are
    // asked before (packaging/third_party/libzmq.patch), must outlive the channel, and know the secret key themselves.
    static Result<std::unique_ptr<Channel>> serve(zmq::context_t& context, int listening_fd, const KeyPair& keys,
                                                  const std::string& peer, size_t lanes = 0,
                                                  const zmq_peer_hooks_t* hooks = nullptr);
    ~Channel();
    bool dials() const { return !endpoint_.empty(); }
    size_t lanes() const { return lanes_; }

    // Never blocks: the credit window above us bounds what is queued. Any thread. Consumes the frames; without a
    // connection they are lost.
    void send(Frames& frames, size_t lane = 0);
    // One thread at a time. `disconnected` comes on the worker's end only: its client's connection has ended. `way`, if
    // not null, is set to the connection that the message came by.
    Event receive(Frames& frames, std::chrono::milliseconds timeout, Way* way = nullptr);
    // Makes a receive() that is waiting return `woken`. Any thread.
    void wake();

    // The client's end; one thread, which need not be receive()'s. Replaces the connection by a new one; messages that
    // have already arrived over the old one are still received. False if the system has no more sockets for us.
    bool dial(uint64_t connection);
    // Adds a connection on the socket of the latest dial.
    bool dial_lane(size_t lane);
    void close();
    // News of the latest dial: ZMQ_EVENT_HANDSHAKE_SUCCEEDED for each of its connections; ZMQ_EVENT_DISCONNECTED and
    // ZMQ_EVENT_CLOSED mean its end.
    std::optional<Monitor::News> dial_news();
    int dial_news_fd() const { return monitor_.fd(); }
    // Ends what is left of the latest dial; call it before dial() and close(). Waits a moment for ZeroMQ's threads.
    // `anew`: to be followed by another (dialled.hpp).
    void cut(bool anew);
    // The worker wants to know from which port each connection comes (callers.hpp): one that does not ask is older, and would not
    // know what is meant. Call it before the channel is used.
    void tell_port() { tells_port_ = true; }
    // Of the latest dial's main connection; 0: nobody wants it.
    uint16_t port_to_tell() const { return tells_port_ ? dialled_.port() : 0; }
    const std::string& endpoint() const { return endpoint_; }
    const std::string& session() const { return session_; }

    // The worker's end; on receive()'s thread. `frame` came over the client's latest connection.
    void client_speaks(zmq::message_t& frame, uint64_t connection) TNR_EXCLUDES(mutex_);
    void client_comes_from(uint64_t port) { callers_.client_comes_from(port); }
    const Callers& callers() const { return callers_; }

private:
    using Message = std::pair<Frames, Way>;

    Channel(zmq::context_t& context, const std::string& session, size_t lanes);
    zmq::socket_t make_socket(int type);
    void dial_or_throw(uint64_t connection);
    void connect_or_throw(zmq::socket_t& socket, const Way& way);
    std::string name(const Way& way) const;
    std::optional<Way> way_named(std::string_view name) const;
    // True if each message must be addressed to a connection: on the worker's end, and on the client's if it has lanes.
    bool addressed() const { return !dials() || lanes() > 0; }
    bool take_message(Frames& frames, Way& way) TNR_REQUIRES(mutex_);
    bool take_from_socket(Frames& frames, Way& way) TNR_REQUIRES(mutex_);
    bool note_news();

    zmq::context_t& context_;
    const std::string session_;  // its id
    const size_t lanes_;
    std::string endpoint_;  // the client's end
    ClientKeys keys_;
    Callers callers_;
    Monitor monitor_;
    Dialled dialled_;  // the client's end
    bool tells_port_ = false;

    Mutex mutex_;
    zmq::socket_t socket_ TNR_GUARDED_BY(mutex_);
    uint64_t connection_ TNR_GUARDED_BY(mutex_) = 0;        // the one we send over
    int socket_fd_ TNR_GUARDED_BY(mutex_) = -1;             // its own, to poll on
    std::deque<Message> left_over_ TNR_GUARDED_BY(mutex_);  // of sockets that have been replaced
    bool receiver_waits_ TNR_GUARDED_BY(mutex_) = false;
    UniqueFd wake_fd_;
};

}  // namespace tnr::wire
