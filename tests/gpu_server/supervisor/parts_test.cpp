// The supervisor's parts that can be asked directly.
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/support/catch.hpp"
#include "tests/support/ports.hpp"

#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/event_loop.hpp"
#include "gpu_server/supervisor/gpu_source.hpp"
#include "gpu_server/supervisor/memory_ledger.hpp"
#include "gpu_server/supervisor/turns.hpp"
#include "gpu_server/supervisor/worker_ports.hpp"

using namespace tnr::server;

TEST_CASE("addresses are taken apart or refused", "[server]") {
    CHECK(parse_endpoint("tcp://127.0.0.1:14900")->port == 14900);
    CHECK(parse_endpoint("tcp://[::1]:0")->host == "::1");
    CHECK(parse_endpoint("tcp://[::1]:5")->text() == "tcp://[::1]:5");
    CHECK(parse_endpoint("tcp://*:5")->wildcard());
    CHECK(parse_endpoint("tcp://localhost:5")->loopback());
    CHECK_FALSE(parse_endpoint("tcp://10.0.0.1:5")->loopback());
    for (auto wrong : {"", "tcp://", "tcp://:5", "127.0.0.1:5", "tcp://h:", "tcp://h:70000", "tcp://h:5x", "udp://h:5"})
        CHECK_FALSE(parse_endpoint(wrong));
    CHECK(parse_port_range("1-65535")->last == 65535);
    for (auto wrong : {"", "5", "9-5", "0-5", "5-", "a-b"}) CHECK_FALSE(parse_port_range(wrong));
}

TEST_CASE("who cannot have an address is told what to do, by what is wrong with it", "[server]") {
    Endpoint taken, scratch;
    auto there = listen_on("127.0.0.1", 0, 1, taken);
    REQUIRE(there);
    auto hint = [&](const std::string& host, int port) {
        auto refused = bind_to(host, port, scratch);
        REQUIRE_FALSE(refused);
        return refused.error().hint;
    };
    CHECK(hint("127.0.0.1", taken.port).find("another port") != std::string::npos);
    CHECK(hint("192.0.2.1", 0).find("an address of this machine") != std::string::npos);  // nobody's (RFC 5737)
}

TEST_CASE("a list of GPUs to emulate is read as written", "[server]") {
    CHECK(*parse_emulate("h100:2,a100") == std::vector<std::string>{"h100", "h100", "a100"});
    for (auto wrong : {"", ",", "h100:", "h100:0", "h100:x", "h100,,a100", ":2", "h100:33"})
        CHECK_FALSE(parse_emulate(wrong));
}

TEST_CASE("a port range that is used up says so", "[server]") {
    Endpoint taken, other;
    auto first = listen_on("127.0.0.1", 0, 1, taken);
    REQUIRE(first);
    WorkerPorts ports("127.0.0.1", {taken.port, taken.port});
    auto second = ports.take(other);
    REQUIRE_FALSE(second);
    CHECK(second.error().what.find(std::to_string(taken.port)) != std::string::npos);
}

