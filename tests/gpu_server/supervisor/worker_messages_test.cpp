// What workers say, which a stranger may have taken over: its form first, then a real server that one says it to.
#include "gpu_server/supervisor/worker_messages.hpp"

#include <unistd.h>

#include <chrono>

#include "gpu_server/supervisor/limits.hpp"
#include "server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr::server;
using namespace tnr::test;

namespace {

const std::string hash(64, 'a'), name(32, 'b');

// The message, if it is of this kind.
template <class Kind>
std::optional<Kind> understood(const std::string& text) {
    auto message = parse_worker_message(text);
    auto* found = message ? std::get_if<Kind>(&*message) : nullptr;
    return found ? std::optional(*found) : std::nullopt;
}

}  // namespace

TEST_CASE("what a worker says is understood", "[worker-messages]") {
    CHECK(understood<ClientConnected>(R"({"connected": true})"));
    CHECK(understood<ClientAway>(R"({"away": true})")->away);
    CHECK(understood<WorkerUse>(R"({"moved": {"up": 7, "down": 18446744073709551615}})")->bytes_up == 7);
    CHECK(understood<WorkerUse>(R"({"moved": {"up": 7, "down": 18446744073709551615}})")->bytes_down == claim_use_max);
    CHECK(understood<MemoryWish>(R"({"grant": {"device": 1, "bytes": 5, "ticket": 9}})")->ticket == 9);
    CHECK(!understood<MemoryWish>(R"({"grant": {"device": 1, "bytes": 5, "ticket": 9}})")->exactly);
    CHECK(understood<MemoryWish>(R"({"grant": {"device": 1, "bytes": 5, "ticket": 9, "exactly": true}})")->exactly);
    CHECK(understood<MemoryBack>(R"({"memory_back": {"device": 1, "bytes": 5}})")->bytes == 5);
    CHECK(understood<LastWord>(R"({"ended": "it\nis 2026"})")->why == "it?is 2026");
    CHECK(understood<LastWord>(R"({"failed": ")" + std::string(100'000, 'x') + R"("})")->why.size() < 1'000);
    auto thing = understood<ExchangeMessage>(R"({"exchange": {"lend": ")" + name +
                                             R"(", "kind": "memory", "device": 0, "bytes": 5, "ticket": 2}})");
    REQUIRE(thing);
    CHECK(std::get<Lend>(*thing).bytes == 5);
    auto image = understood<ImageMessage>(R"({"keep_image": {"hash": ")" + hash + R"(", "bytes": 5}})");
    REQUIRE(image);
    CHECK(std::get<KeepImage>(*image).bytes == 5);
}

