// Claims and sessions as clients see them: a real server, real sockets, real worker processes without a driver.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <cstdlib>
#include <ctime>
#include <future>
#include <set>
#include <thread>
#include "tests/support/catch.hpp"

#include "server.hpp"

using namespace tnr::test;

static std::string what(const json& answer) {
    return answer.contains("error") ? answer["error"]["what"].get<std::string>() : "no error: " + answer.dump();
}

static int free_gpus(tnr::control::Client& client) {
    auto types = ask(client, {{"op", "types"}})["types"];
    return types[0]["free"];
}

static int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}

TEST_CASE("an open pool tells what it has and what we are to it", "[server]") {
    Server server({"--plain", "--emulate", "h100:2,a100"}, {"TNR_WORKER_FAKE_GPUS=3"});
    auto client = client_of(server);
    auto hello = ask(*client, {{"op", "hello"}});
    CHECK(hello["role"] == "open");
    CHECK(hello["table"] == tnr::control::table_hash());
    CHECK(std::abs(hello["time"].get<int64_t>() - std::time(nullptr)) < 60);
    auto types = ask(*client, {{"op", "types"}})["types"];
    REQUIRE(types.size() == 2);
    CHECK(types[0]["name"] == "a100");
    CHECK(types[1]["name"] == "h100");
    CHECK(types[1]["total"] == 2);
    CHECK(types[1]["memory_bytes"] == 1 << 30);
}

TEST_CASE("describing a GPU claims nothing and shows no session's addresses", "[server]") {
    Server server({"--plain", "--emulate", "h100"});
    auto client = client_of(server);
    auto answer = ask(*client, {{"op", "describe"}, {"gpu", "h100"}, {"count", 1}});
    REQUIRE(answer["devices"].size() == 1);
    CHECK(answer["devices"][0]["name"] == "Fake GPU");
    CHECK(answer["devices"][0]["range"]["bytes"] == 0);
    CHECK(ask(*client, {{"op", "claims"}})["claims"].empty());
    CHECK(free_gpus(*client) == 1);
}

TEST_CASE("workers are where the client reached the pool, or where the server's owner says", "[server]") {
    Server nearby({"--plain", "--emulate", "h100"});
    CHECK(ask(*client_of(nearby), session_request("trainer"))["endpoint"].get<std::string>().starts_with("tcp://*:"));
    Server named({"--plain", "--emulate", "h100", "--worker-address", "localhost"});
    CHECK(ask(*client_of(named), session_request("trainer"))["endpoint"].get<std::string>().starts_with(
        "tcp://localhost:"));
}

