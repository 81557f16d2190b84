// See control_socket.hpp.
#include "gpu_server/supervisor/control_socket.hpp"

#include <fcntl.h>

#include <cmath>
#include <vector>

#include "gpu_client/protocol/keys.hpp"
#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

// Clients that connect at the same moment: a node of a hundred machines starting together.
static constexpr int control_backlog = 4096;
// Of our patch of libzmq: how many commands a peer may send between two heartbeats.
static constexpr int commands_option = 4005;
// A peer that sends more than it may is named in the log, but not more often than this.
static constexpr std::chrono::seconds dropped_told_every{10};

static void set_options(zmq::socket_t& socket, const ControlSocketOptions& options, int listener,
                        const zmq_peer_hooks_t* hooks) {
    socket.set(zmq::sockopt::linger, 200);  // the last answers, at the orderly end
    socket.set(zmq::sockopt::sndhwm, answers_per_connection_max);
    socket.set(zmq::sockopt::rcvhwm, requests_per_connection_max);
    socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(request_answerable_bytes));
    socket.set(zmq::sockopt::tcp_maxrt, static_cast<int>(unread_timeout.count()));
    socket.set(zmq::sockopt::heartbeat_ivl, static_cast<int>(wire::heartbeat_interval.count()));
    socket.set(zmq::sockopt::heartbeat_timeout, static_cast<int>(wire::heartbeat_timeout.count()));
    socket.set(zmq::sockopt::handshake_ivl, static_cast<int>(handshake_timeout.count()));
    socket.set(zmq::sockopt::zap_domain, "tnr");
    if (!options.plain) {
        socket.set(zmq::sockopt::curve_server, true);
        // The hooks know the server's keys; ZeroMQ wants one all the same, and this one nobody has.
        socket.set(zmq::sockopt::curve_secretkey, wire::make_key_pair().secret_key);
    }
    // Of our own patch of libzmq, and unknown to zmq.hpp: see packaging/third_party/libzmq.patch.
    auto set = [&](int option, const void* value, size_t bytes) {
        if (zmq_setsockopt(socket.handle(), option, value, bytes) != 0) throw zmq::error_t();
    };
    auto set_number = [&](int option, int number) { set(option, &number, sizeof number); };
    set(ZMQ_PEER_HOOKS, &hooks, sizeof(void*));  // the pointer itself
    set_number(ZMQ_USE_FD, listener);
    set_number(ZMQ_MAXMSGPARTS, request_parts_max);
    set_number(commands_option, commands_per_heartbeat_max);
    set_number(ZMQ_MAX_ACCEPTED_FD, options.descriptors - descriptors_kept_back);
}

// Our own listening socket: ZeroMQ would not take a host name here, and says less about what went wrong.
static Result<UniqueFd> listener_for(ControlSocketOptions& options, Endpoint& address) {
    address = options.listens_at;
    if (options.listener) return std::move(options.listener);
    return listen_on(options.listen.host, options.listen.port, control_backlog, address);
}

Result<std::unique_ptr<ControlSocket>> ControlSocket::open(ControlSocketOptions options, Doorkeeper& door) try {
    std::unique_ptr<ControlSocket> made(new ControlSocket);
    auto listener = listener_for(options, made->address_);
    if (!listener) return listener.error();
    made->listener_ = UniqueFd(fcntl(listener->get(), F_DUPFD_CLOEXEC, 0));
    if (options.one_port) {
        UniqueFd handed_over;
        auto front_door = FrontDoor::open(std::move(*listener), handed_over);
        if (!front_door) return front_door.error();
        made->front_door_ = std::move(*front_door);
        *listener = std::move(handed_over);
    }
    made->socket_ = zmq::socket_t(made->context_, ZMQ_ROUTER);
    auto zap = Zap::start(made->context_, [&door](const Knock& knock) { return door.admit(knock); });
    if (!zap) return zap.error();
    made->zap_ = std::move(*zap);
    set_options(made->socket_, options, listener->release(), door.hooks());
    made->socket_.bind("tcp://127.0.0.1:*");  // ignored: the address is that of the socket it was given
    return made;
} catch (const zmq::error_t& error) {
    return Error{Error::Kind::internal, "cannot serve at " + options.listen.text() + ": " + error.what()};
}

void ControlSocket::serve(EventLoop& loop, Handler& handler) {
    loop.watch_socket(socket_, [this, &loop, &handler] {
        receive_some();
        answer_some(loop, handler);
    });
    answer_some(loop, handler);  // what waits since pause()
}

