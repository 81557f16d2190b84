// What becomes of GPUs that are asked for and never used.
#include <thread>

#include "tests/support/catch.hpp"

#include "gpu_server/supervisor/limits.hpp"
#include "server.hpp"

using namespace tnr;
using namespace tnr::test;

TEST_CASE("a key that never connects to what it is given does not get it again and again", "[attacks]") {
    Server server({"--plain", "--emulate", "h100", "--linger-ms", "0"}, {"TNR_WORKER_FAKE_SERVE=unconnected"});
    auto client = client_of(server);
    for (int i = 1; i <= 3; ++i) {
        REQUIRE(ask(*client, session_request("greedy")).contains("session"));
        REQUIRE(server.wait_for_log("the client never connected", i));
        REQUIRE(wait_for_free_gpus(server, 1));
    }
    auto refused = ask(*client, session_request("greedy"));
    CHECK(refused["error"]["what"].get<std::string>().find("were never used") != std::string::npos);
    CHECK(ask(*client, session_request("modest")).contains("session"));
}

TEST_CASE("a key that gives back what it never connected to does not get it again and again", "[attacks]") {
    Server server({"--plain", "--emulate", "h100", "--linger-ms", "0"});
    auto client = client_of(server);
    auto takes_and_gives_back = [&](const std::string& machine) {
        auto answer = ask(*client, session_request(machine));
        ask(*client, {{"op", "release"}, {"machine", machine}});
        REQUIRE(wait_for_free_gpus(server, 1));
        return answer;
    };
    for (int i = 1; i <= 3; ++i) REQUIRE(takes_and_gives_back("greedy").contains("session"));
    CHECK(takes_and_gives_back("greedy")["error"]["what"].get<std::string>().find("were never used") !=
          std::string::npos);
    CHECK(takes_and_gives_back("modest").contains("session"));
}

// Keys are cheap: an account makes as many for its machines as it likes.
TEST_CASE("a user who never connects does not get GPUs again and again by another key each time", "[attacks]") {
    Server server({"--emulate", "h100", "--linger-ms", "0"});
    const auto keys = enroll(server, "greedy");
    auto account = client_of(server, keys);
    auto wait_until_free = [&] {
        const auto free = [&] { return ask(*account, {{"op", "types"}})["types"][0]["free"] == 1; };
        for (int i = 0; i < 1'000 && !free(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    auto takes_and_gives_back = [&](const std::string& machine) {
        wire::ClientKeys own{keys.server_public, wire::make_key_pair()};
        auto enrolled =
            ask(*account, {{"op", "enroll_machine"}, {"name", machine}, {"public_key", own.own.public_key}});
        REQUIRE_FALSE(enrolled.contains("error"));
        auto client = client_of(server, own);
        auto answer = ask(*client, session_request());
        ask(*client, {{"op", "release"}});
        wait_until_free();
        return answer;
    };
    for (int i = 1; i <= tnr::server::unconnected_sessions_per_user_max; ++i)
        REQUIRE(takes_and_gives_back("m" + std::to_string(i)).contains("session"));
    CHECK(takes_and_gives_back("another")["error"]["what"].get<std::string>().find("this user's machines") !=
          std::string::npos);
    auto modest = client_of(server, enroll(server, "modest"));
    CHECK(ask(*modest, session_request()).contains("session"));
}

TEST_CASE("a key that never connects does not keep a claim by asking for more sessions in it", "[attacks]") {
    Server server({"--plain", "--emulate", "h100", "--linger-ms", "0"}, {"TNR_WORKER_FAKE_SERVE=unconnected, late"});
    auto client = client_of(server);
    bool refused = false;
    for (int pid = 1; pid <= 50 && !refused; ++pid) {
        auto request = session_request("greedy");
        request["pid"] = pid;
        auto answer = ask(*client, request);
        refused = answer.contains("error") && answer.dump().find("were never used") != std::string::npos;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    CHECK(refused);
    CHECK(wait_for_free_gpus(server, 1));
}
