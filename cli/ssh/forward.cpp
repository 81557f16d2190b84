// Many channels over one connection, none of which may hold up another.
//
// libssh2 opens one channel at a time, so connections wait for their turn. Any call may take packets of other channels off
// the socket; so passes are repeated until one has neither moved nor received anything.
#include "cli/ssh/forward.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "api_client/base/descriptors.hpp"
#include "api_client/base/interrupt.hpp"
#include "cli/ssh/channel.hpp"

namespace tnr::ssh {
namespace {

// What is held of each direction of a connection beside libssh2's own window.
constexpr size_t held_bytes_max = size_t{64} << 10;

std::optional<int> port_of(const std::string& text, int lowest) {
    int port = -1;
    auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (problem != std::errc{} || end != text.data() + text.size() || port < lowest || port > 65535)
        return std::nullopt;
    return port;
}

// Split at colons that are not in brackets, which go.
std::vector<std::string> parts_of(const std::string& text) {
    std::vector<std::string> parts(1);
    bool bracketed = false;
    for (char letter : text) {
        if (letter == '[' || letter == ']')
            bracketed = letter == '[';
        else if (letter == ':' && !bracketed)
            parts.emplace_back();
        else
            parts.back() += letter;
    }
    return parts;
}

// How long an agent may take that has more connections to accept than its socket holds (ssh-agent's 128).
constexpr timeval agent_accepts_within{3, 0};

UniqueFd connect_agent(const std::string& path, Waits waits) {
    UniqueFd socket = make_socket(AF_UNIX, SOCK_STREAM, waits);
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &agent_accepts_within, sizeof agent_accepts_within);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return {};
    std::memcpy(address.sun_path, path.c_str(), path.size());
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
    ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
    return socket;
}

std::string bracketed(const std::string& host) {
    return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

}  // namespace

Result<Forward> parse_forward(const std::string& text) {
    auto parts = parts_of(text);
    Forward forward;
    if (parts.size() == 4) {
        forward.bind = parts.front();
        parts.erase(parts.begin());
    }
    auto port = port_of(parts.front(), 0);
    auto host_port = port_of(parts.back(), 1);
    if (parts.size() == 3) forward.host = parts[1];
    if (!port || !host_port || parts.size() > 3 || forward.host.empty() || forward.bind.empty())
        return Error{
            Error::Kind::usage, "'" + text + "' is no port to forward",
            "examples: 8888; 8080:80 (here 8080, there 80); 5432:database:5432 (a host that the machine reaches)"};
    forward.port = *port;
    forward.host_port = *host_port;
    return forward;
}

std::string to_string(const Forward& forward) {
    return bracketed(forward.bind) + ":" + std::to_string(forward.port) + " to " + bracketed(forward.host) + ":" +
           std::to_string(forward.host_port);
}

Result<Forward> Forwards::listen(const Forward& forward) {
    auto problem = [&](const std::string& why) {
        return Error{
            Error::Kind::usage,
            "cannot listen at " + bracketed(forward.bind) + " port " + std::to_string(forward.port) + ": " + why,
            "another port here: -L PORT:" + bracketed(forward.host) + ":" + std::to_string(forward.host_port)};
    };
    addrinfo wanted{}, *list = nullptr;
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = AI_PASSIVE;
    int failure = ::getaddrinfo(forward.bind.c_str(), std::to_string(forward.port).c_str(), &wanted, &list);
    if (failure != 0) return problem(::gai_strerror(failure));
    Handle<addrinfo, freeaddrinfo> addresses{list};
    UniqueFd socket = make_socket(list->ai_family, SOCK_STREAM, Waits::no);
    int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0 || ::listen(socket.get(), 64) != 0)
        return problem(std::strerror(errno));
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &length);
    Forward listening = forward;
    listening.port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                                       : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
    listeners_.push_back({listening, std::move(socket)});
    return listening;
}

Result<> Forwards::let_agent(const std::string& path) {
    if (!connect_agent(path, Waits::yes))
        return Error{Error::Kind::usage, "no SSH agent answers at " + path,
                     "start one: `eval $(ssh-agent) && ssh-add`; or leave out -A"};
    agent_ = path;
    return Ok{};
}

