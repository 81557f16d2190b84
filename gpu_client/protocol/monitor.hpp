// What ZeroMQ's own thread reports about the TCP connections of one socket: that one was accepted, that one ended.
#pragma once

#include <optional>
#include <zmq.hpp>

namespace tnr::wire {

class Monitor {
public:
    struct News {
        int what;  // ZMQ_EVENT_…
        int fd;    // of the connection; the number is used again for later ones
    };

    Monitor() = default;
    // `events`: the ZMQ_EVENT_… to report. Construct it before the socket connects or binds.
    Monitor(zmq::context_t& context, zmq::socket_t& watched, int events);

    // Call before a monitor is destroyed while its socket, or what ZeroMQ keeps of the socket after close(), has
    // connections: ZeroMQ's thread would wait for ever to report on them.
    static void stop(zmq::socket_t& watched);

    // Without waiting. One thread at a time.
    std::optional<News> next();
    // To poll on.
    int fd() const { return fd_; }

private:
    zmq::socket_t socket_;
    int fd_ = -1;
};

}  // namespace tnr::wire
