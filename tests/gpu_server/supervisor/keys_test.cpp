// Who may do what: keys, roles, and what strangers get, which is nothing.
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>
#include <zmq.hpp>
#include "tests/support/catch.hpp"

#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "server.hpp"

using namespace tnr;
using namespace tnr::test;

static wire::ClientKeys enroll_machine(control::Client& account, const wire::ClientKeys& keys,
                                       const std::string& name) {
    wire::ClientKeys machine{keys.server_public, wire::make_key_pair()};
    auto answer = ask(account, {{"op", "enroll_machine"}, {"name", name}, {"public_key", machine.own.public_key}});
    REQUIRE_FALSE(answer.contains("error"));
    return machine;
}

TEST_CASE("an account enrolled while the server runs can use it at once, its machines too", "[server]") {
    Server server({"--emulate", "h100:2"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto keys = enroll(server, "alice");
    auto account = client_of(server, keys);
    CHECK(ask(*account, {{"op", "hello"}})["role"] == "account");

    auto trainer = client_of(server, enroll_machine(*account, keys, "trainer"));
    auto notebook = client_of(server, enroll_machine(*account, keys, "notebook"));
    CHECK(ask(*trainer, {{"op", "hello"}})["role"] == "machine");
    auto one = ask(*trainer, session_request());
    auto two =
        ask(*notebook, session_request("trainer"));  // what a machine calls itself counts for nothing: its key does
    INFO(one << two);
    CHECK(one["devices"][0]["uuid"] != two["devices"][0]["uuid"]);
    CHECK(wire::looks_like_key(one["server_key"]));
    CHECK(one["server_key"] != two["server_key"]);
    CHECK(server.wait_for_note("\"client_key\""));
    CHECK(ask(*account, {{"op", "claims"}})["claims"].size() == 2);

    SECTION("a machine's key gives no power over the account") {
        auto other = wire::make_key_pair().public_key;
        for (auto& request : {json{{"op", "enroll_machine"}, {"name", "x"}, {"public_key", other}},
                              json{{"op", "forget_machine"}, {"name", "notebook"}}, json{{"op", "claims"}}}) {
            auto answer = ask(*trainer, request);
            CHECK(answer["error"]["kind"] == "auth");
        }
    }
    SECTION("another account sees and ends nothing of it") {
        auto bob = client_of(server, enroll(server, "bob"));
        CHECK(ask(*bob, {{"op", "claims"}})["claims"].empty());
        ask(*bob, {{"op", "forget_machine"}, {"name", "trainer"}});
        ask(*bob, {{"op", "release"}, {"machine", "trainer"}});
        CHECK(ask(*account, {{"op", "claims"}})["claims"].size() == 2);
        auto stolen = ask(*bob, {{"op", "enroll_machine"}, {"name", "mine"}, {"public_key", keys.own.public_key}});
        CHECK(stolen["error"]["what"] == "this key already belongs to somebody else");
    }
    SECTION("a machine that is forgotten loses its GPU and every right, connected or not") {
        CHECK_FALSE(ask(*account, {{"op", "forget_machine"}, {"name", "trainer"}}).contains("error"));
        REQUIRE(server.wait_for_log("its machine was forgotten"));
        CHECK(ask(*trainer, session_request())["error"]["kind"] == "auth");
        CHECK_FALSE(ask(*account, {{"op", "forget_machine"}, {"name", "trainer"}}).contains("error"));
    }
}

TEST_CASE("a stranger gets nothing: no answer, and the handler never hears of it", "[server]") {
    Server server({"--emulate", "h100"});
    auto known = enroll(server, "alice");
    SECTION("with a key nobody enrolled") {
        auto stranger = client_of(server, {known.server_public, wire::make_key_pair()});
        auto answer = stranger->request({{"op", "hello"}}, std::chrono::milliseconds(500));
        REQUIRE(!answer);
        CHECK(answer.error().kind == Error::Kind::auth);
        CHECK(answer.error().what.find("does not let in the key that this computer has for it") != std::string::npos);
        CHECK(server.wait_for_log("refused a connection from 127.0.0.1: unknown key"));
    }
    SECTION("without encryption") {
        auto plain = client_of(server);
        CHECK(!plain->request({{"op", "hello"}}, std::chrono::milliseconds(500)));
    }
    SECTION("with the right key for the wrong server") {
        auto keys = known;
        keys.server_public = wire::make_key_pair().public_key;
        CHECK(!client_of(server, keys)->request({{"op", "hello"}}, std::chrono::milliseconds(500)));
    }
    CHECK(ask(*client_of(server, known), {{"op", "hello"}})["role"] == "account");
}

// As at another node of the pool, which has not heard of it yet.
TEST_CASE("a key that is tried before it is enrolled is let in when it is", "[server]") {
    Server server({"--emulate", "h100"});
    auto alice = enroll(server, "alice");
    auto account = client_of(server, alice);
    wire::ClientKeys early{alice.server_public, wire::make_key_pair()};
    json answer;
    std::thread asking([&] { answer = ask(*client_of(server, early), {{"op", "hello"}}); });
    const bool refused = server.wait_for_log("refused a connection from 127.0.0.1: unknown key");
    ask(*account, {{"op", "enroll_machine"}, {"name", "late"}, {"public_key", early.own.public_key}});
    asking.join();
    CHECK(refused);
    CHECK(answer["role"] == "machine");
}

TEST_CASE("plain text is for loopback only", "[server]") {
    Folder folder;
    auto output = run_server_command(
        {"serve", "--plain", "--emulate", "h100", "--listen", "tcp://0.0.0.0:0", "--state", folder.path + "/s"});
    CHECK(output.code == 2);
    CHECK(output.err.find("plain text is for loopback only") != std::string::npos);
    CHECK(output.out.empty());
}

TEST_CASE("secrets are for their owner's eyes only", "[server]") {
    Server server({"--emulate", "h100"});
    struct stat status {};
    REQUIRE(stat((server.folder->path + "/state").c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0700);
    REQUIRE(stat((server.folder->path + "/state/server.key").c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("an account's name is taken once; --replace makes the old key worthless", "[server]") {
    Server server({"--emulate", "h100"});
    auto old = client_of(server, enroll(server, "alice"));
    CHECK(ask(*old, {{"op", "hello"}})["role"] == "account");
    auto state = server.folder->path + "/state";
    CHECK(run_server_command({"user", "add", "alice", "--state", state}).code == 2);
    CHECK(run_server_command({"user", "add", "alice", "--replace", "--state", state}).code == 0);
    CHECK(ask(*old, {{"op", "hello"}})["error"]["kind"] == "auth");
    auto listed = run_server_command({"user", "list", "--state", state});
    CHECK(listed.out.find("alice") != std::string::npos);
}

TEST_CASE("who is locked out loses its machines' keys and what they run", "[server]") {
    Server server({"--emulate", "h100", "--linger-ms", "600000"});
    auto keys = enroll(server, "bob");
    auto account = client_of(server, keys);
    auto trainer = client_of(server, enroll_machine(*account, keys, "trainer"));
    auto answer = ask(*trainer, session_request());
    REQUIRE(answer.contains("session"));
    auto connection = connect_to(answer["endpoint"]);
    auto how = GENERATE(as<std::string>(), "add", "remove");
    auto before = std::chrono::steady_clock::now();
    auto command = std::vector<std::string>{"user", how, "bob", "--state", server.folder->path + "/state"};
    if (how == "add") command.push_back("--replace");
    REQUIRE(run_server_command(command).code == 0);
    timeval patience{20, 0};
    REQUIRE(setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    char byte;
    CHECK(::read(connection.get(), &byte, 1) <= 0);                               // its worker has ended
    CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(10));  // 2 s promised, on an idle machine
    REQUIRE(server.wait_for_log("its key is not enrolled any more"));
    CHECK(ask(*trainer, session_request())["error"]["kind"] == "auth");
}

TEST_CASE("a removed user's machine is locked out, though its key is another user's before anybody has looked",
          "[server]") {
    Server server({"--emulate", "h100"});
    auto bob = enroll(server, "bob"), eve = enroll(server, "eve");
    auto keys = enroll_machine(*client_of(server, bob), bob, "trainer");
    auto answer = ask(*client_of(server, keys), session_request());
    REQUIRE(answer.contains("session"));
    auto connection = connect_to(answer["endpoint"]);
    auto store = tnr::server::open_sqlite_store(server.folder->path + "/state/pool.db");
    REQUIRE(store);
    REQUIRE((*store)->remove_account("bob"));
    REQUIRE((*store)->put_machine("eve", "trainer", keys.own.public_key));
    REQUIRE(server.wait_for_log("its key is not enrolled any more"));
}

TEST_CASE("many strangers write few lines to the log", "[server]") {
    Server server({"--emulate", "h100"});
    auto known = enroll(server, "alice");
    for (int i = 0; i < 10; ++i)
        CHECK(!client_of(server, {known.server_public, wire::make_key_pair()})
                   ->request({{"op", "hello"}}, std::chrono::milliseconds(200)));
    auto log = server.log();
    auto first = log.find("refused a connection");
    CHECK(first != std::string::npos);
    CHECK(log.find("refused a connection", first + 1) == std::string::npos);
}

TEST_CASE("commands about keys say when they make no sense", "[server]") {
    Folder folder;
    for (auto& command : {std::vector<std::string>{"user", "list"},
                          {"user", "add", "alice"},
                          {"user", "remove", "alice"},
                          {"audit"},
                          {"rotate-key"}}) {
        auto arguments = command;
        arguments.insert(arguments.end(), {"--state", folder.path + "/typo"});
        auto output = run_server_command(arguments);
        CHECK(output.code == 2);
        CHECK(output.err.find("there is no server's folder at") != std::string::npos);
        CHECK(access((folder.path + "/typo").c_str(), F_OK) != 0);
    }
    Server plain({"--plain", "--emulate", "h100"});
    for (auto& command :
         {std::vector<std::string>{"user", "add", "alice"}, {"rotate-key"}, {"rotate-key", "--drop-old"}}) {
        auto arguments = command;
        arguments.insert(arguments.end(), {"--state", plain.folder->path + "/state"});
        auto output = run_server_command(arguments);
        CHECK(output.code == 2);
        CHECK(output.out.empty());
        CHECK(output.err.find("without keys") != std::string::npos);
    }
}

// ---- hostile bytes, on the open pool's socket

static json raw_request(const Server& server, const std::string& text, bool two_parts = false) {
    zmq::context_t context(1);
    zmq::socket_t socket(context, ZMQ_DEALER);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvtimeo, 20'000);
    socket.connect(server.address);
    if (two_parts) socket.send(zmq::str_buffer("more"), zmq::send_flags::sndmore);
    socket.send(zmq::buffer(text), zmq::send_flags::none);
    zmq::message_t answer;
    REQUIRE(socket.recv(answer));
    return json::parse(answer.to_string());
}

TEST_CASE("nonsense gets an error, and the server lives on", "[server]") {
    Server server({"--plain", "--emulate", "h100"});
    std::string version =
        R"("protocol":)" + std::to_string(wire::protocol_version) + R"(,"table":")" + control::table_hash() + R"(")";
    auto kind = [&](const std::string& text) { return raw_request(server, text)["error"]["kind"]; };
    CHECK(kind("") == "usage");
    CHECK(kind("{") == "usage");
    CHECK(kind("[]") == "usage");
    CHECK(kind("null") == "usage");
    CHECK(kind("{\"op\":\"hello\"}") == "usage");
    CHECK(kind("{\"op\":1," + version + "}") == "usage");
    CHECK(kind("{\"op\":\"session\",\"gpu\":[]," + version + "}") == "usage");
    CHECK(kind("{\"op\":\"session\",\"gpu\":\"h100\",\"count\":1e99," + version + "}") == "usage");
    CHECK(kind("{\"op\":\"session\",\"gpu\":\"h100\",\"machine\":\"a/b\"," + version + "}") == "usage");
    CHECK(kind("{\"op\":\"session\",\"gpu\":\"h100\",\"process\":\"" + std::string(300, 'x') + "\"," + version + "}") ==
          "usage");
    CHECK(kind("{\"op\":\"\xff\"," + version + "}") == "usage");
    CHECK(kind(std::string(10'000, '[')) == "usage");
    auto oversized = raw_request(server, std::string(server::request_bytes_max + 1, ' '));
    CHECK(oversized["error"]["what"].get<std::string>().find("at most") != std::string::npos);
    CHECK(raw_request(server, "{\"op\":\"hello\"," + version + "}", true).contains("error"));

    auto old = raw_request(server, R"({"id":7,"op":"hello","protocol":0,"table":"0123","version":"0.0.9"})");
    CHECK(old["id"] == 7);
    auto what = old["error"]["what"].get<std::string>();
    CHECK(what.find("0.0.9") != std::string::npos);
    CHECK(what.find(control::version()) != std::string::npos);

    // A library that was installed long ago: the version before, and a table that we have never seen.
    auto previous = std::to_string(wire::oldest_protocol_version);
    auto installed = raw_request(server, R"({"id":9,"op":"hello","protocol":)" + previous + R"(,"table":"0123"})");
    CHECK(installed["role"] == "open");

    auto good = raw_request(server, "{\"id\":8,\"op\":\"hello\"," + version + "}");
    CHECK(good["id"] == 8);
    CHECK(good["role"] == "open");
}