Result<> Forwards::attach(Client& client) {
    detach();
    client_ = &client;
    client.companion = this;
    if (agent_.empty()) return Ok{};
    return client.take_agent_channels([this](LIBSSH2_CHANNEL* channel) { accept_agent(channel); });
}

// The channels are freed with the client's session.
void Forwards::detach() {
    connections_.clear();
    if (client_) client_->companion = nullptr, client_->on_agent_channel = nullptr;
    client_ = nullptr;
}

bool Forwards::move() {
    bool moved = false;
    for (;;) {
        auto received = client_->wire().received();
        bool again = pass();
        moved |= again;
        if (!again && received == client_->wire().received()) return moved;
    }
}

bool Forwards::pass() {
    bool moved = false;
    Connection* opening = nullptr;
    for (auto each = connections_.begin(); each != connections_.end();) {
        Connection& connection = *each;
        if (connection.state == Connection::State::open) moved |= move_open(connection);
        if (connection.state == Connection::State::opening) opening = &connection;
        bool gone = connection.state == Connection::State::closing &&
                    (!connection.channel || libssh2_channel_free(connection.channel) != LIBSSH2_ERROR_EAGAIN);
        each = gone ? connections_.erase(each) : std::next(each);
    }
    for (auto& connection : connections_)
        if (!opening && connection.state == Connection::State::waiting) opening = &connection;
    if (!opening) return moved;
    open(*opening);
    return moved || opening->state != Connection::State::opening;
}

void Forwards::open(Connection& connection) {
    const Forward& forward = connection.listener->forward;
    connection.state = Connection::State::opening;
    connection.channel = libssh2_channel_direct_tcpip_ex(client_->session(), forward.host.c_str(), forward.host_port,
                                                         forward.bind.c_str(), forward.port);
    if (connection.channel) {
        connection.state = Connection::State::open;
        connection.listener->told = false;
        return;
    }
    if (libssh2_session_last_errno(client_->session()) == LIBSSH2_ERROR_EAGAIN) return;
    close(connection);
    if (std::exchange(connection.listener->told, true)) return;
    char* text = nullptr;
    libssh2_session_last_error(client_->session(), &text, nullptr, 0);
    tell_("'" + client_->target().name + "' cannot connect to " + bracketed(forward.host) + ":" +
          std::to_string(forward.host_port) + " for port " + std::to_string(forward.port) + " here" +
          (text && *text ? std::string(": ") + text : ""));
}

bool Forwards::move_open(Connection& connection) {
    bool moved = take_from_machine(connection);
    moved |= give_local(connection);
    moved |= give_machine(connection);
    // All has been said, or the machine's side is gone and takes no more.
    bool done = connection.told_local && connection.told_machine;
    if (connection.told_local && !done) done = libssh2_channel_wait_closed(connection.channel) == 0;
    if (done) close(connection);
    return moved || done;
}

bool Forwards::take_from_machine(Connection& connection) {
    if (connection.machine_ended || connection.to_local.size() >= held_bytes_max) return false;
    char piece[held_bytes_max];
    ssize_t got = libssh2_channel_read_ex(connection.channel, 0, piece, sizeof piece);
    if (got > 0) connection.to_local.append(piece, static_cast<size_t>(got));
    if (got == LIBSSH2_ERROR_EAGAIN || got > 0) return got > 0;
    connection.machine_ended = true;  // an error as well: it is the connection's, which its owner notices
    return true;
}

bool Forwards::give_local(Connection& connection) {
    bool moved = false;
    if (!connection.to_local.empty()) {
        ssize_t took = ::send(connection.local.get(), connection.to_local.data(), connection.to_local.size(),
                              MSG_DONTWAIT | MSG_NOSIGNAL);
        if (took < 0 && !would_block(took)) close(connection);
        if (took > 0) connection.to_local.erase(0, static_cast<size_t>(took));
        moved = took > 0;
    }
    if (!connection.machine_ended || !connection.to_local.empty() || connection.told_local) return moved;
    ::shutdown(connection.local.get(), SHUT_WR);
    connection.told_local = true;
    return true;
}