TEST_CASE("what is no message of a worker is nonsense, whatever it looks like", "[worker-messages]") {
    for (std::string text : {
             R"()",
             R"({)",
             R"(7)",
             R"([])",
             R"({})",
             R"({"serve": {}})",
             R"({"session": "another's"})",
             R"({"away": 1})",
             R"({"away": null})",
             R"({"grant": {"device": 0, "bytes": 5, "exactly": 1}})",
             R"({"moved": 5})",
             R"({"memory_back": {"device": 0}})",
             R"({"memory_back": {"device": 0, "bytes": -1}})",
             R"({"moved": []})",
             R"({"moved": {"up": 1}})",
             R"({"moved": {"up": -1, "down": 0}})",
             R"({"moved": {"up": 1.5, "down": 0}})",
             R"({"moved": {"up": 1e300, "down": 0}})",
             R"({"moved": {"up": "1", "down": 0}})",
             R"({"moved": {"up": 18446744073709551616, "down": 0}})",
             R"({"moved": {"up": 1, "down": 1, "busy_ms": -1}})",
             R"({"grant": {"device": -1, "bytes": 1}})",
             R"({"grant": {"device": 0, "bytes": -1}})",
             R"({"grant": {"device": 0, "bytes": 1, "ticket": -1}})",
             R"({"grant": {"device": 0}})",
             R"({"grant": true})",
             R"({"ended": 1})",
             R"({"failed": ["x"]})",
             R"({"ready": true})",
             R"({"ready": true, "devices": 1})",
             R"({"ready": true, "devices": [{}]})",
             R"({"exchange": {}})",
             R"({"exchange": "x"})",
             R"({"exchange": {"lend": "../x", "kind": "event", "ticket": 1}})",
             R"({"return": {"name": ""}})",
             R"({"return": "x"})",
             R"({"find_image": {"hash": "../../../x", "bytes": 1, "ticket": 1}})",
             R"({"keep_image": {"bytes": 1}})",
             R"({"damaged_image": {"hash": 7}})",
         }) {
        INFO(text);
        CHECK_FALSE(parse_worker_message(text));
    }
    CHECK_FALSE(parse_worker_message(std::string(200'000, '[')));
    CHECK_FALSE(parse_worker_message(R"({"exchange": {"borrow": ")" + name + R"(", "kind": "event", "ticket": -2}})"));
    CHECK_FALSE(parse_worker_message(R"({"find_image": {"hash": ")" + hash + R"(", "bytes": -1, "ticket": 1}})"));
}

TEST_CASE("a worker that says as much as it can delays nobody, and does not fill the log", "[worker-messages]") {
    Server server({"--plain", "--emulate", "h100:2"});
    auto client = client_of(server);
    auto hostile = connect_to(ask(*client, session_request("hostile"))["endpoint"]);
    REQUIRE(write(hostile.get(), "#kd", 3) == 3);
    auto times_flooded = [&] {
        const std::string notes = server.notes(), wanted = "has flooded";
        int times = 0;
        for (size_t at = 0; (at = notes.find(wanted, at)) != std::string::npos; ++at) ++times;
        return times;
    };
    // A flood read to its end would be two. A busy machine stands still, but not each time.
    constexpr std::chrono::steady_clock::duration limit = std::chrono::seconds(1);
    auto slowest = limit;
    for (int floods = 1; floods <= 3 && slowest >= limit; ++floods) {
        REQUIRE(write(hostile.get(), "F", 1) == 1);
        slowest = {};
        int answers = 0;
        while (times_flooded() < floods) {
            auto asked = std::chrono::steady_clock::now();
            REQUIRE(ask(*client, {{"op", "types"}}).contains("types"));
            slowest = std::max(slowest, std::chrono::steady_clock::now() - asked);
            ++answers;
        }
        CHECK(answers > 20);
    }
    CHECK(slowest < limit);
    auto log = server.log();
    CHECK(std::count(log.begin(), log.end(), '\n') < 100);
    uint64_t granted = 0;
    REQUIRE(write(hostile.get(), "1", 1) == 1);  // it is as before
    CHECK(read(hostile.get(), &granted, sizeof granted) == sizeof granted);
    CHECK(granted > 0);
}

TEST_CASE("all workers of a user together are listened to for a part of the time, and others' at once",
          "[worker-messages]") {
    Server server({"--plain", "--emulate", "h100:2"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto client = client_of(server);
    std::vector<tnr::UniqueFd> hostile;
    for (int i = 0; i < 3; ++i) hostile.push_back(connect_to(ask(*client, session_request("hostile"))["endpoint"]));
    auto other = connect_to(ask(*client, session_request("other"))["endpoint"]);
    for (auto& one : hostile) REQUIRE(write(one.get(), "S", 1) == 1);
    for (int i = 0; i < 10; ++i) {
        uint64_t granted = 0;
        REQUIRE(write(other.get(), "1", 1) == 1);
        REQUIRE(read(other.get(), &granted, sizeof granted) == sizeof granted);
    }
    REQUIRE(server.wait_for_note("has said", 3));
    auto notes = server.notes();
    double said = 0;
    for (auto at = notes.find("has said "); at != std::string::npos; at = notes.find("has said ", at + 1))
        said += std::stod(notes.substr(at + 9));
    WARN(said << " messages in two seconds");
    constexpr double in_sockets = 3 * 500, seconds = 4;  // a busy machine's two
    CHECK(said < worker_messages_burst + seconds * worker_messages_per_second_max + in_sockets);
}

TEST_CASE("a worker that says what cannot be true is ended, and nobody else is", "[worker-messages]") {
    Server server({"--plain", "--emulate", "h100:2"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto client = client_of(server);
    auto other = connect_to(ask(*client, session_request("other"))["endpoint"]);
    const std::string away = "{\"away\": true}\n", back = "{\"away\": false}\n", moved = "v";
    const std::string granted = "{\"grant\": {\"device\": 0, \"bytes\": 2097152, \"ticket\": 1, \"exactly\": true}}\n";
    int lies = 0;
    for (std::string lie : {
             std::string(R"({"connected": true})"),
             std::string(R"({"away": false})"),
             away + away,
             away + back + back,
             std::string(R"({"ready": true, "devices": []})"),
             std::string(R"({"moved": {"up": 1, "down": 1000000000000000}})"),
             std::string(R"({"moved": {"up": 1000000000000000, "down": 1}})"),
             std::string(R"({"moved": {"up": 1, "down": 1, "busy_ms": 600000}})"),
             moved + R"({"moved": {"up": 999, "down": 10, "busy_ms": 700}})",
             moved + R"({"moved": {"up": 1000, "down": 9, "busy_ms": 700}})",
             moved + R"({"moved": {"up": 1000, "down": 10, "busy_ms": 699}})",
             std::string(R"({"memory_back": {"device": 0, "bytes": 1}})"),
             granted + R"({"memory_back": {"device": 0, "bytes": 2097153}})",
             granted + R"({"memory_back": {"device": 1, "bytes": 1}})",
             std::string(R"({"grant": {"device": 1, "bytes": 1, "ticket": 1}})"),
             R"({"return": {"name": ")" + name + R"("}})",
             R"({"exchange": {"withdraw": ")" + name + R"(", "ticket": 1}})",
             R"({"exchange": {"lend": ")" + name + R"(", "kind": "memory", "device": 0, "bytes": 1, "ticket": 1}})",
             R"({"keep_image": {"hash": ")" + hash + R"(", "bytes": 18446744073709551615}})",
         }) {
        INFO(lie);
        auto liar = connect_to(ask(*client, session_request("liar"))["endpoint"]);
        lie += "\n";
        REQUIRE(write(liar.get(), lie.data(), lie.size()) == static_cast<ssize_t>(lie.size()));
        const bool ended = server.wait_for_log("talks nonsense", lies + 1);
        CHECK(ended);
        lies += ended ? 1 : 0;
        uint64_t bytes = 0;
        REQUIRE(write(other.get(), "1", 1) == 1);
        CHECK(read(other.get(), &bytes, sizeof bytes) == sizeof bytes);
    }
    CHECK(server.log().find("out of order") == std::string::npos);
}

TEST_CASE("a worker that serves and says something long is no worker", "[worker-messages]") {
    Server server({"--plain", "--emulate", "h100"});
    auto client = client_of(server);
    auto hostile = connect_to(ask(*client, session_request("hostile"))["endpoint"]);
    REQUIRE(write(hostile.get(), "L", 1) == 1);
    CHECK(server.wait_for_log("talks nonsense"));
    char byte;
    CHECK(read(hostile.get(), &byte, 1) <= 0);
}
