// Users: tokens, roles, the server's changing key, limits that refuse clearly, and the log of it all.
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <zmq.hpp>

#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::test;
using std::chrono::milliseconds;

namespace {

Output command_at(const Server& server, std::vector<std::string> words) {
    words.insert(words.end(), {"--state", server.folder->path + "/state"});
    return run_server_command(words);
}

std::string audit_of(const Server& server) {
    return command_at(server, {"audit"}).out;
}

size_t times_in(const std::string& text, const std::string& what) {
    size_t times = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
    return times;
}

// The keys of a token's line: those that it opens the door with.
wire::ClientKeys token_for(const Server& server, const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"user", "add", name, "--token"};
    words.insert(words.end(), more.begin(), more.end());
    auto output = command_at(server, words);
    INFO(output.err);
    REQUIRE(output.code == 0);
    auto quoted = [&](size_t from) {
        auto begin = output.out.find('\'', from) + 1;
        return output.out.substr(begin, output.out.find('\'', begin) - begin);
    };
    auto token = quoted(0);
    REQUIRE(token.starts_with(wire::token_prefix));
    CHECK(output.out.find("| tnr login pool " + server.address + " '") != std::string::npos);
    auto secret = token.substr(std::string(wire::token_prefix).size());
    return {quoted(output.out.find("login pool")), {wire::public_of(secret), secret}};
}

json redeem(const Server& server, const wire::ClientKeys& token, const std::string& public_key) {
    return ask(*client_of(server, token), {{"op", "enroll_with_token"}, {"public_key", public_key}});
}

std::string said(const json& answer) {
    return answer.contains("error") ? answer["error"]["what"].get<std::string>() : "no error: " + answer.dump();
}

}  // namespace

TEST_CASE("the log says whose claim it was, at its end as at its start", "[users]") {
    Server server({"--emulate", "h100", "--linger-ms", "0"});
    auto client = client_of(server, enroll(server, "alice"));
    REQUIRE(ask(*client, session_request("trainer")).contains("session"));
    CHECK(server.wait_for_log("claim 1: alice/trainer has h100 #0"));
    REQUIRE_FALSE(ask(*client, {{"op", "release"}, {"machine", "trainer"}}).contains("error"));
    CHECK(server.wait_for_log("claim 1 of alice/trainer ended after"));
}

TEST_CASE("a token is traded for a key once, by whoever is first", "[users]") {
    Server server({"--emulate", "h100"});
    auto token = token_for(server, "alice");
    CHECK(ask(*client_of(server, token), {{"op", "hello"}})["role"] == "token");
    SECTION("and is good for nothing else") {
        auto client = client_of(server, token);
        for (auto op : {"session", "describe", "types", "claims", "ledger", "queue", "release"})
            CHECK(said(ask(*client, {{"op", op}, {"gpu", "h100"}})) ==
                  "a token may be traded for a key, and nothing else");
        CHECK(said(ask(*client, {{"op", "enroll_machine"}, {"name", "m"}, {"public_key", token.own.public_key}})) ==
              "a token may be traded for a key, and nothing else");
    }
    SECTION("also when two come at once, again and again") {
        for (int round = 0; round < 10; ++round) {
            auto its = token_for(server, "user" + std::to_string(round));
            wire::KeyPair keys[2] = {wire::make_key_pair(), wire::make_key_pair()};
            json answers[2];
            std::vector<std::thread> both;
            for (int i = 0; i < 2; ++i)
                both.emplace_back([&, i, client = std::shared_ptr(client_of(server, its))] {
                    answers[i] = ask(*client, {{"op", "enroll_with_token"}, {"public_key", keys[i].public_key}});
                });
            for (auto& each : both) each.join();
            int in = answers[0].contains("error") ? 1 : 0;
            CHECK_FALSE(answers[in].contains("error"));
            CHECK(said(answers[1 - in]) == "this token has been used already");
            CHECK(ask(*client_of(server, {its.server_public, keys[in]}), {{"op", "hello"}})["role"] == "account");
            auto loser = client_of(server, {its.server_public, keys[1 - in]});
            CHECK(!loser->request({{"op", "hello"}}, milliseconds(300)));
        }
    }
    SECTION("its secret is not in the state folder") {
        for (auto& file : std::filesystem::directory_iterator(server.folder->path + "/state")) {
            std::ifstream in(file.path(), std::ios::binary);
            std::stringstream text;
            text << in.rdbuf();
            CHECK(text.str().find(token.own.secret_key) == std::string::npos);
        }
    }
    SECTION("a key that is enrolled is no token") {
        auto own = wire::make_key_pair();
        REQUIRE_FALSE(redeem(server, token, own.public_key).contains("error"));
        CHECK(said(redeem(server, {token.server_public, own}, wire::make_key_pair().public_key)) ==
              "this is no token but a key that is enrolled already");
        CHECK(command_at(server, {"user", "list"}).out.find(own.public_key) != std::string::npos);
        auto taken = command_at(server, {"user", "add", "alice", "--token"});
        CHECK(taken.code == 2);
        CHECK(taken.err.find("there is already a user 'alice'") != std::string::npos);
    }
    CHECK(said(redeem(server, token, "short")).find("is no key") != std::string::npos);
}

