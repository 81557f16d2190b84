// One port for everything: who is shown in where, and what strangers can make the door hold.
#include "gpu_server/supervisor/front_door.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "gpu_client/protocol/greeting.hpp"
#include "gpu_server/pool/packet.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "tests/gpu_server/supervisor/server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;
using namespace std::chrono_literals;

namespace {

class House {
public:
    explicit House(FrontDoorLimits limits = {}) {
        auto listener = listen_on("127.0.0.1", 0, 1024, at);
        REQUIRE(listener);
        auto opened = FrontDoor::open(std::move(*listener), control, limits);
        REQUIRE(opened);
        door = std::move(*opened);
    }
    UniqueFd knock() const {
        UniqueFd caller(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<uint16_t>(at.port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE(connect(caller.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        return caller;
    }
    UniqueFd say(uint64_t number) const {
        auto caller = knock();
        auto start = wire::greeting_with(number);
        REQUIRE(send(caller.get(), start.data(), start.size(), 0) == static_cast<ssize_t>(start.size()));
        return caller;
    }
    Endpoint at;
    UniqueFd control;
    std::unique_ptr<FrontDoor> door;
};

bool readable(const UniqueFd& socket, std::chrono::milliseconds within = 5s) {
    pollfd item{socket.get(), POLLIN, 0};
    return poll(&item, 1, static_cast<int>(within.count())) == 1;
}

// The connection that was sent there.
UniqueFd shown_in(const UniqueFd& pair) {
    char text[8];
    if (!readable(pair)) return {};
    auto packet = receive_packet(pair.get(), text, sizeof text);
    return packet.files.size() == 1 ? std::move(packet.files.front()) : UniqueFd();
}

// Closed by the other end, in order or not.
bool closed(const UniqueFd& caller, std::chrono::milliseconds within = 5s) {
    char byte;
    return readable(caller, within) && recv(caller.get(), &byte, 1, MSG_DONTWAIT) <= 0;
}

}  // namespace

TEST_CASE("a connection goes where its first ten bytes say, and they are still in it", "[front-door]") {
    House house;
    UniqueFd worker;
    auto ours = FrontDoor::pair(worker);
    REQUIRE(ours);
    auto number = house.door->let_in(std::move(*ours));

    auto client = house.say(number), other = house.say(1),
         named = house.say(33);  // ZeroMQ's own: a routing id's length
    auto there = shown_in(worker);
    REQUIRE(there);
    wire::GreetingStart start;
    REQUIRE(recv(there.get(), start.data(), start.size(), 0) == static_cast<ssize_t>(start.size()));
    CHECK(wire::number_in_greeting(start) == number);
    CHECK(shown_in(house.control));
    CHECK(shown_in(house.control));
    REQUIRE(send(there.get(), "x", 1, 0) == 1);
    char byte = 0;
    CHECK((readable(client) && recv(client.get(), &byte, 1, 0) == 1 && byte == 'x'));

    house.door->let_nobody_in(number);
    CHECK(closed(house.say(number)));
    CHECK(closed(house.say(number ^ 1)));
}

TEST_CASE("ten bytes may come one by one, and nobody who sends nine holds anything for long", "[front-door]") {
    House house({.greeting = 300ms});
    auto slow = house.knock(), never = house.knock(), silent = house.knock();
    auto start = wire::greeting_with(1);
    for (auto& each : start) {
        REQUIRE(send(slow.get(), &each, 1, 0) == 1);
        std::this_thread::sleep_for(3ms);
    }
    REQUIRE(send(never.get(), start.data(), start.size() - 1, 0) == 9);
    CHECK(shown_in(house.control));
    CHECK(closed(never));
    CHECK(closed(silent));
}

TEST_CASE("what does not begin as ZMTP does is closed", "[front-door]") {
    House house;
    auto web = house.knock();
    REQUIRE(send(web.get(), "GET / HTTP/1.1\r\n\r\n", 18, 0) == 18);
    CHECK(closed(web));
    auto wrong_end = house.knock();
    REQUIRE(send(wrong_end.get(), "\xff\0\0\0\0\0\0\0\1\0", 10, 0) == 10);
    CHECK(closed(wrong_end));
}

TEST_CASE("a thousand that say nothing keep nobody out", "[front-door]") {
    House house({.greeting = 60s});
    std::vector<UniqueFd> silent;
    for (int i = 0; i < 1000; ++i) silent.push_back(house.knock());
    auto client = house.say(1);
    CHECK(shown_in(house.control));
    size_t held = 0;
    for (auto& each : silent) held += !closed(each, 0ms);
    CHECK(held <= greetings_waiting_per_source_max);
}

TEST_CASE("a worker that takes nobody in makes nobody else wait", "[front-door]") {
    House house;
    UniqueFd asleep;
    auto ours = FrontDoor::pair(asleep);
    REQUIRE(ours);
    auto number = house.door->let_in(std::move(*ours));
    std::vector<UniqueFd> callers;
    for (int i = 0; i < 500; ++i) callers.push_back(house.say(number));
    auto client = house.say(1);
    CHECK(shown_in(house.control));
}

TEST_CASE("workers' addresses are refused beside --one-port, and so are clients that do not know of it",
          "[front-door]") {
    for (auto& [option, value] : std::map<std::string, std::string>{{"--worker-bind", "127.0.0.1"},
                                                                    {"--worker-address", "gpu.example.org"},
                                                                    {"--worker-ports", "15000-15010"}}) {
        test::Folder folder;
        auto done = test::run_server_command({"serve", "--plain", "--emulate", "h100", "--listen", "tcp://127.0.0.1:0",
                                              "--state", folder.path, "--one-port", option, value});
        CHECK(done.code != 0);
        CHECK(done.err.find("--one-port") != std::string::npos);
    }
    test::Server server({"--plain", "--emulate", "h100", "--one-port"});
    auto client = test::client_of(server);
    auto request = test::session_request("m1");
    CHECK(test::ask(*client, request)["error"].dump().find("too old") != std::string::npos);
    request["doors"] = true;
    auto answer = test::ask(*client, request);
    INFO(answer.dump());
    CHECK(answer.value("door", uint64_t{0}) >= wire::first_greeting_number);
}