void ControlSocket::pause(EventLoop& loop) {
    loop.unwatch_socket();
    loop.cancel(std::exchange(next_turns_, 0));
}

void ControlSocket::hand_over(Handover& handover) {
    handover.section("control") = {
        {"listener", handover.keep(std::move(listener_))}, {"host", address_.host}, {"port", address_.port}};
}

Result<> ControlSocket::take_over(Handover& handover, ControlSocketOptions& options) {
    return reading("control socket", [&]() -> Result<> {
        auto& section = handover.at("control");
        options.listener = handover.take(section.at("listener"));
        options.listens_at = {section.at("host").get<std::string>(), section.at("port").get<int>()};
        if (!options.listener) return badly_handed_over("the control socket is not there");
        return Ok{};
    });
}

void ControlSocket::receive_some() {
    for (int i = 0; i < requests_taken_at_once && receive_one();) ++i;
}

// What is left has its turn after everything else that happens has had one.
void ControlSocket::answer_some(EventLoop& loop, Handler& handler) {
    loop.cancel(std::exchange(next_turns_, 0));
    auto now = EventLoop::Clock::now();
    const auto until = now + requests_answered_for;
    do {
        auto request = turns_.next(now);
        if (!request) break;
        Peer peer{request->public_key, request->connection, request->address, request->crowded};
        handler.handle(peer, request->text.data(), request->text.size(),
                       [this, &handler, route = request->route, account = request->account](const std::string& answer) {
                           turns_.answered(account, answer.size() + handler.take_work());
                           send(route, answer);
                       });
    } while ((now = EventLoop::Clock::now()) < until);
    if (!turns_.empty())
        next_turns_ = loop.after(now < until ? spent_looked_at_every : milliseconds(0),
                                 [this, &loop, &handler] { answer_some(loop, handler); });
}

void ControlSocket::send(const std::string& route, const std::string& answer) try {
    socket_.send(zmq::buffer(route), zmq::send_flags::sndmore);
    socket_.send(zmq::buffer(answer), zmq::send_flags::none);
} catch (const zmq::error_t& error) {
    log(LogLevel::warning, std::string("an answer could not be sent: ") + error.what());
}

static std::string metadata(const zmq::message_t& message, const char* property) {
    const char* value = zmq_msg_gets(const_cast<zmq::message_t&>(message).handle(), property);
    return value ? value : "";
}

bool ControlSocket::receive_one() {
    zmq::message_t route, body, surplus;
    if (!socket_.recv(route, zmq::recv_flags::dontwait)) return false;
    if (!route.more()) return true;  // nothing was said
    (void)socket_.recv(body);        // ZeroMQ delivers messages whole: never waits here
    auto peer = Admitted::parse(metadata(body, "User-Id"));
    Asked request{peer.public_key,   peer.account,
                  peer.crowded,      metadata(body, "Peer-Address"),
                  route.to_string(), {zmq_msg_get(body.handle(), ZMQ_SRCFD), peer.socket},
                  body.to_string()};
    for (bool more = body.more(); more; more = surplus.more()) {
        (void)socket_.recv(surplus);
        request.text.clear();  // requests have one part; what has several is answered like any other nonsense
    }
    if (auto taken = turns_.add(request); taken != Turns::Taken::yes) refuse(request, taken);
    return true;
}

// Told as far as that costs little: who goes on all the same is not heard any more, and then cut off.
void ControlSocket::refuse(const Asked& request, Turns::Taken why) {
    tell_dropped(request);
    if (!dropped_.take(request.user(), EventLoop::Clock::now())) return Asker(request.connection).cut();
    if (!refusals_.take(EventLoop::Clock::now())) return;
    uint64_t id = 0;
    (void)parse_request(request.text.data(), request.text.size(), id);
    Error error{Error::Kind::remote, "too many requests at once", "ask less often, and wait for each answer"};
    if (why == Turns::Taken::too_fast)
        error.what = "too many requests: a user may send " + std::to_string(std::lround(requests_per_second_max)) +
                     " a second, and " + std::to_string(std::lround(requests_burst)) + " at once";
    send(request.route, error_text(id, error));
}

void ControlSocket::tell_dropped(const Asked& request) {
    auto now = EventLoop::Clock::now();
    if (told_dropped_ != decltype(told_dropped_){} && now - told_dropped_ < dropped_told_every) return;
    told_dropped_ = now;
    log(LogLevel::warning, "requests are dropped: too many at once from " +
                               (request.public_key.empty() ? "a connection" : "the key " + request.public_key));
}

}  // namespace tnr::server
