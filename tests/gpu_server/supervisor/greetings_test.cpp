// What a peer says of itself when it connects.
#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <zmq.hpp>

#include "gpu_client/protocol/limits.hpp"
#include "server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::test;

namespace {

// In plain text, with so much more than its kind. True: the server lets it in.
bool is_let_in(const Server& server, uint32_t more_bytes) {
    auto socket = knock_at(server.address);
    const timeval patience{20, 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    auto number = [](uint64_t value, int bytes) {
        std::string text;
        while (bytes-- > 0) text += static_cast<char>(value >> (8 * bytes));
        return text;
    };
    std::string greeting("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL", 16);
    greeting.resize(64, '\0');
    std::string ready("\5READY\xbSocket-Type\0\0\0\6DEALER", 28);
    ready += "\6X-Says" + number(more_bytes, 4) + std::string(more_bytes, 'x');
    auto said = greeting + "\6" + number(ready.size(), 8) + ready;
    if (send(socket.get(), said.data(), said.size(), MSG_NOSIGNAL) < 0) return false;
    // Its PING comes half a second after it has let us in. It has said READY before.
    std::string heard;
    for (char bytes[4096]; heard.find("\4PING") == std::string::npos;) {
        auto got = recv(socket.get(), bytes, sizeof bytes, 0);
        if (got <= 0) return false;
        heard.append(bytes, static_cast<size_t>(got));
    }
    return true;
}

}  // namespace

// ZeroMQ names peers that have no name: a zero, and a number that counts up from the first one that libc calls random.
TEST_CASE("nobody ends the server by taking a name that it is about to give away", "[attacks]") {
    Server server({"--emulate", "h100"});
    auto mallory = enroll(server, "mallory"), alice = enroll(server, "alice");
    constexpr uint32_t first_name = 0x6b8b4567;
    const auto hello = json{{"op", "hello"}, {"id", 1}, {"protocol", wire::protocol_version}, {"table", "t"}}.dump();
    zmq::context_t context{1};
    std::vector<zmq::socket_t> named;
    for (uint32_t i = 0; i < 40; ++i) {
        std::string name(1, '\0');
        for (int shift : {24, 16, 8, 0}) name += static_cast<char>((first_name + i) >> shift);
        zmq::socket_t socket(context, ZMQ_DEALER);
        socket.set(zmq::sockopt::linger, 0);
        socket.set(zmq::sockopt::routing_id, name);
        sign_in(socket, mallory);
        socket.connect(server.address);
        socket.send(zmq::buffer(hello), zmq::send_flags::none);
        named.push_back(std::move(socket));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // they try again and again
    for (int i = 0; i < 40; ++i) REQUIRE(ask(*client_of(server, alice), {{"op", "hello"}})["role"] == "account");
    for (auto& socket : named) CHECK_FALSE(socket.get(zmq::sockopt::events) & ZMQ_POLLIN);
}

TEST_CASE("who has much to say of himself is not let in: it would be kept as long as he is there", "[attacks]") {
    Server server({"--plain", "--emulate", "h100"});
    CHECK(is_let_in(server, 900));
    CHECK_FALSE(is_let_in(server, 1'000));
    CHECK_FALSE(is_let_in(server, 30'000));
    CHECK(ask(*client_of(server), {{"op", "hello"}})["role"] == "open");
}
