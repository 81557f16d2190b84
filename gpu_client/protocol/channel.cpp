// See channel.hpp. The delicate part is ZMQ_FD: it is edge-triggered, and a send on another thread can swallow the edge
// that the waiting receiver needs; so a sender that notices something to read wakes the receiver itself.
#include "gpu_client/protocol/channel.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "gpu_client/protocol/greeting.hpp"
#include "gpu_client/protocol/ipv6.hpp"
#include "gpu_client/protocol/limits.hpp"
#include "gpu_client/protocol/process_room.hpp"
#include "gpu_client/protocol/socket_in.hpp"
#include "gpu_client/protocol/uninterrupted.hpp"

namespace tnr::wire {

// Longer than any socket is kept after its connection broke.
static constexpr int reconnect_never_ms = 24 * 3600 * 1000;

// A socket that is closed lets go of its messages within this time. Told to do so at once, ZeroMQ cannot take the rest
// of a message of which it has sent some frames; if the connection breaks just then, it aborts the program (4.3.4,
// session_base.cpp, clean_pipes: EAGAIN).
static constexpr int end_within_ms = 200;

// ZeroMQ's threads notice the end of a connection only after they have encrypted the message at hand.
static constexpr std::chrono::milliseconds cut_within{1000}, look_while_cutting{5};

// What a client's end has: ZeroMQ's threads and who receives and sends, and their pipes, sockets and pollers.
static constexpr size_t channel_threads = 4, channel_descriptors = 12, descriptors_per_lane = 4;

Channel::Channel(zmq::context_t& context, const std::string& session, size_t lanes)
    : context_(context), session_(session), lanes_(std::min(lanes, lanes_max)) {}

Channel::~Channel() {
    LockGuard lock(mutex_);
    Monitor::stop(socket_);
}

std::string Channel::name(const Way& way) const {
    if (way.connection == 0) return session_;
    return session_ + "/" + std::to_string(way.connection) + "/" + std::to_string(way.lane);
}

// Nothing if the name is a stranger's.
std::optional<Channel::Way> Channel::way_named(std::string_view name) const {
    if (!name.starts_with(session_)) return std::nullopt;
    name.remove_prefix(session_.size());
    Way way;
    if (name.empty()) return way;
    for (auto* number : {&way.connection, &way.lane}) {
        if (!name.starts_with('/')) return std::nullopt;
        auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), *number);
        if (error != std::errc()) return std::nullopt;
        name.remove_prefix(static_cast<size_t>(end - name.data()));
    }
    bool known = name.empty() && way.connection > 0 && way.lane <= lanes_;
    return known ? std::optional(way) : std::nullopt;
}

zmq::socket_t Channel::make_socket(int type) {
    auto socket = socket_in(context_, type);
    socket.set(zmq::sockopt::linger, end_within_ms);
    socket.set(zmq::sockopt::sndhwm, 0);  // never block, never drop: the credit window bounds the queue
    socket.set(zmq::sockopt::rcvhwm, 0);
    socket.set(zmq::sockopt::heartbeat_ivl, static_cast<int>(heartbeat_interval.count()));
    socket.set(zmq::sockopt::heartbeat_timeout, static_cast<int>(heartbeat_timeout.count()));
    socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(batch_bytes_max));
    // The keeper dials anew, on a socket of its own. Told never to reconnect, ZeroMQ ends a DEALER's pipe as soon as it
    // hears of the break, also between two frames of one message, and then aborts the program (4.3.4, fq.cpp:
    // "!_more").
    socket.set(zmq::sockopt::reconnect_ivl, reconnect_never_ms);
    if (!wake_fd_) wake_fd_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    return socket;
}

Result<std::unique_ptr<Channel>> Channel::connect(zmq::context_t& context, const std::string& endpoint,
                                                  const ClientKeys& keys, const std::string& identity,
                                                  size_t lanes) try {
    if (auto room = room_for(channel_threads + lanes, channel_descriptors + descriptors_per_lane * lanes); !room)
        return room.error();
    std::unique_ptr<Channel> channel(new Channel(context, identity, lanes));
    channel->endpoint_ = endpoint;
    channel->keys_ = keys;
    channel->dial_or_throw(1);
    return channel;
} catch (const zmq::error_t& error) {
    return Error{Error::Kind::network, "cannot connect to " + endpoint + ": " + error.what()};
}