bool Forwards::give_machine(Connection& connection) {
    if (connection.state != Connection::State::open || client_->wire().outbox_full()) return false;
    if (!connection.to_machine.empty()) {
        ssize_t took =
            libssh2_channel_write_ex(connection.channel, 0, connection.to_machine.data(), connection.to_machine.size());
        if (took < 0 && took != LIBSSH2_ERROR_EAGAIN) close(connection);
        if (took > 0) connection.to_machine.erase(0, static_cast<size_t>(took));
        return took > 0;
    }
    if (!connection.local_ended || connection.told_machine) return false;
    connection.told_machine = libssh2_channel_send_eof(connection.channel) != LIBSSH2_ERROR_EAGAIN;
    return connection.told_machine;
}

void Forwards::close(Connection& connection) {
    connection.local.reset();
    connection.state = Connection::State::closing;
}

short Forwards::Connection::wants() const {
    bool reads = !local_ended && to_machine.empty() && state == State::open;
    return static_cast<short>((reads ? POLLIN : 0) | (to_local.empty() ? 0 : POLLOUT));
}

// A socket of which nothing is wanted is not polled at all: poll() would report its end again and again.
void Forwards::add_polls(std::vector<pollfd>& polls) const {
    for (const auto& listener : listeners_) polls.push_back({full() ? -1 : listener.socket.get(), POLLIN, 0});
    for (const auto& connection : connections_)
        polls.push_back({connection.wants() ? connection.local.get() : -1, connection.wants(), 0});
}

void Forwards::polled(const pollfd* polls) {
    const pollfd* of_connections = polls + listeners_.size();
    for (auto& connection : connections_)
        if ((of_connections++)->revents && connection.wants() & POLLIN) take_from_local(connection);
    for (auto& listener : listeners_)
        if ((polls++)->revents) accept(listener);
}

void Forwards::take_from_local(Connection& connection) {
    char piece[held_bytes_max];
    ssize_t got = ::recv(connection.local.get(), piece, sizeof piece, MSG_DONTWAIT);
    if (would_block(got)) return;
    if (got < 0) close(connection);
    if (got == 0) connection.local_ended = true;
    if (got > 0) connection.to_machine.append(piece, static_cast<size_t>(got));
}

void Forwards::accept(Listener& listener) {
    UniqueFd socket = accept_from(listener.socket.get(), Waits::no);
    if (socket) connections_.push_back({&listener, std::move(socket)});
}

// Called in the middle of a call of libssh2's: nothing is done with the channel but to write it down.
void Forwards::accept_agent(LIBSSH2_CHANNEL* channel) {
    UniqueFd agent = full() ? UniqueFd{} : connect_agent(agent_, agent_is_late_ ? Waits::no : Waits::yes);
    if (!full()) agent_is_late_ = !agent;
    const auto state = agent ? Connection::State::open : Connection::State::closing;
    connections_.push_back({nullptr, std::move(agent), state, channel});
}

bool Forwards::listens() const {
    for (const auto& connection : connections_)
        if (connection.state != Connection::State::open || connection.to_local.size() < held_bytes_max ||
            !connection.to_machine.empty())
            return true;
    return false;
}

void Forwards::settle(Deadline deadline) {
    for (auto& connection : connections_) {
        if (connection.state != Connection::State::opening) continue;
        client_->finish(
            [&]() -> long {
                open(connection);
                return connection.state == Connection::State::opening ? LIBSSH2_ERROR_EAGAIN : 0;
            },
            deadline);
    }
}

// The channel is never started: it is there because libssh2 hears keepalives' answers, and the machine's goodbye, only
// while somebody reads from one.
Error hold_open(Client& client) {
    auto channel = Channel::open(client, Clock::now() + attempt_limit);
    if (!channel) return channel.error();
    for (;;) {
        char nothing;
        auto received = client.wire().received();
        ssize_t got = channel->read(&nothing, 1);
        if (got < 0 || channel->eof()) return client.failure("forwarding ports", got);
        bool moved = client.companion && client.companion->move();
        if (moved || received != client.wire().received()) continue;
        std::vector<pollfd> polls;
        if (client.companion) client.companion->add_polls(polls);
        client.wire().wait(Clock::now() + client.keep_alive(), &polls);
        if (interrupt::interrupted()) return interrupt::error();
        if (!client.listened()) return client.failure("forwarding ports", LIBSSH2_ERROR_TIMEOUT);
        if (client.companion) client.companion->polled(polls.data());
    }
}

}  // namespace tnr::ssh
