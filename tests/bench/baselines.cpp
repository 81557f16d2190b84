// See baselines.hpp.
#include "tests/bench/baselines.hpp"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "gpu_client/protocol/limits.hpp"

namespace tnr::bench {

static sockaddr_in address_of(const std::string& host, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, host.c_str(), &address.sin_addr);
    return address;
}

// The connecting end is ends[0].
static void connect_pair(const Way& way, int ends[2]) {
    int listener = ::socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    auto here = address_of("127.0.0.1", way.tcp_port);
    socklen_t length = sizeof here;
    if (::bind(listener, reinterpret_cast<sockaddr*>(&here), length) != 0 || ::listen(listener, 1) != 0)
        throw std::runtime_error("raw TCP: cannot listen");
    ::getsockname(listener, reinterpret_cast<sockaddr*>(&here), &length);
    auto there = address_of(way.host, ntohs(here.sin_port));
    ends[0] = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(ends[0], reinterpret_cast<sockaddr*>(&there), sizeof there) != 0)
        throw std::runtime_error("raw TCP: cannot connect");
    ends[1] = ::accept(listener, nullptr, nullptr);
    for (int i : {0, 1}) setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::close(listener);
}

static void send_all(int fd, const std::byte* data, size_t bytes) {
    for (size_t sent = 0; sent < bytes;) {
        auto size = std::min(bytes - sent, wire::piece_bytes_max);
        auto now = ::send(fd, data + sent, size, MSG_NOSIGNAL);
        if (now <= 0) throw std::runtime_error("raw TCP: the connection has broken");
        sent += static_cast<size_t>(now);
    }
}

static void receive_all(int fd, std::byte* data, size_t bytes) {
    for (size_t received = 0; received < bytes;) {
        auto now = ::recv(fd, data + received, bytes - received, 0);
        if (now <= 0) throw std::runtime_error("raw TCP: the connection has broken");
        received += static_cast<size_t>(now);
    }
}

double raw_tcp_bytes_per_s(const Way& way, size_t bytes, bool up) {
    int ends[2];
    connect_pair(way, ends);
    int from = up ? ends[0] : ends[1], to = up ? ends[1] : ends[0];
    // Both ends touch `bytes` of memory of their own, as a copy between two hosts would. The receiver confirms, as the
    // last word of a copy is confirmed.
    std::vector<std::byte> source(bytes, std::byte{1}), target(bytes);
    auto seconds = median_s(3, [&] {
        std::thread receiver([&] {
            receive_all(to, target.data(), bytes);
            send_all(to, target.data(), 1);
        });
        std::byte confirmed;
        send_all(from, source.data(), bytes);
        receive_all(from, &confirmed, 1);
        receiver.join();
    });
    ::close(ends[0]);
    ::close(ends[1]);
    return static_cast<double>(bytes) / seconds;
}

static std::string endpoint(const std::string& host, int port) {
    return "tcp://" + host + ":" + (port ? std::to_string(port) : "*");
}

// An empty message ends the echo.
ZmqPingPong::ZmqPingPong(const Way& way) : server_(server_context_, ZMQ_ROUTER), client_(client_context_, ZMQ_DEALER) {
    server_.bind(endpoint("127.0.0.1", way.ping_port));
    auto bound = server_.get(zmq::sockopt::last_endpoint);
    client_.connect(way.ping_port ? endpoint(way.host, way.ping_port) : bound);
    echo_ = std::thread([this] {
        while (true) {
            zmq::message_t who, what;
            (void)server_.recv(who);
            (void)server_.recv(what);
            if (what.size() == 0) return;
            server_.send(who, zmq::send_flags::sndmore);
            server_.send(what, zmq::send_flags::none);
        }
    });
    round_trip();  // the connection is there now
}

ZmqPingPong::~ZmqPingPong() {
    client_.send(zmq::message_t(), zmq::send_flags::none);
    echo_.join();
}

void ZmqPingPong::round_trip() {
    zmq::message_t message(100);
    client_.send(message, zmq::send_flags::none);
    (void)client_.recv(message);
}

}  // namespace tnr::bench
