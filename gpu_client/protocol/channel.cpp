// See channel.hpp. The delicate part is ZMQ_FD: it is edge-triggered, and a send on another thread can swallow the edge
// that the waiting receiver needs; so a sender that notices something to read wakes the receiver itself.
#include "gpu_client/protocol/channel.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>

#include "gpu_client/protocol/limits.hpp"

namespace tnr::wire {

static void set_common_options(zmq::socket_t& socket) {
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::sndhwm, 0);  // never block, never drop: the credit window bounds the queue
    socket.set(zmq::sockopt::rcvhwm, 0);
    socket.set(zmq::sockopt::heartbeat_ivl, static_cast<int>(heartbeat_interval.count()));
    socket.set(zmq::sockopt::heartbeat_timeout, static_cast<int>(heartbeat_timeout.count()));
    socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(batch_bytes_max));
    socket.set(zmq::sockopt::reconnect_ivl, 50);
    socket.set(zmq::sockopt::reconnect_ivl_max, 1000);
}

Channel::Channel(zmq::context_t& context, int type)
    : socket_(context, type), wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    set_common_options(socket_);
}

Result<std::unique_ptr<Channel>> Channel::connect(zmq::context_t& context, const std::string& endpoint,
                                                  const ClientKeys& keys, const std::string& identity) try {
    std::unique_ptr<Channel> channel(new Channel(context, ZMQ_DEALER));
    channel->socket_.set(zmq::sockopt::routing_id, identity);
    if (!keys.plain()) {
        channel->socket_.set(zmq::sockopt::curve_serverkey, keys.server_public);
        channel->socket_.set(zmq::sockopt::curve_publickey, keys.own.public_key);
        channel->socket_.set(zmq::sockopt::curve_secretkey, keys.own.secret_key);
    }
    channel->watch_connection(context);
    channel->socket_.connect(endpoint);
    return channel;
} catch (const zmq::error_t& error) {
    return Error{Error::Kind::network, "cannot connect to " + endpoint + ": " + error.what()};
}

Result<std::unique_ptr<Channel>> Channel::serve(zmq::context_t& context, int listening_fd, const KeyPair& keys,
                                                const std::string& peer) try {
    std::unique_ptr<Channel> channel(new Channel(context, ZMQ_ROUTER));
    channel->peer_ = peer;
    channel->socket_.set(zmq::sockopt::router_mandatory, false);
    channel->socket_.set(zmq::sockopt::router_handover, true);  // a client that reconnects replaces its dead self
    channel->socket_.set(zmq::sockopt::zap_domain, "tnr");
    if (!keys.secret_key.empty()) {
        channel->socket_.set(zmq::sockopt::curve_server, true);
        channel->socket_.set(zmq::sockopt::curve_secretkey, keys.secret_key);
    }
    int fd = listening_fd;
    if (zmq_setsockopt(channel->socket_.handle(), ZMQ_USE_FD, &fd, sizeof fd) != 0) throw zmq::error_t();
    channel->watch_connection(context);
    channel->socket_.bind("tcp://127.0.0.1:*");  // the address is that of the socket we were given
    return channel;
} catch (const zmq::error_t& error) {
    return Error{Error::Kind::internal, std::string("cannot serve a session: ") + error.what()};
}

void Channel::watch_connection(zmq::context_t& context) {
    static std::atomic<unsigned> counter{0};
    auto address = "inproc://monitor-" + std::to_string(counter++);
    if (zmq_socket_monitor(socket_.handle(), address.c_str(), ZMQ_EVENT_DISCONNECTED) != 0) throw zmq::error_t();
    monitor_ = zmq::socket_t(context, ZMQ_PAIR);
    monitor_.set(zmq::sockopt::linger, 0);
    monitor_.connect(address);
    socket_fd_ = socket_.get(zmq::sockopt::fd);
    monitor_fd_ = monitor_.get(zmq::sockopt::fd);
}

bool Channel::take_disconnect() {
    bool seen = false;
    for (zmq::message_t part; monitor_.recv(part, zmq::recv_flags::dontwait);) seen = true;
    return seen;
}

void Channel::send(Frames&& frames) {
    std::lock_guard lock(mutex_);
    if (!peer_.empty()) socket_.send(zmq::buffer(peer_), zmq::send_flags::sndmore);
    for (size_t i = 0; i < frames.size(); ++i)
        socket_.send(frames[i], i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    frames.clear();
    if (receiver_waits_ && (socket_.get(zmq::sockopt::events) & ZMQ_POLLIN)) {
        receiver_waits_ = false;  // once is enough
        wake();
    }
}

// A whole message without waiting. Called with the lock held.
bool Channel::take_message(Frames& frames) {
    while (true) {
        frames.clear();
        zmq::message_t part;
        if (!socket_.recv(part, zmq::recv_flags::dontwait)) return false;
        bool ours = peer_.empty() || part.to_string_view() == peer_;
        bool more = part.more();
        if (peer_.empty()) frames.push_back(std::move(part));
        while (more) {
            zmq::message_t next;
            (void)socket_.recv(next, zmq::recv_flags::none);  // ZeroMQ delivers messages whole: never waits here
            more = next.more();
            if (frames.size() <= batch_frames_max) frames.push_back(std::move(next));
        }
        if (ours) return true;  // else a stranger with a valid key: not this session's business
    }
}

Channel::Event Channel::receive(Frames& frames, std::chrono::milliseconds timeout) {
    auto deadline = std::chrono::steady_clock::now() + timeout;
    while (true) {
        {
            std::lock_guard lock(mutex_);
            if (take_message(frames)) return Event::message;
            receiver_waits_ = true;
        }
        if (take_disconnect()) return Event::disconnected;
        auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0) return Event::timeout;
        pollfd fds[] = {{socket_fd_, POLLIN, 0}, {wake_fd_.get(), POLLIN, 0}, {monitor_fd_, POLLIN, 0}};
        ::poll(fds, 3, static_cast<int>(left.count()));
        if (fds[1].revents & POLLIN) {
            uint64_t count;
            (void)!::read(wake_fd_.get(), &count, sizeof count);
            std::lock_guard lock(mutex_);
            return take_message(frames) ? Event::message : Event::woken;
        }
    }
}

void Channel::wake() {
    uint64_t one = 1;
    (void)!::write(wake_fd_.get(), &one, sizeof one);
}

}  // namespace tnr::wire