TEST_CASE("a token that is too old is refused, and one of a removed user opens nothing", "[users]") {
    Server server({"--emulate", "h100"});
    auto late = token_for(server, "alice", {"--expires", "1s"}), gone = token_for(server, "bob");
    CHECK(command_at(server, {"user", "list"}).out.find("its token is good until") != std::string::npos);
    std::this_thread::sleep_for(milliseconds(1100));
    CHECK(said(redeem(server, late, wire::make_key_pair().public_key)) == "this token is too old");
    REQUIRE(command_at(server, {"user", "remove", "bob"}).code == 0);
    CHECK(!client_of(server, gone)->request({{"op", "hello"}}, milliseconds(300)));
    // The name is free again, and what the first one was allowed is not the second one's.
    REQUIRE(command_at(server, {"user", "add", "carol", "--token", "--operator", "--expires", "1s"}).code == 0);
    std::this_thread::sleep_for(milliseconds(1100));
    auto keys = token_for(server, "carol");
    auto own = wire::make_key_pair();
    REQUIRE_FALSE(redeem(server, keys, own.public_key).contains("error"));
    CHECK(ask(*client_of(server, {keys.server_public, own}), {{"op", "hello"}})["operator"] == false);
    for (auto& words : {std::vector<std::string>{"--expires", "1h"},
                        {"--token", "--expires", "0s"},
                        {"--token", "--expires", "-1h"},
                        {"--token", "--expires", "31d"},
                        {"--token", "--expires", "1"},
                        {"--token", "--expires", "99999999999999999999h"}}) {
        std::vector<std::string> command{"user", "add", "dave"};
        command.insert(command.end(), words.begin(), words.end());
        CHECK(command_at(server, command).code == 2);
    }
}

TEST_CASE("names that are none are refused wherever they come from", "[users]") {
    Server server({"--emulate", "h100"});
    auto client = client_of(server, enroll(server, "alice"));
    for (auto& name :
         {std::string("a b"), std::string("a/b"), std::string("x\n2026"), std::string("Ünïcode"), std::string(65, 'x'),
          std::string(5000, 'x'), std::string("a' OR '1'='1"), std::string("\x1b[31m")}) {
        CHECK(command_at(server, {"user", "add", name, "--token"}).code == 2);
        auto refused =
            ask(*client, {{"op", "enroll_machine"}, {"name", name}, {"public_key", wire::make_key_pair().public_key}});
        CHECK(refused["error"]["kind"] == "usage");
    }
    CHECK(command_at(server, {"user", "add", std::string(64, 'x')}).code == 0);
    CHECK(audit_of(server).find('\x1b') == std::string::npos);
}

