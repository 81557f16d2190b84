// See control_socket.hpp.
#include "gpu_server/supervisor/control_socket.hpp"

#include <vector>

#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

// Clients that connect at the same moment: a node of a hundred machines starting together.
static constexpr int control_backlog = 128;
// A peer that connects and then says nothing is cut off after this.
static constexpr milliseconds handshake_timeout{10'000};
// Answers that a peer does not read are dropped beyond this many.
static constexpr int answers_queued_max = 64;

static Admit admission(bool plain, Store& store) {
    return [plain, &store](const Knock& knock) -> std::optional<std::string> {
        if (plain) return knock.plain && knock.from_loopback() ? std::optional<std::string>("") : std::nullopt;
        if (knock.public_key.empty()) return std::nullopt;
        auto owner = store.find_key(knock.public_key);
        if (!owner) log(LogLevel::error, owner.error().what);
        return owner && *owner ? std::optional<std::string>(knock.public_key) : std::nullopt;
    };
}

static void set_options(zmq::socket_t& socket, const ControlSocketOptions& options, int listener) {
    socket.set(zmq::sockopt::linger, 200);  // the last answers, at the orderly end
    socket.set(zmq::sockopt::sndhwm, answers_queued_max);
    socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(wire::control_bytes_max * control_answerable_factor));
    socket.set(zmq::sockopt::heartbeat_ivl, static_cast<int>(wire::heartbeat_interval.count()));
    socket.set(zmq::sockopt::heartbeat_timeout, static_cast<int>(wire::heartbeat_timeout.count()));
    socket.set(zmq::sockopt::handshake_ivl, static_cast<int>(handshake_timeout.count()));
    socket.set(zmq::sockopt::zap_domain, "tnr");
    if (!options.plain) {
        socket.set(zmq::sockopt::curve_server, true);
        socket.set(zmq::sockopt::curve_secretkey, options.keys.secret_key);
    }
    if (zmq_setsockopt(socket.handle(), ZMQ_USE_FD, &listener, sizeof listener) != 0) throw zmq::error_t();
}

Result<std::unique_ptr<ControlSocket>> ControlSocket::open(const ControlSocketOptions& options, Store& store) try {
    std::unique_ptr<ControlSocket> made(new ControlSocket);
    // Our own listening socket: ZeroMQ would not take a host name here, and says less about what went wrong.
    PortRange port{options.listen.port, options.listen.port};
    auto listener = listen_on(options.listen.host, port, control_backlog, made->address_);
    if (!listener) {
        Error error = listener.error();
        error.hint = "is another server running there? try another port: --listen " + Endpoint{"127.0.0.1", 0}.text();
        return error;
    }
    auto zap = Zap::start(made->context_, admission(options.plain, store));
    if (!zap) return zap.error();
    made->zap_ = std::move(*zap);
    made->socket_ = zmq::socket_t(made->context_, ZMQ_ROUTER);
    set_options(made->socket_, options, listener->release());
    made->socket_.bind("tcp://127.0.0.1:*");  // ignored: the address is that of the socket it was given
    return made;
} catch (const zmq::error_t& error) {
    return Error{Error::Kind::internal, "cannot serve at " + options.listen.text() + ": " + error.what()};
}

void ControlSocket::serve(EventLoop& loop, Handler& handler) {
    loop.watch_socket(socket_, [this, &handler] { receive_all(handler); });
}

void ControlSocket::receive_all(Handler& handler) {
    while (receive_one(handler)) {
    }
}

static std::string metadata(const zmq::message_t& message, const char* property) {
    const char* value = zmq_msg_gets(const_cast<zmq::message_t&>(message).handle(), property);
    return value ? value : "";
}

bool ControlSocket::receive_one(Handler& handler) {
    zmq::message_t route, body, surplus;
    if (!socket_.recv(route, zmq::recv_flags::dontwait)) return false;
    if (!route.more()) return true;  // nothing was said
    (void)socket_.recv(body);        // ZeroMQ delivers messages whole: never waits here
    bool more = body.more();
    while (more) {
        (void)socket_.recv(surplus);
        more = surplus.more();
        body.rebuild();  // requests have one part; what has several is answered like any other nonsense
    }
    Peer peer{metadata(body, "User-Id")};
    handler.handle(peer, body.data(), body.size(), [this, route = route.to_string()](const std::string& answer) {
        try {
            socket_.send(zmq::buffer(route), zmq::send_flags::sndmore);
            socket_.send(zmq::buffer(answer), zmq::send_flags::none);
        } catch (const zmq::error_t& error) {
            log(LogLevel::warning, std::string("an answer could not be sent: ") + error.what());
        }
    });
    return true;
}

}  // namespace tnr::server
