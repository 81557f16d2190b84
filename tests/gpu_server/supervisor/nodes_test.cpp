// Two servers of one pool, as their clients and an operator see them from either.
#include <set>
#include <zmq.hpp>

#include "gpu_client/protocol/limits.hpp"
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

// One request to this node alone: an answer that names another node is not followed.
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
    auto sent = [&](const wire::ClientKeys& keys, const std::string& machine) {
        auto answer = ask_only(a, keys, session_request(machine));
        INFO(answer);
        return answer.value("redirect", json::object()).value("node", "") == "b";
    };
    REQUIRE(becomes([&] { return sent(mallory, "m1"); }));
    for (int i = 2; i < 10; ++i) sent(mallory, "m" + std::to_string(i));
    CHECK(sent(bob, "m1"));
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
