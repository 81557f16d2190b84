// See endpoint.hpp.
#include "gpu_server/supervisor/endpoint.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace tnr::server {
namespace {

using Addresses = std::unique_ptr<addrinfo, Releaser<addrinfo, freeaddrinfo>>;

constexpr const char* own_address_hint =
    "give an address of this machine (`ip address` lists them), or 0.0.0.0 for all that it has";

Result<Addresses> resolve(const std::string& host, int port, int flags) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (code != 0)
        return Error{Error::Kind::usage, "'" + host + "' is no address: " + gai_strerror(code), own_address_hint};
    return Addresses(found);
}

bool parse_port(std::string_view text, int& port) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    return error == std::errc{} && end == text.data() + text.size() && port >= 0 && port <= 65535;
}

int port_of(int socket) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    char port[NI_MAXSERV] = "0";
    getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    getnameinfo(reinterpret_cast<sockaddr*>(&address), size, nullptr, 0, port, sizeof port, NI_NUMERICSERV);
    return std::atoi(port);
}

UniqueFd try_bind(const addrinfo& address, bool port_given) {
    UniqueFd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) return {};
    // A given port is used again and again, also right after connections to it. Where the kernel chooses, this option
    // would let it choose one twice.
    int on = port_given;
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0) return {};
    return socket;
}

const char* hint_for(int error) {
    switch (error) {
        case EADDRINUSE:
            return "something listens there, another server maybe: stop it, or give another port (0 takes any)";
        case EADDRNOTAVAIL:
            return own_address_hint;
        case EACCES:
            return "ports below 1024 are root's: give a higher one";
        default:
            return "";
    }
}

Error cannot(const std::string& what, const std::string& host, int port) {
    const int error = errno;
    std::string where = port == 0 ? host : host + ", port " + std::to_string(port);
    return {Error::Kind::internal, "cannot " + what + " " + where + ": " + std::strerror(error), hint_for(error)};
}

}  // namespace

bool Endpoint::loopback() const {
    return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string Endpoint::text() const {
    bool ipv6 = host.find(':') != std::string::npos;
    return "tcp://" + (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Endpoint> parse_endpoint(const std::string& address) {
    Error wrong{Error::Kind::usage, "'" + address + "' is no address", "it looks like tcp://127.0.0.1:14900"};
    constexpr std::string_view scheme = "tcp://";
    if (!address.starts_with(scheme)) return wrong;
    auto colon = address.rfind(':');
    if (colon <= scheme.size()) return wrong;
    Endpoint endpoint{address.substr(scheme.size(), colon - scheme.size()), 0};
    if (!parse_port(std::string_view(address).substr(colon + 1), endpoint.port)) return wrong;
    if (endpoint.host.starts_with('[') && endpoint.host.ends_with(']'))
        endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
    if (endpoint.host == "*") endpoint.host = "0.0.0.0";
    if (endpoint.host.empty()) return wrong;
    return endpoint;
}

Result<PortRange> parse_port_range(const std::string& text) {
    PortRange range;
    auto dash = text.find('-');
    bool sound = dash != std::string::npos && parse_port(std::string_view(text).substr(0, dash), range.first) &&
                 parse_port(std::string_view(text).substr(dash + 1), range.last) && range.first >= 1 &&
                 range.first <= range.last;
    if (!sound) return Error{Error::Kind::usage, "'" + text + "' is no range of ports", "it looks like 15000-15099"};
    return range;
}

Result<UniqueFd> bind_to(const std::string& host, int port, Endpoint& endpoint) {
    auto addresses = resolve(host, port, AI_PASSIVE);
    if (!addresses) return addresses.error();
    UniqueFd socket = try_bind(**addresses, port != 0);
    if (!socket) return cannot("bind to", host, port);
    endpoint = {host, port_of(socket.get())};
    return socket;
}

Result<UniqueFd> listen_on(const std::string& host, int port, int backlog, Endpoint& endpoint) {
    auto socket = bind_to(host, port, endpoint);
    if (!socket) return socket;
    if (listen(socket->get(), backlog) != 0) return cannot("listen on", host, port);
    return socket;
}

}  // namespace tnr::server
