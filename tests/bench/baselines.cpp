// See baselines.hpp.
#include "tests/bench/baselines.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gpu_client/protocol/limits.hpp"

namespace tnr::bench {

// A connected pair over loopback TCP.
static void connect_pair(int ends[2]) {
    int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    (void)::bind(listener, reinterpret_cast<sockaddr*>(&address), length);
    ::listen(listener, 1);
    ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
    ends[0] = ::socket(AF_INET, SOCK_STREAM, 0);
    (void)::connect(ends[0], reinterpret_cast<sockaddr*>(&address), length);
    ends[1] = ::accept(listener, nullptr, nullptr);
    ::close(listener);
}

double raw_tcp_bytes_per_s(size_t bytes) {
    int ends[2];
    connect_pair(ends);
    // Both ends touch `bytes` of memory of their own, as a copy between two hosts would.
    std::vector<std::byte> source(bytes, std::byte{1}), target(bytes);
    auto seconds = median_s(3, [&] {
        std::thread sender([&] {
            for (size_t sent = 0; sent < bytes;) {
                auto size = std::min(bytes - sent, wire::piece_bytes_max);
                sent += static_cast<size_t>(::send(ends[0], source.data() + sent, size, 0));
            }
        });
        for (size_t received = 0; received < bytes;)
            received += static_cast<size_t>(::recv(ends[1], target.data() + received, bytes - received, 0));
        sender.join();
    });
    ::close(ends[0]);
    ::close(ends[1]);
    return static_cast<double>(bytes) / seconds;
}

// An empty message ends the echo.
ZmqPingPong::ZmqPingPong() : server_(server_context_, ZMQ_ROUTER), client_(client_context_, ZMQ_DEALER) {
    server_.bind("tcp://127.0.0.1:*");
    client_.connect(server_.get(zmq::sockopt::last_endpoint));
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
