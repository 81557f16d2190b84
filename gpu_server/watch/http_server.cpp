// See http_server.hpp.
#include "gpu_server/watch/http_server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "gpu_server/pool/audit.hpp"
#include "gpu_server/watch/limits.hpp"

namespace tnr::watch {

static const char* reason_of(int status) {
    switch (status) {
        case 200:
            return "OK";
        case 400:
            return "Bad Request";
        case 403:
            return "Forbidden";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 431:
            return "Request Header Fields Too Large";
        case 503:
            return "Service Unavailable";
        default:
            return "Internal Server Error";
    }
}

static HttpAnswer plain(int status, const char* text) {
    return {status, "text/plain; charset=utf-8", std::make_shared<const std::string>(text)};
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(std::vector<UniqueFd> listeners, Answering answering) {
    UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake) return Error{Error::Kind::internal, "no descriptor is left for the watch address"};
    for (auto& listener : listeners) fcntl(listener.get(), F_SETFL, O_NONBLOCK);
    std::unique_ptr<HttpServer> made(new HttpServer(std::move(listeners), std::move(answering), std::move(wake)));
    made->thread_ = std::thread([server = made.get()] { server->run(); });
    return made;
}

HttpServer::~HttpServer() {
    (void)eventfd_write(wake_.get(), 1);
    if (thread_.joinable()) thread_.join();
}

void HttpServer::run() {
    while (run_once()) {
    }
}

// False: it is over.
bool HttpServer::run_once() {
    auto now = Clock::now();
    const bool accepts = now >= accepts_again_;
    auto next = accepts ? now + answer_read_within : accepts_again_;
    std::vector<pollfd> waits{{wake_.get(), POLLIN, 0}};
    for (auto& listener : listeners_) waits.push_back({accepts ? listener.get() : -1, POLLIN, 0});
    for (auto& connection : connections_) {
        const bool writes = connection.state == Connection::State::answering;
        waits.push_back({connection.socket.get(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
        next = std::min(next, connection.deadline);
    }
    auto patience = std::chrono::ceil<milliseconds>(next - now);
    if (poll(waits.data(), waits.size(), static_cast<int>(std::max(patience, milliseconds(0)).count())) < 0)
        return errno == EINTR;
    if (waits[0].revents) return false;
    size_t at = 1 + listeners_.size();
    for (auto& connection : connections_)
        if (waits[at++].revents) react(connection);
    now = Clock::now();
    connections_.remove_if([&](const Connection& each) { return each.over || now >= each.deadline; });
    for (size_t i = 0; i < listeners_.size(); ++i)
        if (waits[1 + i].revents) accept_some(listeners_[i].get());
    return true;
}

// Empty for a socket in a folder.
static std::string source_text(const sockaddr_storage& from) {
    char text[INET6_ADDRSTRLEN] = "";
    if (from.ss_family == AF_INET)
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(from).sin_addr, text, sizeof text);
    if (from.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(from).sin6_addr, text, sizeof text);
    return server::source_of(text);
}

// Of the address that has most, the one that came first goes.
void HttpServer::make_room() {
    std::map<std::string, size_t> of_source;
    for (auto& each : connections_) ++of_source[each.source];
    auto most = std::max_element(of_source.begin(), of_source.end(),
                                 [](auto& one, auto& other) { return one.second < other.second; });
    connections_.erase(
        std::find_if(connections_.begin(), connections_.end(), [&](auto& each) { return each.source == most->first; }));
}

void HttpServer::accept_some(int listener) {
    for (int i = 0; i < accepted_at_once; ++i) {
        sockaddr_storage from{};
        socklen_t size = sizeof from;
        UniqueFd socket(accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket) {
            if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) return;
            accepts_again_ = Clock::now() + accepting_pauses;
            return;
        }
        if (connections_.size() >= connections_max) make_room();
        Connection connection;
        connection.socket = std::move(socket);
        connection.source = source_text(from);
        connection.deadline = Clock::now() + request_within;
        connections_.push_back(std::move(connection));
    }
}

void HttpServer::react(Connection& connection) {
    switch (connection.state) {
        case Connection::State::reading:
            return read(connection);
        case Connection::State::answering:
            return write(connection);
        case Connection::State::leaving:
            return leave(connection);
    }
}

void HttpServer::read(Connection& connection) {
    char piece[2048];
    auto size = recv(connection.socket.get(), piece, sizeof piece, 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) return void(connection.over = true);
    connection.received.append(piece, static_cast<size_t>(size));
    HttpRequest request;
    auto parsed = connection.received.size() > request_bytes_max ? HttpParsed::incomplete
                                                                 : parse_http_request(connection.received, request);
    if (parsed == HttpParsed::malformed) return answer(connection, plain(400, "this is no HTTP request\n"), true);
    if (parsed == HttpParsed::incomplete) {
        if (connection.received.size() > request_bytes_max)
            answer(connection, plain(431, "the request is too long\n"), true);
        return;
    }
    if (request.method != "GET" && request.method != "HEAD")
        return answer(connection, plain(405, "this is for reading: GET and HEAD\n"), true);
    answer(connection, answering_(request), request.method == "GET");
}

void HttpServer::answer(Connection& connection, const HttpAnswer& answer, bool with_body) {
    connection.received = {};
    connection.head =
        "HTTP/1.1 " + std::to_string(answer.status) + " " + reason_of(answer.status) +
        "\r\nContent-Type: " + answer.type + "\r\nContent-Length: " + std::to_string(answer.body->size()) +
        "\r\nConnection: close"
        "\r\nCache-Control: no-store"
        "\r\nX-Content-Type-Options: nosniff"
        "\r\nX-Frame-Options: DENY"
        "\r\nReferrer-Policy: no-referrer"
        // The page brings its script and style along, and asks nobody but us.
        "\r\nContent-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; "
        "style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'" +
        std::string(answer.status == 405 ? "\r\nAllow: GET, HEAD" : "") + "\r\n\r\n";
    if (with_body) connection.body = answer.body;
    connection.state = Connection::State::answering;
    connection.deadline = Clock::now() + answer_read_within;
    write(connection);
}

void HttpServer::write(Connection& connection) {
    const std::string nothing;
    const auto& body = connection.body ? *connection.body : nothing;
    while (connection.sent < connection.head.size() + body.size()) {
        const bool in_head = connection.sent < connection.head.size();
        const auto& from = in_head ? connection.head : body;
        const size_t at = in_head ? connection.sent : connection.sent - connection.head.size();
        auto size =
            send(connection.socket.get(), from.data() + at, from.size() - at, MSG_NOSIGNAL | (in_head ? MSG_MORE : 0));
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (size < 0) return void(connection.over = true);
        connection.sent += static_cast<size_t>(size);
    }
    connection.body = nullptr;
    shutdown(connection.socket.get(), SHUT_WR);
    connection.state = Connection::State::leaving;
    connection.deadline = Clock::now() + farewell_within;
}

void HttpServer::leave(Connection& connection) {
    char away[4096];
    auto size = recv(connection.socket.get(), away, sizeof away, 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) connection.over = true;
}

}  // namespace tnr::watch
