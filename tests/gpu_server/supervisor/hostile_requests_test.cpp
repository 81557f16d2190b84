// Every request with every field as it should not be: each is answered, once and in words, whoever asks; it changes nothing
// for others, and they wait no longer.
#include <sys/socket.h>

#include <chrono>
#include <set>
#include <thread>
#include <zmq.hpp>

#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::test;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

namespace {

// As text, so that it need not be JSON that a library would write.
std::vector<std::string> wrong_values() {
    std::vector<std::string> values{"null",
                                    "true",
                                    "false",
                                    "0",
                                    "-1",
                                    "17",
                                    "2147483648",
                                    "-9223372036854775808",
                                    "9223372036854775808",
                                    "18446744073709551615",
                                    "18446744073709551616",
                                    "1e308",
                                    "1e999",
                                    "-0.0",
                                    "[]",
                                    "{}",
                                    "[1,2,3]",
                                    R"({"a":"b"})",
                                    R"("")",
                                    R"("h100")",
                                    R"("../../claims/")",
                                    R"("%s%n%d")",
                                    R"("'; DROP TABLE claims; --")",
                                    R"("a\u0000b")",
                                    R"("a\nb\u001b[2J")",
                                    R"("\ud800")",
                                    "\"\xff\xfe\"",
                                    "\"\xc0\x80\"",
                                    "NaN",
                                    "\"" + std::string(41, 'A') + "\"",
                                    "\"" + std::string(15'000, 'x') + "\""};
    for (int depth : {15, 17, 2000}) values.push_back(std::string(depth, '[') + std::string(depth, ']'));
    return values;
}

// As {"name": value…}, with one field's value another, or twice.
std::string text_of(const json& request, const std::string& field, const std::string& value, bool twice) {
    std::string text = "{";
    auto add = [&](const std::string& name, const std::string& value) {
        text += (text.size() > 1 ? ",\"" : "\"") + name + "\":" + value;
    };
    for (auto& [name, right] : request.items())
        if (name != field || twice) add(name, right.dump());
    add(field, value);
    return text + "}";
}

class Asker {
public:
    Asker(const Server& server, const wire::ClientKeys& keys) : socket_(context_, ZMQ_DEALER) {
        socket_.set(zmq::sockopt::linger, 0);
        socket_.set(zmq::sockopt::rcvtimeo, 30'000);
        sign_in(socket_, keys);
        socket_.connect(server.address);
    }
    json ask(const std::string& text) {
        socket_.send(zmq::buffer(text), zmq::send_flags::none);
        zmq::message_t answer;
        if (!socket_.recv(answer)) return nullptr;
        return json::parse(answer.to_string(), nullptr, false);
    }

private:
    zmq::context_t context_{1};
    zmq::socket_t socket_;
};

}  // namespace

TEST_CASE("every field of every request may be anything, and nobody else notices", "[held]") {
    Server server({"--emulate", "h100:2"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto mallory = enroll(server, "mallory"), alice = enroll(server, "alice");
    REQUIRE(run_server_command({"user", "limit", "mallory", "--gpus", "1", "--state", server.folder->path + "/state"})
                .code == 0);
    auto alices = client_of(server, alice);
    auto connection = connect_to(ask(*alices, session_request("m"))["endpoint"]);
    const auto key = wire::make_key_pair().public_key;
    const std::vector<json> requests{{{"op", "hello"}},
                                     {{"op", "types"}},
                                     {{"op", "describe"}, {"gpu", "h100"}, {"count", 1}, {"hops", 0}},
                                     {{"op", "session"},
                                      {"gpu", "h100"},
                                      {"count", 2},
                                      {"pid", 1},
                                      {"process", "p"},
                                      {"nonce", "n"},
                                      {"wait_s", 0},
                                      {"place", 1},
                                      {"doors", false},
                                      {"machine", "m"},
                                      {"hops", 0}},
                                     {{"op", "nvml"}, {"gpu", "h100"}, {"count", 1}, {"machine", "m"}},
                                     {{"op", "enroll_with_token"}, {"public_key", key}},
                                     {{"op", "enroll_machine"}, {"name", "m"}, {"public_key", key}},
                                     {{"op", "forget_machine"}, {"name", "m"}},
                                     {{"op", "claims"}, {"everyone", false}},
                                     {{"op", "queue"}, {"everyone", false}},
                                     {{"op", "nodes"}},
                                     {{"op", "release"}, {"machine", "m"}, {"hops", 0}},
                                     {{"op", "ledger"}, {"since", 0}, {"behind", 0}, {"everyone", false}},
                                     {{"op", "pool"}, {"day", true}},
                                     {{"op", "prices"}, {"behind", 0}}};
    const std::set<std::string> polite{"usage", "auth", "remote", "not_found"};
    Asker asker(server, mallory);
    const auto values = wrong_values();
    constexpr milliseconds limit(1000);
    milliseconds longest{0};
    const auto begun = Clock::now();
    int asked = 0;
    auto ask_wrongly = [&](const json& request, const std::string& field) {
        for (auto& value : values) {
            const auto text = text_of(request, field, value, asked % 3 == 0);
            CAPTURE(text);
            // What comes faster than a user may ask is dropped.
            std::this_thread::sleep_until(begun + std::chrono::duration<double>(++asked / 900.0));
            auto answer = asker.ask(text);
            REQUIRE(answer.is_object());
            REQUIRE(answer.contains("id"));
            if (answer.contains("error")) REQUIRE(polite.count(answer["error"].value("kind", "")));
        }
    };
    // How long another then waits for an answer.
    auto others_wait = [&] {
        auto before = Clock::now();
        REQUIRE(ask(*alices, {{"op", "hello"}})["role"] == "account");
        return std::chrono::duration_cast<milliseconds>(Clock::now() - before);
    };
    for (auto request : requests) {
        request.update({{"id", 7},
                        {"protocol", wire::protocol_version},
                        {"table", control::table_hash()},
                        {"version", "1"},
                        {"pool_key", mallory.server_public}});
        for (auto& [field, right] : request.items()) {
            auto wait = limit;
            // A busy machine stands still, but not each time.
            for (int tries = 0; tries < 3 && wait >= limit; ++tries) {
                ask_wrongly(request, field);
                wait = others_wait();
            }
            longest = std::max(longest, wait);
        }
    }
    WARN(asked << " requests; another's longest wait was " << longest.count() << " ms");
    CHECK(longest < limit);
    CHECK(ask(*alices, {{"op", "claims"}})["claims"].size() == 1);
    CHECK(send(connection.get(), "m", 1, 0) == 1);  // her worker still answers
    uint64_t bytes = 0;
    CHECK(recv(connection.get(), &bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes);
    CHECK(server.log().find('\x1b') == std::string::npos);
    CHECK(server.log().find(" error: ") == std::string::npos);
}