void Channel::dial_or_throw(uint64_t connection) {
    auto socket = make_socket(addressed() ? ZMQ_ROUTER : ZMQ_DEALER);
    if (!keys_.plain()) {
        socket.set(zmq::sockopt::curve_serverkey, keys_.server_public);
        socket.set(zmq::sockopt::curve_publickey, keys_.own.public_key);
        socket.set(zmq::sockopt::curve_secretkey, keys_.own.secret_key);
    }
    Monitor monitor(context_, socket,
                    ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED);
    connection = addressed() ? connection : 0;
    connect_or_throw(socket, {connection, 0});
    int fd = socket.get(zmq::sockopt::fd);
    {
        LockGuard lock(mutex_);
        while (socket_) {
            Message message;
            if (!take_from_socket(message.first, message.second)) break;
            left_over_.push_back(std::move(message));
        }
        std::swap(socket_, socket);
        std::swap(socket_fd_, fd);
        connection_ = connection;
    }
    Monitor::stop(socket);  // the old one
    monitor_ = std::move(monitor);
    dialled_ = {};
    if (fd >= 0) wake();  // the receiver polls on the old socket
}

void Channel::connect_or_throw(zmq::socket_t& socket, const Way& way) {
    socket.set(zmq::sockopt::routing_id, name(way));
    if (addressed()) {
        socket.set(zmq::sockopt::connect_routing_id, name(way));
        socket.set(zmq::sockopt::affinity, uint64_t{1} << way.lane);  // an I/O thread of its own
    }
    auto [endpoint, number] = parse_dialling(endpoint_);
    if (zmq_setsockopt(socket.handle(), greeting_number_option, &number, sizeof number) != 0) throw zmq::error_t();
    allow_ipv6(socket, endpoint);
    uninterrupted([&socket, &to = endpoint] { socket.connect(to); });
}

bool Channel::dial_lane(size_t lane) try {
    LockGuard lock(mutex_);
    if (socket_) connect_or_throw(socket_, {connection_, lane});
    return static_cast<bool>(socket_);
} catch (const zmq::error_t&) {
    return false;
}

bool Channel::dial(uint64_t connection) try {
    dial_or_throw(connection);
    return true;
} catch (const zmq::error_t&) {
    return false;
}

std::optional<Monitor::News> Channel::dial_news() {
    auto news = monitor_.next();
    if (news) dialled_.note(*news);
    return news;
}

void Channel::cut(bool anew) {
    auto deadline = std::chrono::steady_clock::now() + cut_within;
    while (true) {
        while (dial_news()) continue;
        if (!dialled_.any() || std::chrono::steady_clock::now() >= deadline) return;
        dialled_.cut(anew);
        pollfd news{monitor_.fd(), POLLIN, 0};
        ::poll(&news, 1, static_cast<int>(look_while_cutting.count()));
    }
}

void Channel::close() {
    LockGuard lock(mutex_);
    Monitor::stop(socket_);
    socket_.close();
    socket_fd_ = -1;
    wake();
}

Result<std::unique_ptr<Channel>> Channel::serve(zmq::context_t& context, int listening_fd, const KeyPair& keys,
                                                const std::string& peer, size_t lanes,
                                                const zmq_peer_hooks_t* hooks) try {
    std::unique_ptr<Channel> channel(new Channel(context, peer, lanes));
    auto socket = channel->make_socket(ZMQ_ROUTER);
    socket.set(zmq::sockopt::router_mandatory, false);
    socket.set(zmq::sockopt::router_handover, true);  // a client that reconnects replaces its dead self
    socket.set(zmq::sockopt::zap_domain, "tnr");
    if (!keys.secret_key.empty()) {
        socket.set(zmq::sockopt::curve_server, true);
        socket.set(zmq::sockopt::curve_secretkey, keys.secret_key);
    }
    // Of our own patch of libzmq, and unknown to zmq.hpp: see packaging/third_party/libzmq.patch.
    auto set = [&](int option, const void* value, size_t bytes) {
        if (zmq_setsockopt(socket.handle(), option, value, bytes) != 0) throw zmq::error_t();
    };
    auto set_number = [&](int option, int value) { set(option, &value, sizeof value); };
    const auto greeting = greeting_of_worker(peer);
    set(greeting_number_option, &greeting, sizeof greeting);
    if (hooks) set(ZMQ_PEER_HOOKS, &hooks, sizeof(void*));
    set_number(ZMQ_USE_FD, listening_fd);
    socket.set(zmq::sockopt::handshake_ivl, static_cast<int>(worker_handshake_timeout.count()));
    set_number(ZMQ_MAXMSGPARTS, static_cast<int>(batch_frames_max) + 1);
    channel->monitor_ = Monitor(context, socket, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED);
    socket.bind("tcp://127.0.0.1:*");  // the address is that of the socket we were given
    LockGuard lock(channel->mutex_);
    channel->socket_fd_ = socket.get(zmq::sockopt::fd);
    channel->socket_ = std::move(socket);
    return channel;
} catch (const zmq::error_t& error) {
    return Error{Error::Kind::internal, std::string("cannot serve a session: ") + error.what()};
}