TEST_CASE("only an operator sees what is everybody's, and a machine of theirs does not", "[users]") {
    Server server({"--emulate", "h100:2", "--linger-ms", "600000"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto alice = enroll(server, "alice"), root = enroll(server, "root");
    auto hers = client_of(server, alice), his = client_of(server, root);
    REQUIRE(ask(*hers, session_request("trainer")).contains("session"));
    auto machine = wire::make_key_pair();
    REQUIRE_FALSE(
        ask(*his, {{"op", "enroll_machine"}, {"name", "m"}, {"public_key", machine.public_key}}).contains("error"));
    for (auto op : {"claims", "ledger", "queue"})
        CHECK(ask(*his, {{"op", op}, {"everyone", true}})["error"]["kind"] == "auth");
    CHECK(ask(*his, {{"op", "claims"}})["claims"].empty());
    REQUIRE(command_at(server, {"user", "limit", "root", "--role", "operator"}).code == 0);
    auto claims = ask(*his, {{"op", "claims"}, {"everyone", true}})["claims"];
    REQUIRE(claims.size() == 1);
    CHECK(claims[0]["account"] == "alice");
    CHECK(ask(*his, {{"op", "ledger"}, {"everyone", true}})["claims"][0]["account"] == "alice");
    CHECK(ask(*his, {{"op", "ledger"}})["claims"].empty());
    CHECK(ask(*his, {{"op", "claims"}, {"everyone", "yes"}})["error"]["kind"] == "usage");
    auto machines = client_of(server, {root.server_public, machine});
    for (auto op : {"claims", "ledger", "queue"})
        CHECK(ask(*machines, {{"op", op}, {"everyone", true}})["error"]["kind"] == "auth");
    CHECK(said(ask(*machines, {{"op", "enroll_with_token"}, {"public_key", wire::make_key_pair().public_key}}))
              .find("no token") != std::string::npos);
    REQUIRE(command_at(server, {"user", "limit", "root", "--role", "user"}).code == 0);
    CHECK(ask(*his, {{"op", "claims"}, {"everyone", true}})["error"]["kind"] == "auth");
}

TEST_CASE("one machine is removed, the user's others go on", "[users]") {
    Server server({"--emulate", "h100:2", "--linger-ms", "600000"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto alice = enroll(server, "alice");
    auto account = client_of(server, alice);
    std::vector<UniqueFd> connections;
    std::vector<std::unique_ptr<control::Client>> machines;
    for (auto name : {"one", "two"}) {
        wire::ClientKeys keys{alice.server_public, wire::make_key_pair()};
        ask(*account, {{"op", "enroll_machine"}, {"name", name}, {"public_key", keys.own.public_key}});
        machines.push_back(client_of(server, keys));
        connections.push_back(connect_to(ask(*machines.back(), session_request())["endpoint"]));
    }
    CHECK(command_at(server, {"user", "remove", "alice", "--machine", "three"}).code == 1);
    auto before = std::chrono::steady_clock::now();
    REQUIRE(command_at(server, {"user", "remove", "alice", "--machine", "one"}).code == 0);
    char byte;
    CHECK(::read(connections[0].get(), &byte, 1) <= 0);
    CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(10));  // 2 s promised, on an idle machine
    CHECK(ask(*machines[0], session_request())["error"]["kind"] == "auth");
    CHECK(ask(*machines[1], session_request()).contains("session"));
    CHECK(ask(*account, {{"op", "claims"}})["claims"].size() == 1);
}

TEST_CASE("the server's key changes under everybody's hands, and nobody notices", "[users]") {
    Server server({"--emulate", "h100", "--linger-ms", "600000"});
    auto keys = enroll(server, "alice");
    auto before = client_of(server, keys);
    auto connection = connect_to(ask(*before, session_request("trainer"))["endpoint"]);
    REQUIRE(command_at(server, {"rotate-key", "--overlap", "1h"}).code == 0);
    REQUIRE(server.wait_for_log("the server's key is another now"));
    auto newer = keys;
    newer.server_public = enroll(server, "bob").server_public;
    CHECK(newer.server_public != keys.server_public);

    CHECK_FALSE(before->newer_pool_key());
    CHECK(ask(*before, {{"op", "claims"}})["claims"].size() == 1);  // the connection of before goes on, and learns
    CHECK(before->newer_pool_key() == newer.server_public);
    auto late = client_of(server, keys);  // one that comes with the old key learns, too
    CHECK(ask(*late, {{"op", "hello"}})["role"] == "account");
    CHECK(late->newer_pool_key() == newer.server_public);
    auto knows = client_of(server, newer);
    CHECK(ask(*knows, {{"op", "hello"}})["role"] == "account");
    CHECK_FALSE(knows->newer_pool_key());
    uint64_t bytes = 0;  // its session has not noticed anything
    REQUIRE(send(connection.get(), "m", 1, 0) == 1);
    REQUIRE(recv(connection.get(), &bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes);

    auto again = command_at(server, {"rotate-key"});
    CHECK(again.code == 2);
    CHECK(again.err.find("--drop-old") != std::string::npos);
    SECTION("until the old one is dropped") {
        REQUIRE(command_at(server, {"rotate-key", "--drop-old"}).code == 0);
        REQUIRE(server.wait_for_log("the server's old key is worthless now"));
        CHECK(!client_of(server, keys)->request({{"op", "hello"}}, milliseconds(500)));
        CHECK(ask(*client_of(server, newer), {{"op", "hello"}})["role"] == "account");
        CHECK(ask(*late, {{"op", "hello"}})["role"] == "account");
    }
    SECTION("also over a restart") {
        server.signal(SIGKILL);
        server.wait_for_exit();
        Server next({"--emulate", "h100"}, {}, server.folder);
        CHECK(ask(*client_of(next, keys), {{"op", "hello"}})["role"] == "account");
        CHECK(ask(*client_of(next, newer), {{"op", "hello"}})["role"] == "account");
    }
}

TEST_CASE("an old key's time ends by itself; a key in wrong hands ends at once", "[users]") {
    Server server({"--emulate", "h100"});
    auto keys = enroll(server, "alice");
    auto overlap = GENERATE(as<std::string>(), "1s", "0s");
    REQUIRE(command_at(server, {"rotate-key", "--overlap", overlap}).code == 0);
    REQUIRE(server.wait_for_log("the server's key is another now"));
    if (overlap == "1s") REQUIRE(server.wait_for_log("the server's old key is worthless now"));
    CHECK(!client_of(server, keys)->request({{"op", "hello"}}, milliseconds(500)));
    CHECK(command_at(server, {"rotate-key", "--overlap", "1h"}).code == 0);  // the next one may come
}

TEST_CASE("one connection too many is told so, and is no unknown key", "[users]") {
    Server server({"--emulate", "h100"});
    auto keys = enroll(server, "alice");
    zmq::context_t context(1);
    std::vector<zmq::socket_t> crowd;
    for (size_t i = 0; i < server::connections_per_key_max + server::connections_told_max; ++i) {
        zmq::socket_t socket(context, ZMQ_DEALER);
        socket.set(zmq::sockopt::linger, 0);
        socket.set(zmq::sockopt::sndtimeo, 20'000);
        socket.set(zmq::sockopt::immediate, 1);
        sign_in(socket, keys);
        socket.connect(server.address);
        REQUIRE(socket.send(zmq::str_buffer("{}"), zmq::send_flags::none));  // waits until it is in
        crowd.push_back(std::move(socket));
        if (i == server::connections_per_key_max) {
            auto told = ask(*client_of(server, keys), {{"op", "hello"}});
            CHECK(said(told).starts_with("too many connections: a key may have 256 at once"));
        }
    }
    CHECK(!client_of(server, keys)->request({{"op", "hello"}}, milliseconds(500)));
    CHECK(server.log().find("too many connections of the key") != std::string::npos);
    CHECK(server.log().find("unknown key") == std::string::npos);
    auto bob = client_of(server, enroll(server, "bob"));
    CHECK(ask(*bob, {{"op", "hello"}})["role"] == "account");
    crowd.clear();
    for (int i = 0; i < 100 && ask(*client_of(server, keys), {{"op", "hello"}}).contains("error"); ++i)
        std::this_thread::sleep_for(milliseconds(20));
    CHECK(ask(*client_of(server, keys), {{"op", "hello"}})["role"] == "account");
}

TEST_CASE("thousands of connections that say nothing, from one address, cost another's tenant nothing", "[users]") {
    rlimit many{};
    getrlimit(RLIMIT_NOFILE, &many);
    many.rlim_cur = std::min<rlim_t>(many.rlim_max, 8192);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &many) == 0);
    // Descriptors for far fewer than come: whoever counted for himself only what he proved would have no room left.
    Server server({"--emulate", "h100"}, {}, std::make_shared<Folder>(), 1024);
    auto keys = enroll(server, "alice");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server::parse_endpoint(server.address)->port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::vector<UniqueFd> crowd;
    for (int i = 0; i < 5000; ++i) {
        UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        sockaddr_in from{};
        from.sin_family = AF_INET;
        from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);  // 127.0.0.2
        REQUIRE(bind(socket.get(), reinterpret_cast<sockaddr*>(&from), sizeof from) == 0);
        (void)connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
        crowd.push_back(std::move(socket));
    }
    REQUIRE(server.wait_for_log("connections from 127.0.0.2 are closed: too many"));
    auto client = client_of(server, keys);
    auto answer = ask(*client, session_request("trainer"));
    CHECK(answer.contains("session"));
    size_t descriptors = 0;
    for (auto& each : std::filesystem::directory_iterator("/proc/" + std::to_string(server.pid) + "/fd")) {
        (void)each;
        ++descriptors;
    }
    CHECK(descriptors < server::unproven_per_source_max + 100);
    auto audit = audit_of(server);
    CHECK(audit.find("too many from there that have proven no key") != std::string::npos);
    CHECK(times_in(audit, "127.0.0.2") <= 62);
}

// Nothing has come from the other end but its greeting, and its end of the connection is open.
static bool is_open(const UniqueFd& connection) {
    char bytes[256];
    ssize_t got = 0;
    while ((got = recv(connection.get(), bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
    }
    return got < 0 && errno == EAGAIN;
}

TEST_CASE("who takes all of an address's places and says nothing keeps nobody with a key out", "[users]") {
    Server server({"--emulate", "h100"});
    auto keys = enroll(server, "alice");
    std::vector<UniqueFd> silent;
    for (size_t i = 0; i < server::unproven_per_source_max; ++i) silent.push_back(knock_at(server.address));
    const auto answer = ask(*client_of(server, keys), {{"op", "hello"}});
    INFO(answer);
    REQUIRE(answer.value("role", "") == "account");
    // It was not the end of everybody's time that let her in, but one's who made room.
    CHECK_FALSE(is_open(silent.front()));
    CHECK(is_open(silent.back()));
    CHECK(server.log().find("connections from 127.0.0.1 are closed: too many") != std::string::npos);
}

TEST_CASE("guessing keys, however fast, gets nothing and leaves few lines", "[users]") {
    Server server({"--emulate", "h100"});
    auto token = token_for(server, "alice");
    zmq::context_t context(1);
    std::vector<zmq::socket_t> guesses;
    for (int i = 0; i < 300; ++i) {
        zmq::socket_t socket(context, ZMQ_DEALER);
        socket.set(zmq::sockopt::linger, 0);
        sign_in(socket, {token.server_public, wire::make_key_pair()});
        socket.connect(server.address);
        socket.send(zmq::str_buffer("{}"), zmq::send_flags::dontwait);
        guesses.push_back(std::move(socket));
    }
    REQUIRE(server.wait_for_log("unknown key"));
    std::this_thread::sleep_for(milliseconds(500));
    for (auto& guess : guesses) {
        zmq::message_t nothing;
        CHECK_FALSE(guess.recv(nothing, zmq::recv_flags::dontwait));
    }
    guesses.clear();
    auto audit = audit_of(server);
    CHECK(times_in(audit, "(127.0.0.1)") > 1);
    CHECK(times_in(audit, "(127.0.0.1)") <= 63);
    CHECK(times_in(server.log(), "refused a connection") <= 2);
    json answer;
    for (int i = 0; i < 50 && !answer.contains("account"); ++i)
        answer = redeem(server, token, wire::make_key_pair().public_key);
    CHECK(answer["account"] == "alice");
}

TEST_CASE("every change of rights and every refusal is told once, with who, what and from where", "[users]") {
    Server server({"--emulate", "h100"});
    auto alice = enroll(server, "alice");
    auto client = client_of(server, alice);
    auto machine = wire::make_key_pair();
    ask(*client, {{"op", "enroll_machine"}, {"name", "trainer"}, {"public_key", machine.public_key}});
    ask(*client_of(server, {alice.server_public, machine}), {{"op", "claims"}});
    ask(*client, {{"op", "session"}, {"gpu", "b200"}});
    ask(*client, {{"op", "forget_machine"}, {"name", "trainer"}});
    command_at(server, {"user", "limit", "alice", "--gpus", "2"});
    command_at(server, {"user", "limit", "alice"});  // only asks
    auto token = token_for(server, "bob");
    auto own = wire::make_key_pair();
    redeem(server, token, own.public_key);
    command_at(server, {"user", "remove", "bob"});
    command_at(server, {"rotate-key"});
    auto audit = audit_of(server);
    INFO(audit);
    size_t at = 0;
    for (auto line :
         {"(this host): added user alice", "changed  alice/local (127.0.0.1): enrolled machine trainer",
          "refused  alice/trainer (127.0.0.1): claims: a machine's key may not do this",
          "refused  alice/local (127.0.0.1): session: the pool has no 'b200'",
          "changed  alice/local (127.0.0.1): forgot machine trainer", "set limits: alice, a user, may use at most 2",
          "added user bob, with a token until", "changed  bob/local (127.0.0.1): signed in with a token",
          "removed user bob", "made a new key for the server"}) {
        auto found = audit.find(line, at);
        CAPTURE(line);
        REQUIRE(found != std::string::npos);
        at = found;
    }
    CHECK(times_in(audit, "set limits") == 1);
    CHECK(audit.find(token.own.secret_key) == std::string::npos);
    CHECK(command_at(server, {"audit", "--since", "0s"}).out.empty());
    CHECK(command_at(server, {"audit", "--since", "1h"}).out == audit);
    CHECK(command_at(server, {"audit", "--since", "yesterday"}).code == 2);
    for (int i = 0; i < 300; ++i) ask(*client, {{"op", "session"}, {"gpu", "b200"}});
    CHECK(times_in(audit_of(server), "no 'b200'") <= 61);
}

TEST_CASE("who asks too often is refused, and told so; others are answered as before", "[users]") {
    Server server({"--emulate", "h100"});
    auto mallory = client_of(server, enroll(server, "mallory")), alice = client_of(server, enroll(server, "alice"));
    json refused;
    for (int i = 0; i < 30'000 && refused.is_null(); ++i) {
        auto answer = ask(*mallory, {{"op", "hello"}});
        if (answer.contains("error")) refused = answer;
    }
    if (refused.is_null()) return;  // this machine is too slow to ask that often
    CHECK(said(refused) == "too many requests: a user may send 1000 a second, and 4000 at once");
    for (int i = 0; i < 100; ++i) REQUIRE(ask(*alice, {{"op", "hello"}})["role"] == "account");
}