TEST_CASE("a machine's processes share one claim, each with a worker of its own", "[server]") {
    Server server({"--plain", "--emulate", "h100:2", "--linger-ms", "600000"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto client = client_of(server);
    auto first = ask(*client, session_request("trainer"));
    auto second = ask(*client, session_request("trainer"));
    INFO(first << second);
    CHECK(first["session"] != second["session"]);
    CHECK(first["endpoint"] != second["endpoint"]);
    CHECK(first["devices"][0]["uuid"] == second["devices"][0]["uuid"]);
    CHECK(first["devices"][0]["range"]["bytes"] > 0);
    CHECK(first["server_key"] == "");

    auto claims = ask(*client, {{"op", "claims"}})["claims"];
    REQUIRE(claims.size() == 1);
    CHECK(claims[0]["machine"] == "trainer");
    CHECK(claims[0]["sessions"] == 2);
    CHECK(claims[0]["devices"] == json::array({first["devices"][0]["uuid"]}));
    CHECK(free_gpus(*client) == 1);

    auto other = ask(*client, session_request("notebook"));
    CHECK(other["devices"][0]["uuid"] != first["devices"][0]["uuid"]);
}

TEST_CASE("a session that is asked for twice, because the answer was lost, is one", "[server]") {
    Server server({"--plain", "--emulate", "h100:2", "--linger-ms", "600000"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto client = client_of(server), client_back = client_of(server);
    auto with_nonce = [](const std::string& nonce) {
        auto request = session_request("trainer");
        request["nonce"] = nonce;
        return request;
    };
    auto first = ask(*client, with_nonce("one"));
    auto again = ask(*client_back, with_nonce("one"));
    auto other = ask(*client_back, with_nonce("two"));
    INFO(first << again << other);
    CHECK(again["session"] == first["session"]);
    CHECK(again["endpoint"] == first["endpoint"]);
    CHECK(other["session"] != first["session"]);
    CHECK(ask(*client, {{"op", "claims"}})["claims"][0]["sessions"] == 2);
    // Another machine's is its own, whatever it says.
    auto stranger = with_nonce("one");
    stranger["machine"] = "notebook";
    CHECK(ask(*client, stranger)["session"] != first["session"]);
}

TEST_CASE("a server that stops for a moment does not cost a request", "[server]") {
    Server server({"--plain", "--emulate", "h100"});
    auto client = client_of(server);
    ask(*client, {{"op", "hello"}});
    server.signal(SIGSTOP);
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // three heartbeats
        server.signal(SIGCONT);
    });
    auto answer = ask(*client, {{"op", "hello"}});
    later.join();
    INFO(answer);
    CHECK(answer["role"] == "open");
}

TEST_CASE("when all GPUs are in use a third machine is told so, and gets one when it is free", "[server]") {
    Server server({"--plain", "--emulate", "h100:2", "--linger-ms", "600000"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto client = client_of(server);
    auto first = ask(*client, session_request("one"));
    auto connection = connect_to(first["endpoint"]);
    ask(*client, session_request("two"));
    auto busy = ask(*client, session_request("three"));
    CHECK(what(busy) == "all 2 h100 are in use");
    CHECK(busy["error"]["kind"] == "remote");
    CHECK(busy["error"]["hint"] != "");

    // What a machine that has gone quiet left is kept for itself only, not against others.
    connection.reset();
    REQUIRE(server.wait_for_log("its client has gone"));
    auto third = ask(*client, session_request("three"));
    CHECK(third["devices"][0]["uuid"] == first["devices"][0]["uuid"]);
    CHECK(server.log().find("kept, and wanted by another") != std::string::npos);
}

TEST_CASE("a claim ends with its last process, and the machine's next one finds the GPU as it was left", "[server]") {
    Server server({"--plain", "--emulate", "h100", "--linger-ms", "600000"});
    auto client = client_of(server);
    for (int program = 1; program <= 5; ++program) {
        auto answer = ask(*client, session_request("trainer"));
        INFO(answer);
        REQUIRE(answer.contains("session"));
        CHECK(free_gpus(*client) == 0);
        { auto connection = connect_to(answer["endpoint"]); }
        REQUIRE(server.wait_for_log("of trainer ended", program));
        // For everybody else it is free at once, and nobody's.
        CHECK(free_gpus(*client) == 1);
        CHECK(ask(*client, {{"op", "claims"}})["claims"].empty());
    }
    CHECK(count(server.notes(), "wipe GPU") == 1);  // at the server's start
    SECTION("another machine gets it wiped") {
        REQUIRE(ask(*client, session_request("notebook")).contains("session"));
        CHECK(count(server.notes(), "wipe GPU") == 2);
    }
    SECTION("what is released is wiped at once") {
        REQUIRE_FALSE(ask(*client, {{"op", "release"}, {"machine", "trainer"}}).contains("error"));
        REQUIRE(server.wait_for_log("wiped 1 MiB, free", 2));
    }
}

TEST_CASE("a GPU that its owner does not come back for is wiped", "[server]") {
    Server server({"--plain", "--emulate", "h100", "--linger-ms", "50"});
    auto client = client_of(server);
    { auto connection = connect_to(ask(*client, session_request("trainer"))["endpoint"]); }
    REQUIRE(server.wait_for_log("claim 1 of trainer ended"));
    REQUIRE(server.wait_for_log("wiped 1 MiB, free", 2));
    CHECK(free_gpus(*client) == 1);
    CHECK(ask(*client, session_request("trainer")).contains("session"));
}

TEST_CASE("a GPU whose worker has crashed is not kept", "[server]") {
    Server server({"--plain", "--emulate", "h100", "--linger-ms", "600000"});
    auto client = client_of(server);
    auto connection = connect_to(ask(*client, session_request("trainer"))["endpoint"]);
    REQUIRE(send(connection.get(), "x", 1, 0) == 1);
    REQUIRE(server.wait_for_log("its worker was killed by signal 6"));
    REQUIRE(ask(*client, session_request("trainer")).contains("session"));
    CHECK(count(server.notes(), "wipe GPU") == 2);
}

TEST_CASE("who asks while a claim's last worker is on its way out gets the GPU instead of a refusal", "[server]") {
    Server server({"--plain", "--emulate", "h100"}, {"TNR_WORKER_FAKE_END=slow"});
    auto client = client_of(server);
    { auto connection = connect_to(ask(*client, session_request("one"))["endpoint"]); }
    REQUIRE(server.wait_for_note("ends slowly"));
    auto answer = ask(*client, session_request("two"));
    INFO(answer);
    CHECK(answer.contains("session"));
}

TEST_CASE("a program that asks for more GPUs than the one before waits for that one to end", "[server]") {
    Server server({"--plain", "--emulate", "h100:2"}, {"TNR_WORKER_FAKE_GPUS=2", "TNR_WORKER_FAKE_END=slow"});
    auto client = client_of(server);
    auto first = ask(*client, session_request("torchrun"));
    auto connection = connect_to(first["endpoint"]);
    SECTION("its worker is on its way out") {
        connection.reset();
        REQUIRE(server.wait_for_note("ends slowly"));
    }
    SECTION("it has not even gone") {
        auto gone = std::async(std::launch::async, [&] {
            std::this_thread::sleep_for(
                std::chrono::milliseconds(200));  // a test that is quicker than that passes, too
            connection.reset();
        });
        CHECK(ask(*client, session_request("torchrun", "h100", 2)).contains("session"));
        return;
    }
    auto answer = ask(*client, session_request("torchrun", "h100", 2));
    INFO(answer);
    CHECK(answer["devices"].size() == 2);
}

TEST_CASE("wishes that cannot come true are named", "[server]") {
    Server server({"--plain", "--emulate", "h100:2,a100"}, {"TNR_WORKER_FAKE_GPUS=3"});
    auto client = client_of(server);
    CHECK(what(ask(*client, session_request("m", "h200"))) == "the pool has no 'h200'; it has: a100, h100");
    CHECK(what(ask(*client, session_request("m", "h100", 3))) == "the pool has 2 h100, not 3");
    CHECK(what(ask(*client, session_request("m", "h100", 0))) ==
          "the request's 'count' should be a number from 1 to 16");
    CHECK(what(ask(*client, {{"op", "describe"}, {"gpu", "t4"}})) == "the pool has no 't4'; it has: a100, h100");
    CHECK(what(ask(*client, {{"op", "sesion"}})) == "there is no operation '\"sesion\"'");
}

TEST_CASE("a claim of several GPUs has one worker that sees them all", "[server]") {
    Server server({"--plain", "--emulate", "h100:3"}, {"TNR_WORKER_FAKE_GPUS=3"});
    auto client = client_of(server);
    auto answer = ask(*client, session_request("torchrun", "h100", 2));
    INFO(answer);
    REQUIRE(answer["devices"].size() == 2);
    std::set<std::string> uuids{answer["devices"][0]["uuid"], answer["devices"][1]["uuid"]};
    CHECK(uuids.size() == 2);
    CHECK(free_gpus(*client) == 1);
    auto joined = ask(*client, session_request("torchrun", "h100", 2));
    CHECK(joined["devices"].size() == 2);
    CHECK(what(ask(*client, session_request("torchrun", "h100", 3))) == "torchrun already holds 2 h100 and asks for 3");
    CHECK(ask(*client, {{"op", "release"}, {"machine", "torchrun"}}).contains("id"));
    REQUIRE(server.wait_for_log("wiped 1 MiB, free", 5));
    CHECK(free_gpus(*client) == 3);
}

TEST_CASE("a worker that dies ends its session with a clear line, and its GPU is free again", "[server]") {
    Server server({"--plain", "--emulate", "h100", "--linger-ms", "0"});
    auto client = client_of(server);
    auto first = ask(*client, session_request("trainer"));
    auto connection = connect_to(first["endpoint"]);
    REQUIRE(send(connection.get(), "x", 1, 0) == 1);
    REQUIRE(server.wait_for_log("trainer process 42 (train) on h100 #0 ended after"));
    CHECK(server.log().find("its worker was killed by signal 6") != std::string::npos);
    auto next = ask(*client, session_request("other"));
    CHECK(next.contains("session"));
}

TEST_CASE("sessions together never get more memory than the GPU has", "[server]") {
    Server server({"--plain", "--emulate", "h100"});
    auto client = client_of(server);
    auto one = connect_to(ask(*client, session_request("trainer"))["endpoint"]);
    auto two = connect_to(ask(*client, session_request("trainer"))["endpoint"]);
    auto grant = [](const tnr::UniqueFd& connection) {
        uint64_t bytes = 0;
        REQUIRE(send(connection.get(), "m", 1, 0) == 1);
        REQUIRE(recv(connection.get(), &bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes);
        return bytes;
    };
    uint64_t first = 0, second = 0, last = 1;
    first = grant(one);
    CHECK(first > (uint64_t{64} << 20));  // more than it asked for, while there is plenty
    second = grant(two);
    CHECK(second >= (uint64_t{64} << 20));  // the first has left something
    uint64_t sum = first + second;
    while (last > 0) sum += last = grant(one);
    CHECK(sum <= (uint64_t{1} << 30));
    CHECK(sum > (uint64_t{3} << 28));
    one.reset();
    REQUIRE(server.wait_for_log("its client has gone"));
    CHECK(grant(two) > 0);  // what the dead had is there again
}

TEST_CASE("who wants memory that a program leaves, which has just been killed, waits for it", "[server]") {
    Server server({"--plain", "--emulate", "h100"});
    auto client = client_of(server);
    auto leaving = connect_to(ask(*client, session_request("trainer"))["endpoint"]);
    auto staying = connect_to(ask(*client, session_request("trainer"))["endpoint"]);
    auto want = [](const tnr::UniqueFd& connection) { REQUIRE(send(connection.get(), "m", 1, 0) == 1); };
    auto granted = [](const tnr::UniqueFd& connection) {
        uint64_t bytes = 0;
        REQUIRE(recv(connection.get(), &bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes);
        return bytes;
    };
    auto answered = [](const tnr::UniqueFd& connection, int within_ms) {
        pollfd item{connection.get(), POLLIN, 0};
        return poll(&item, 1, within_ms) == 1;
    };
    do want(leaving);
    while (granted(leaving) > 0);
    want(staying);
    CHECK(granted(staying) == 0);  // nobody leaves: there is none
    REQUIRE(send(leaving.get(), "a", 1, 0) == 1);
    want(leaving);
    CHECK(granted(leaving) == 0);  // so the supervisor has read the word before
    want(staying);
    want(staying);
    CHECK_FALSE(answered(staying, 300));
    SECTION("it is gone for good") {
        leaving.reset();
        CHECK(granted(staying) > 0);
        CHECK(granted(staying) > 0);
    }
    SECTION("it comes back") {
        REQUIRE(send(leaving.get(), "r", 1, 0) == 1);
        CHECK(granted(staying) == 0);
        CHECK(granted(staying) == 0);
    }
    SECTION("nobody ever says what became of it") {
        CHECK(granted(staying) == 0);
    }
}

TEST_CASE("workers see nothing of the server's environment but what they need", "[server]") {
    Server server({"--plain", "--emulate", "h100:2"}, {"TNR_WORKER_FAKE_GPUS=2"});
    REQUIRE(server.wait_for_note("worker GPU-00000000-0000-0000-0000-000000000000 secrets\n"));
    REQUIRE(server.wait_for_note("worker GPU-11111111-1111-1111-1111-111111111111 secrets\n"));
    CHECK(server.notes().find("leaked") == std::string::npos);
}

TEST_CASE("the supervisor's own facts answer nvml requests, for the caller's GPU only", "[server]") {
    Server server({"--plain", "--emulate", "h100:2"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto client = client_of(server);
    auto mine = ask(*client, session_request("trainer"));
    auto others = ask(*client, session_request("other"));
    auto answer = ask(*client, {{"op", "nvml"}, {"gpu", "h100"}, {"count", 1}, {"machine", "trainer"}});
    INFO(answer);
    REQUIRE(answer["devices"].size() == 1);
    CHECK(answer["devices"][0]["uuid"] == mine["devices"][0]["uuid"]);
    REQUIRE(answer["processes"].size() == 1);
    CHECK(answer["processes"][0]["pid"] == 42);
    CHECK(answer["processes"][0]["name"] == "train");
}