template <class Frame>  // a message or a view
static void send_frame(zmq::socket_t& socket, Frame&& frame, bool last) {
    auto flags = last ? zmq::send_flags::dontwait : zmq::send_flags::dontwait | zmq::send_flags::sndmore;
    uninterrupted([&] { return socket.send(frame, flags); });
}

static bool take_frame(zmq::socket_t& socket, zmq::message_t& frame, zmq::recv_flags flags) {
    return uninterrupted([&] { return socket.recv(frame, flags); }).has_value();
}

static int events_of(zmq::socket_t& socket) {
    return uninterrupted([&] { return socket.get(zmq::sockopt::events); });
}

void Channel::send(Frames& frames, size_t lane) {
    LockGuard lock(mutex_);
    // Never waits, whatever becomes of the connection: a DEALER without one would.
    if (socket_ && addressed()) send_frame(socket_, zmq::buffer(name({connection_, lane})), false);
    for (size_t i = 0; socket_ && i < frames.size(); ++i) send_frame(socket_, frames[i], i + 1 == frames.size());
    frames.clear();
    if (receiver_waits_ && socket_ && (events_of(socket_) & ZMQ_POLLIN)) {
        receiver_waits_ = false;  // once is enough
        wake();
    }
}

// A whole message without waiting.
bool Channel::take_message(Frames& frames, Way& way) {
    if (left_over_.empty()) return socket_ && take_from_socket(frames, way);
    std::tie(frames, way) = std::move(left_over_.front());
    left_over_.pop_front();
    return true;
}

bool Channel::take_from_socket(Frames& frames, Way& way) {
    while (true) {
        frames.clear();
        zmq::message_t part;
        if (!take_frame(socket_, part, zmq::recv_flags::dontwait)) return false;
        auto from = addressed() ? way_named(part.to_string_view()) : Way{};
        bool more = part.more();
        if (!addressed()) frames.push_back(std::move(part));
        while (more) {
            zmq::message_t next;
            take_frame(socket_, next, zmq::recv_flags::none);  // ZeroMQ delivers messages whole: never waits here
            more = next.more();
            if (frames.size() <= batch_frames_max) frames.push_back(std::move(next));
        }
        way = from.value_or(Way{});
        if (from && !frames.empty()) return true;  // else a stranger with a valid key: not this session's business
    }
}

// True: the worker's client is no longer connected. The client's end has a thread of its own for the monitor.
bool Channel::note_news() {
    bool left = false;
    while (auto news = monitor_.next()) left |= callers_.note(*news);
    return left;
}

void Channel::client_speaks(zmq::message_t& frame, uint64_t connection) {
    {
        LockGuard lock(mutex_);
        connection_ = connection;
    }
    note_news();
    callers_.client_speaks_on(zmq_msg_get(frame.handle(), ZMQ_SRCFD));
}

Channel::Event Channel::receive(Frames& frames, std::chrono::milliseconds timeout, Way* way) {
    Way unasked;
    auto& from = way ? *way : unasked;
    auto deadline = std::chrono::steady_clock::now() + timeout;
    for (bool news = false;;) {
        pollfd fds[] = {{-1, POLLIN, 0}, {wake_fd_.get(), POLLIN, 0}, {dials() ? -1 : monitor_.fd(), POLLIN, 0}};
        {
            LockGuard lock(mutex_);
            receiver_waits_ = false;
            if (take_message(frames, from)) return Event::message;
            receiver_waits_ = timeout.count() > 0;
            fds[0].fd = socket_fd_;
        }
        // Reads all there is, so that the monitor's descriptor tells of whatever comes next.
        if (news && note_news()) return Event::disconnected;
        auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0) return Event::timeout;
        ::poll(fds, 3, static_cast<int>(left.count()));
        news = fds[2].revents & POLLIN;
        if (fds[1].revents & POLLIN) {
            uint64_t count;
            (void)!::read(wake_fd_.get(), &count, sizeof count);
            LockGuard lock(mutex_);
            return take_message(frames, from) ? Event::message : Event::woken;
        }
    }
}

void Channel::wake() {
    uint64_t one = 1;
    (void)!::write(wake_fd_.get(), &one, sizeof one);
}

}  // namespace tnr::wire
