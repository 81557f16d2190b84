// See baselines.hpp.
#include "tests/bench/baselines.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <zmq.hpp>

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

double zmq_round_trip_s(int rounds) {
    zmq::context_t server_context(1), client_context(1);
    zmq::socket_t server(server_context, ZMQ_ROUTER), client(client_context, ZMQ_DEALER);
    server.bind("tcp://127.0.0.1:*");
    client.connect(server.get(zmq::sockopt::last_endpoint));
    std::thread echo([&] {
        for (int i = 0; i <= rounds; ++i) {
            zmq::message_t who, what;
            (void)server.recv(who);
            (void)server.recv(what);
            server.send(who, zmq::send_flags::sndmore);
            server.send(what, zmq::send_flags::none);
        }
    });
    auto ping = [&] {
        zmq::message_t message(100);
        client.send(message, zmq::send_flags::none);
        (void)client.recv(message);
    };
    ping();  // the connection is there now
    auto seconds = median_s(rounds, ping);
    echo.join();
    return seconds;
}

}  // namespace tnr::bench
