// Two servers of one pool, as their clients and an operator see them from either.
#include <signal.h>

#include <fstream>
#include <set>
#include <zmq.hpp>

#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "tests/gpu_server/pool/own_etcd.hpp"
#include "tests/gpu_server/supervisor/server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::test;

namespace {

constexpr std::chrono::milliseconds seen_within{20'000};

// Until what it says is true.
bool becomes(const std::function<bool()>& is) {
    for (auto end = std::chrono::steady_clock::now() + seen_within; !is();) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return true;
}

json entry_of(control::Client& asked, const std::string& node) {
    const auto answer = ask(asked, {{"op", "nodes"}});
    for (auto& one : answer["nodes"])
        if (one["name"] == node) return one;
    return json();
}

// One request to this node alone, which has to know the keys: an answer that names another node is not followed.
json ask_only(const Server& server, const wire::ClientKeys& keys, json request) {
    zmq::context_t context{1};
    zmq::socket_t socket(context, ZMQ_DEALER);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvtimeo, 10'000);
    sign_in(socket, keys);
    socket.connect(server.address);
    request.update({{"id", 1}, {"protocol", wire::protocol_version}, {"table", control::table_hash()}, {"hops", 0}});
    socket.send(zmq::buffer(request.dump()), zmq::send_flags::none);
    zmq::message_t answer;
    REQUIRE(socket.recv(answer));
    return json::parse(answer.to_string());
}

}  // namespace

TEST_CASE("who is sent to other nodes again and again, and never goes, keeps nobody else from them", "[nodes]") {
    if (!server::OwnEtcd::is_there()) return;
    server::OwnEtcd etcd;
    auto store = etcd.address().text;
    Server a({"--emulate", "h100", "--store", store, "--node", "a"}),
        b({"--emulate", "h100", "--store", store, "--node", "b"}, {"TNR_WORKER_FAKE_FIRST=1"});
    auto alice = enroll(a, "alice"), bob = enroll(a, "bob"), mallory = enroll(a, "mallory");
    auto alices = client_of(a, alice);
    json given;
    REQUIRE(becomes([&] { return (given = ask(*alices, session_request("m1"))).contains("session"); }));
    auto connection = connect_to(given["endpoint"]);  // a's only GPU is in use
    for (auto* keys : {&bob, &mallory}) REQUIRE(ask(*client_of(a, *keys), {{"op", "hello"}})["role"] == "account");
    auto sent = [&](const wire::ClientKeys& keys, const std::string& machine) {
        auto answer = ask_only(a, keys, session_request(machine));
        INFO(answer);
        return answer.value("redirect", json::object()).value("node", "") == "b";
    };
    REQUIRE(becomes([&] { return sent(mallory, "m1"); }));
    for (int i = 2; i < 10; ++i) sent(mallory, "m" + std::to_string(i));
    CHECK(sent(bob, "m1"));
}

// etcd's members choose another leader, or are restarted one by one: for nvidia-smi no less than for programs.
TEST_CASE("what asks for another node's GPUs waits while its node is out of touch with the pool", "[nodes]") {
    if (!server::OwnEtcd::is_there()) return;
    server::OwnEtcd etcd;
    auto store = etcd.address().text;
    Server a({"--emulate", "h100", "--store", store, "--node", "a"}),
        b({"--emulate", "a100", "--store", store, "--node", "b"}, {"TNR_WORKER_FAKE_FIRST=1"});
    auto keys = enroll(a, "alice");
    REQUIRE(ask(*client_of(a, keys), {{"op", "hello"}})["role"] == "account");  // it knows the key now
    const auto asks = [&](const std::string& op) {
        return ask_only(a, keys, {{"op", op}, {"gpu", "a100"}, {"count", 1}, {"machine", "m1"}});
    };
    REQUIRE(becomes([&] { return asks("nvml").contains("redirect"); }));
    etcd.signal(SIGSTOP);
    REQUIRE(becomes([&] { return asks("nvml").contains("error"); }));
    for (auto op : {"nvml", "describe"}) {
        const auto began = std::chrono::steady_clock::now();
        auto refused = asks(op);
        CHECK(std::chrono::steady_clock::now() - began >= server::pool_missed_for);
        REQUIRE(refused.contains("error"));
        CHECK(refused["error"]["what"].get<std::string>().find("out of touch with its pool") != std::string::npos);
    }
    etcd.signal(SIGCONT);
    CHECK(becomes([&] { return asks("nvml").contains("redirect"); }));
}

TEST_CASE("an operator sees everybody's claims on all nodes, and all hear of a node's new key", "[nodes]") {
    if (!server::OwnEtcd::is_there()) return;
    server::OwnEtcd etcd;
    auto store = etcd.address().text;
    Server a({"--emulate", "h100", "--store", store, "--node", "a"}),
        b({"--emulate", "a100", "--store", store, "--node", "b"}, {"TNR_WORKER_FAKE_FIRST=1"});
    auto alice = enroll(a, "alice"), bob = enroll(b, "bob"), boss = enroll(a, "boss");
    REQUIRE(run_server_command({"user", "limit", "boss", "--role", "operator", "--state", a.folder->path + "/state"})
                .code == 0);
    auto alices = client_of(a, alice), bobs = client_of(b, bob), watcher = client_of(a, boss);
    REQUIRE(becomes([&] { return ask(*bobs, session_request("m2", "a100")).contains("session"); }));
    REQUIRE(becomes([&] { return ask(*alices, session_request("m1")).contains("session"); }));

    auto of = [&](control::Client& asked, bool everyone) {
        std::set<std::string> seen;
        auto answer = ask(asked, {{"op", "claims"}, {"everyone", everyone}});
        for (auto& claim : answer["claims"])
            seen.insert(claim["node"].get<std::string>() + " " + claim.value("account", "-") + " " +
                        claim["machine"].get<std::string>());
        return seen;
    };
    CHECK(becomes([&] { return of(*watcher, true) == std::set<std::string>{"a alice m1", "b bob m2"}; }));
    CHECK(of(*watcher, false).empty());
    CHECK(of(*alices, false) == std::set<std::string>{"a - m1"});
    CHECK(ask(*alices, {{"op", "claims"}, {"everyone", true}})["error"]["kind"] == "auth");

    const auto before = entry_of(*alices, "b")["server_key"].get<std::string>();
    REQUIRE(run_server_command({"rotate-key", "--state", b.folder->path + "/state"}).code == 0);
    CHECK(becomes([&] { return entry_of(*alices, "b")["server_key"] != before; }));
    auto fresh = alice;
    fresh.server_public = entry_of(*alices, "b")["server_key"].get<std::string>();
    CHECK(ask(*client_of(b, fresh), {{"op", "hello"}})["role"] == "account");
}

TEST_CASE("who watches one node sees what all have, who holds it and who waits; nodes let each other in for that alone",
          "[nodes]") {
    if (!server::OwnEtcd::is_there()) return;
    server::OwnEtcd etcd;
    auto store = etcd.address().text;
    Server a({"--emulate", "h100", "--store", store, "--node", "a"}),
        b({"--emulate", "a100", "--store", store, "--node", "b"}, {"TNR_WORKER_FAKE_FIRST=1"});
    auto bob = enroll(b, "bob"), carol = enroll(b, "carol");
    auto bobs = client_of(b, bob), carols = client_of(b, carol);
    json given;
    REQUIRE(becomes([&] { return (given = ask(*bobs, session_request("m2", "a100"))).contains("session"); }));
    auto connection = connect_to(given["endpoint"]);
    auto waits = session_request("m3", "a100");
    waits.update({{"wait_s", 600}, {"nonce", "n"}});
    REQUIRE(becomes([&] { return ask(*carols, waits).contains("queued"); }));

    const auto state = a.folder->path + "/state";
    json told;
    auto a_tells = [&] {
        const auto now = json::parse(run_server_command({"status", "-o", "json", "--state", state}).out);
        for (auto& one : now["fellows"]) told = one;
        return told.is_object() && !told["claims"].empty() && !told["queue"].empty();
    };
    INFO(a.log() << b.log());
    REQUIRE(becomes([&] {
        ask(*carols, waits);
        return a_tells();
    }));
    CHECK(told["node"] == "b");
    CHECK(told["gpus"][0]["type"] == "a100");
    CHECK(told["gpus"][0]["state"] == "claimed");
    CHECK(told["claims"][0]["user"] == "bob");
    CHECK(told["claims"][0]["machine"] == "m2");
    CHECK(told["queue"][0]["user"] == "carol");

    std::string secret;
    std::ifstream(b.folder->path + "/state/server.key") >> secret;
    auto alice = enroll(a, "alice");
    // Everybody knows b's public key. Who enrolls it as a machine's takes nothing from b.
    const json theft{{"op", "enroll_machine"}, {"name", "b"}, {"public_key", wire::public_of(secret)}};
    CHECK_FALSE(ask(*client_of(a, alice), theft).contains("error"));
    auto as_b = client_of(a, {alice.server_public, {wire::public_of(secret), secret}});
    CHECK(ask(*as_b, {{"op", "hello"}})["role"] == "node");
    CHECK(ask(*as_b, {{"op", "pool"}})["gpus"].size() == 1);
    CHECK_FALSE(ask(*as_b, {{"op", "pool"}}).contains("day"));
    json day;
    CHECK(becomes([&] { return (day = ask(*as_b, {{"op", "pool"}, {"day", true}})["day"]).is_object(); }));
    CHECK(day["users"].is_array());
    CHECK_FALSE(
        ask(*client_of(a, alice), {{"op", "pool"}, {"day", true}}).contains("day"));  // it has everybody's bills
    for (auto& request : std::vector<json>{
             session_request(),
             session_request("m2"),
             {{"op", "describe"}, {"gpu", "h100"}},
             {{"op", "claims"}},
             {{"op", "claims"}, {"everyone", true}},
             {{"op", "ledger"}},
             {{"op", "queue"}},
             {{"op", "nodes"}},
             {{"op", "types"}},
             {{"op", "release"}},
             {{"op", "enroll_machine"}, {"name", "x"}, {"public_key", wire::make_key_pair().public_key}}}) {
        INFO(request);
        CHECK(ask(*as_b, request)["error"]["kind"] == "auth");
    }
    b.signal(SIGTERM);
    b.wait_for_exit();
    CHECK(becomes([&] { return ask(*as_b, {{"op", "pool"}})["error"]["kind"] == "auth"; }));
}

TEST_CASE("all nodes of a pool tell the same identity, and another pool another", "[nodes]") {
    if (!server::OwnEtcd::is_there()) return;
    server::OwnEtcd etcd, others;
    Server a({"--emulate", "h100", "--store", etcd.address().text, "--node", "a"}),
        b({"--emulate", "a100", "--store", etcd.address().text, "--node", "b"}),
        c({"--emulate", "h100", "--store", others.address().text, "--node", "a"}), alone({"--emulate", "h100"});
    auto told = [](const Server& server, const std::string& user) {
        auto client = client_of(server, enroll(server, user));
        std::string pool;
        CHECK(becomes([&] { return !(pool = ask(*client, {{"op", "hello"}}).value("pool", "")).empty(); }));
        return pool;
    };
    const auto pool = told(a, "alice");
    CHECK(told(b, "bob") == pool);
    CHECK(std::set<std::string>{pool, told(c, "alice"), told(alone, "alice")}.size() == 3);
}

TEST_CASE(
    "a user who is known to the pool is not told to be replaced at another of its nodes, but how to sign in there",
    "[nodes]") {
    if (!server::OwnEtcd::is_there()) return;
    server::OwnEtcd etcd;
    Server a({"--emulate", "h100", "--store", etcd.address().text, "--node", "a"}),
        b({"--emulate", "a100", "--store", etcd.address().text, "--node", "b"}), alone({"--emulate", "h100"});
    auto alice = enroll(a, "alice");
    enroll(alone, "alice");
    auto added = [](const Server& server) {
        return run_server_command({"user", "add", "alice", "--state", server.folder->path + "/state"});
    };
    CHECK(added(alone).err.find("--same-key") == std::string::npos);
    const auto refused = added(b);
    CHECK(refused.code == 2);
    INFO(refused.err);
    const auto line = refused.err.find("tnr login pool " + b.address + " '");
    REQUIRE(line != std::string::npos);
    const auto key = refused.err.find('\'', line) + 1;
    CHECK(refused.err.substr(key + 40, 12) == "' --same-key");
    CHECK(ask(*client_of(b, {refused.err.substr(key, 40), alice.own}), {{"op", "hello"}})["role"] == "account");
}