TEST_CASE("a worker's port refuses clients until it serves, and the longest unused one is taken next", "[server]") {
    const tnr::test::Ports free(3);
    WorkerPorts ports("127.0.0.1", {free.first(), free.first() + 2});
    CHECK(ports.left() == 3);
    Endpoint one, two, three, four;
    auto first = ports.take(one), second = ports.take(two);
    REQUIRE(first);
    REQUIRE(second);
    CHECK(one.port != two.port);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(one.port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto knock = [&] {
        tnr::UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        return ::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
    };
    CHECK(knock() == ECONNREFUSED);
    REQUIRE(::listen(first->get(), 1) == 0);
    CHECK(knock() == 0);
    first->reset();
    ports.give_back(one.port);
    auto third = ports.take(three);
    REQUIRE(third);
    CHECK(three.port != one.port);
    CHECK(three.port != two.port);
    auto fourth = ports.take(four);
    REQUIRE(fourth);
    CHECK(four.port == one.port);
    CHECK(ports.left() == 0);
}

TEST_CASE("memory is granted all or nothing and never beyond the GPU", "[server]") {
    constexpr uint64_t gib = uint64_t{1} << 30;
    MemoryLedger memory;
    memory.set_size(32 * gib);
    CHECK(memory.size() == 31 * gib);  // less the reserve
    CHECK(memory.answer(32 * gib, 0) == 0);
    CHECK(memory.answer(31 * gib, 0) == 31 * gib);
    CHECK(memory.answer(1, 0) > 15 * gib);
    memory.grant(memory.answer(1, 0));
    CHECK(memory.answer(gib, 16 * gib) == gib);  // half of the GPU is enough for one that does not need more
    memory.grant(memory.left());
    CHECK(memory.answer(1, 0) == 0);
    memory.take_back(gib);
    CHECK(memory.answer(gib, 0) == gib);
    memory.take_back(31 * gib);
    memory.limit_claim(8 * gib);
    CHECK(memory.answer(9 * gib, 0) == 0);
    CHECK(memory.answer(1, 0) == 4 * gib);  // half of what the claim may use
    memory.grant(8 * gib);
    CHECK(memory.answer_exactly(1) == 0);
    memory.limit_claim(UINT64_MAX);  // another's claim
    CHECK(memory.left() == 23 * gib);
}

static bool add(Turns& turns, const std::string& account, const std::string& key, const std::string& text) {
    Asked request{key, account, false, "", "a connection", {}, text};
    return turns.add(request) == Turns::Taken::yes;
}

TEST_CASE("each peer has its turn, however much another asks", "[server]") {
    Turns turns;
    auto ask = [&](const std::string& key, const std::string& text) { return add(turns, key, key, text); };
    for (int i = 0; i < 100; ++i) REQUIRE(ask("mallory", "m"));
    REQUIRE(ask("alice", "a1"));
    REQUIRE(ask("alice", "a2"));
    REQUIRE(ask("bob", "b1"));
    std::string order;
    for (int i = 0; i < 8; ++i) order += turns.next()->text + " ";
    CHECK(order == "a1 b1 m a2 m m m m ");
    for (int left = 95; left > 0; --left) REQUIRE(turns.next()->text == "m");
    CHECK(turns.empty());
    CHECK_FALSE(turns.next());
}

TEST_CASE("a peer's requests that wait are bounded, in number and in bytes, and no other's", "[server]") {
    Turns turns;
    size_t many = 0, large = 0;
    while (add(turns, "many", "many", "x")) ++many;
    CHECK(many == requests_per_peer_max);
    while (add(turns, "large", "large", std::string(request_bytes_max, 'x'))) ++large;
    CHECK(large == request_bytes_per_peer_max / request_bytes_max);
    CHECK(add(turns, "alice", "alice", "x"));
    CHECK(add(turns, "", "", "x"));  // a connection of an open pool
    while (turns.next()) {
    }
    CHECK(add(turns, "many", "many", "x"));
}

TEST_CASE("a user's many keys have one turn among them, and one limit", "[server]") {
    Turns turns;
    size_t taken = 0;
    for (int request = 0; request < 400; ++request)
        for (int key = 0; key < 10; ++key) taken += add(turns, "mallory", "m" + std::to_string(key), "m");
    CHECK(taken == requests_per_account_max);
    for (int i = 0; i < 10; ++i) REQUIRE(add(turns, "alice", "a", "a"));
    std::string order;
    for (int i = 0; i < 20; ++i) order += turns.next()->text;
    CHECK(order == "amamamamamamamamamam");  // nobody waits for more than one request of hers
    std::map<std::string, int> answered;
    for (int i = 0; i < 100; ++i) ++answered[turns.next()->public_key];
    for (auto& [key, times] : answered) CHECK(times == 10);
    size_t bytes = 0;
    for (int key = 0; add(turns, "large", "l" + std::to_string(key), std::string(request_bytes_max, 'x')); ++key)
        bytes += request_bytes_max;
    CHECK(bytes == request_bytes_per_account_max);
}

TEST_CASE("a user asks only so often, and others as they like", "[server]") {
    Turns turns;
    Turns::Clock::time_point now{std::chrono::hours(1)};
    auto ask = [&](const std::string& account) {
        Asked request{"key", account, false, "", "", {}, "x"};
        auto taken = turns.add(request, now);
        turns.next();
        return taken;
    };
    int burst = 0;
    while (ask("mallory") == Turns::Taken::yes) ++burst;
    CHECK(burst == requests_burst);
    CHECK(ask("mallory") == Turns::Taken::too_fast);
    CHECK(ask("alice") == Turns::Taken::yes);
    now += std::chrono::seconds(1);
    int in_a_second = 0;
    while (ask("mallory") == Turns::Taken::yes) ++in_a_second;
    CHECK(in_a_second == requests_per_second_max);
    now -= std::chrono::hours(1);  // no clock of ours does that; it would only cost the user his allowance
    CHECK(ask("mallory") == Turns::Taken::too_fast);
}

TEST_CASE("who has had many long answers waits for the next, and others do not", "[server]") {
    Turns turns;
    Turns::Clock::time_point now{std::chrono::hours(1)};
    auto ask = [&](const std::string& account) {
        Asked request{"key of " + account, account, false, "", "", {}, "x"};
        REQUIRE(turns.add(request, now) == Turns::Taken::yes);
    };
    constexpr size_t answer_bytes = 100 * answer_bytes_per_request;
    int answers = 0;
    for (; answers < requests_burst; ++answers) {
        ask("mallory");
        if (!turns.next(now)) break;
        turns.answered("mallory", answer_bytes, now);
    }
    CHECK(answers == static_cast<int>(requests_burst / 100) + 1);
    CHECK_FALSE(turns.empty());
    ask("alice");
    auto next = turns.next(now);
    REQUIRE(next);
    CHECK(next->account == "alice");
    CHECK_FALSE(turns.next(now));
    now += std::chrono::seconds(1);
    CHECK(turns.next(now));
    CHECK(turns.empty());
    turns.answered("", size_t{1} << 30, now);  // in an open pool nobody is counted
}

TEST_CASE("timers fire in their time, unless cancelled", "[server]") {
    EventLoop loop;
    std::string fired;
    EventLoop::TimerId doomed = 0;
    loop.after(milliseconds(0), [&] {
        fired += 'a';
        loop.cancel(doomed);
    });
    doomed = loop.after(milliseconds(0), [&] { fired += 'x'; });
    loop.after(milliseconds(5), [&] { loop.stop(); });
    loop.run();
    CHECK(fired == "a");
}
