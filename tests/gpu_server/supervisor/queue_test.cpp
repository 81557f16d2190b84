// The queue for GPUs that others use: places, turns, limits, and clients that are gone.
#include <future>
#include <thread>
#include <zmq.hpp>

#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/supervisor/fair_share.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr::test;
using namespace std::chrono_literals;

namespace {

json waiting_request(const std::string& machine, const std::string& nonce, int64_t wait_s = 600, int count = 1) {
    auto request = session_request(machine, "h100", count);
    request["nonce"] = nonce;
    request["wait_s"] = wait_s;
    return request;
}

// As the library does: asks again with each place it is told. Ends with a session or an error.
json wait_in_queue(tnr::control::Client& client, json request, std::vector<json>* places = nullptr) {
    for (auto until = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < until;) {
        auto answer = ask(client, request);
        if (!answer.contains("queued")) return answer;
        if (places && (places->empty() || places->back() != answer["queued"])) places->push_back(answer["queued"]);
        request["place"] = answer["queued"]["place"];
    }
    return {{"error", "no end"}};
}

// Somebody who waits, on a thread of his own.
struct Waiter {
    Waiter(const Server& server, json request, const tnr::wire::ClientKeys& keys = {})
        : client(client_of(server, keys)),
          answer(std::async(std::launch::async, [this, request] { return wait_in_queue(*client, request, &places); })) {
    }
    bool done(std::chrono::milliseconds within = 0ms) { return answer.wait_for(within) == std::future_status::ready; }
    std::vector<json> places;
    std::unique_ptr<tnr::control::Client> client;
    std::future<json> answer;
};

std::string told(const json& answer) {
    return answer.contains("error") ? answer["error"]["what"].get<std::string>() : "no error: " + answer.dump();
}

constexpr auto patience = 20s;

}  // namespace

TEST_CASE("who waits is told the place, moves up, and gets the GPU that another's linger would have kept",
          "[server][queue]") {
    Server server({"--plain", "--emulate", "h100", "--linger-ms", "600000"});
    auto client = client_of(server);
    auto connection = connect_to(ask(*client, session_request("one"))["endpoint"]);
    Waiter two(server, waiting_request("two", "n2"));
    REQUIRE(server.wait_for_log("two waits for 1 h100"));
    Waiter three(server, waiting_request("three", "n3"));
    REQUIRE(server.wait_for_log("three waits for 1 h100"));
    CHECK(told(ask(*client, session_request("four"))) == "all 1 h100 are in use, and 2 wait for them");
    CHECK_FALSE(two.done(600ms));
    connection.reset();
    REQUIRE(two.done(patience));
    auto session = two.answer.get();
    REQUIRE(session.contains("session"));
    CHECK(two.places.front()["place"] == 1);
    CHECK_FALSE(three.done(600ms));
    { auto used = connect_to(session["endpoint"]); }
    REQUIRE(three.done(patience));
    CHECK(three.answer.get().contains("session"));
    CHECK(three.places.front() == json{{"place", 2}, {"of", 2}});
    CHECK(three.places.back() == json{{"place", 1}, {"of", 1}});
    CHECK(server.log().find("kept, and wanted by another") != std::string::npos);
}

TEST_CASE("a wait ends when its time is over, and asking needs a nonce", "[server][queue]") {
    Server server({"--plain", "--emulate", "h100"});
    auto client = client_of(server);
    auto connection = connect_to(ask(*client, session_request("one"))["endpoint"]);
    auto late = wait_in_queue(*client, waiting_request("two", "n", 1));
    CHECK(told(late) == "all 1 h100 are in use, and 1 waits for them; it waited for 1 s");
    auto nameless = waiting_request("two", "");
    CHECK(ask(*client, nameless)["error"]["kind"] == "usage");
    CHECK(ask(*client, waiting_request("two", "n", -1))["error"]["kind"] == "usage");
    CHECK(ask(*client, waiting_request("two", "n", tnr::control::wait_s_max + 1))["error"]["kind"] == "usage");
    Waiter released(server, waiting_request("three", "n"));
    REQUIRE(server.wait_for_log("three waits for 1 h100"));
    ask(*client, {{"op", "release"}, {"machine", "three"}});
    REQUIRE(released.done(patience));
    CHECK(released.answer.get().contains("error"));
}

TEST_CASE("a hundred clients that wait and vanish hold up nobody", "[server][queue]") {
    Server server({"--plain", "--emulate", "h100", "--linger-ms", "0"});
    auto client = client_of(server);
    auto connection = connect_to(ask(*client, session_request("one"))["endpoint"]);
    {
        zmq::context_t context;
        std::vector<zmq::socket_t> crowd;
        for (int i = 0; i < 100; ++i) {
            auto& one = crowd.emplace_back(context, ZMQ_DEALER);
            one.set(zmq::sockopt::linger, 0);
            one.connect(server.address);
            auto request = waiting_request("m" + std::to_string(i), "n");
            request.update(
                {{"id", 1}, {"protocol", tnr::wire::protocol_version}, {"table", tnr::control::table_hash()}});
            one.send(zmq::buffer(request.dump()), zmq::send_flags::none);
        }
        REQUIRE(server.wait_for_log(" waits for 1 h100", 100));
        // Half of them ask again and vanish while they do, half while they have heard their place.
        for (int i = 0; i < 100; i += 2) {
            zmq::message_t answer;
            REQUIRE(crowd[static_cast<size_t>(i)].recv(answer));
        }
    }
    Waiter after(server, waiting_request("after", "n"));
    REQUIRE(server.wait_for_log("does not wait any more", 100));
    CHECK_FALSE(after.done());
    connection.reset();
    REQUIRE(after.done(patience));
    CHECK(after.answer.get().contains("session"));
    CHECK(server.log().find("m0 process") == std::string::npos);  // nobody who was gone got it meanwhile
}

TEST_CASE("who enters and leaves the queue again and again writes few lines to the log", "[server][queue]") {
    Server server({"--plain", "--emulate", "h100", "--linger-ms", "0"});
    auto client = client_of(server);
    auto connection = connect_to(ask(*client, session_request("one"))["endpoint"]);
    size_t waited = 0;
    for (int round = 0; round < 4; ++round) {
        zmq::context_t context;
        std::vector<zmq::socket_t> crowd;
        for (int i = 0; i < 60; ++i) {
            auto& one = crowd.emplace_back(context, ZMQ_DEALER);
            one.set(zmq::sockopt::linger, 0);
            one.connect(server.address);
            auto request = waiting_request("m", std::to_string(round) + "-" + std::to_string(i));
            request.update(
                {{"id", 1}, {"protocol", tnr::wire::protocol_version}, {"table", tnr::control::table_hash()}});
            one.send(zmq::buffer(request.dump()), zmq::send_flags::none);
        }
        auto waiting = [&] { return ask(*client, {{"op", "queue"}})["queue"].size(); };
        for (int tries = 0; tries < 500 && waiting() < 60; ++tries) std::this_thread::sleep_for(10ms);
        waited += waiting();
        crowd.clear();
        for (int tries = 0; tries < 500 && waiting() > 0; ++tries) std::this_thread::sleep_for(10ms);
    }
    CHECK(waited > 150);  // they were there
    const auto log = server.log();
    size_t lines = 0;
    for (auto at = log.find(" m "); at != std::string::npos; at = log.find(" m ", at + 1)) ++lines;
    WARN(waited << " waited, and " << lines << " lines tell of it");
    CHECK(lines >= 20);
    CHECK(lines < 150);  // 480 before
}

TEST_CASE("a key has only so many places in the queue", "[server][queue]") {
    Server server({"--plain", "--emulate", "h100"});
    auto client = client_of(server);
    auto connection = connect_to(ask(*client, session_request("one"))["endpoint"]);
    zmq::context_t context;
    std::vector<zmq::socket_t> greedy;
    int refused = 0;
    for (size_t i = 0; i < tnr::server::waiting_requests_per_owner_max + 36; ++i) {
        auto& one = greedy.emplace_back(context, ZMQ_DEALER);
        one.set(zmq::sockopt::linger, 0);
        one.connect(server.address);
        auto request = waiting_request("greedy", "n" + std::to_string(i));
        request.update({{"id", i}, {"protocol", tnr::wire::protocol_version}, {"table", tnr::control::table_hash()}});
        one.send(zmq::buffer(request.dump()), zmq::send_flags::none);
    }
    for (auto& one : greedy) {
        zmq::message_t answer;
        REQUIRE(one.recv(answer));
        refused += json::parse(answer.to_string()).contains("error");
    }
    CHECK(refused == 36);
    Waiter other(server, waiting_request("other", "n"));
    REQUIRE(server.wait_for_log("other waits for 1 h100"));
    ask(*client, {{"op", "release"}, {"machine", "other"}});
}

TEST_CASE("the user who has used least comes first, however many of another's wait", "[server][queue]") {
    Server server({"--emulate", "h100", "--linger-ms", "0"});
    auto alice = enroll(server, "alice"), bob = enroll(server, "bob");
    auto client = client_of(server, alice);
    auto connection = connect_to(ask(*client, session_request("a0"))["endpoint"]);
    Waiter second(server, waiting_request("a1", "n1"), alice);
    REQUIRE(server.wait_for_log("alice/a1 waits"));
    Waiter third(server, waiting_request("a2", "n2"), alice);
    REQUIRE(server.wait_for_log("alice/a2 waits"));
    Waiter bobs(server, waiting_request("b0", "n"), bob);
    REQUIRE(server.wait_for_log("bob/b0 waits"));
    connection.reset();
    REQUIRE(bobs.done(patience));
    CHECK(bobs.answer.get().contains("session"));
    CHECK_FALSE(second.done(300ms));
    ask(*client_of(server, bob), {{"op", "release"}, {"machine", "b0"}});
    REQUIRE(second.done(patience));  // and of one user's who came first
    CHECK_FALSE(third.done(300ms));
    ask(*client, {{"op", "release"}, {"machine", "a1"}});
    REQUIRE(third.done(patience));
}

TEST_CASE("who waits for many GPUs is not passed by those who want one each", "[server][queue]") {
    Server server({"--plain", "--emulate", "h100:2", "--linger-ms", "0"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto client = client_of(server);
    auto one = connect_to(ask(*client, session_request("one"))["endpoint"]);
    auto two = connect_to(ask(*client, session_request("two"))["endpoint"]);
    Waiter both(server, waiting_request("both", "n", 600, 2));
    REQUIRE(server.wait_for_log("both waits for 2 h100"));
    Waiter single(server, waiting_request("single", "n"));
    REQUIRE(server.wait_for_log("single waits for 1 h100"));
    one.reset();
    REQUIRE(server.wait_for_log("wiped 1 MiB, free", 3));
    CHECK_FALSE(single.done(600ms));
    CHECK(told(ask(*client, session_request("passing"))).starts_with("all 2 h100 are in use"));
    two.reset();
    REQUIRE(both.done(patience));
    CHECK(both.answer.get()["devices"].size() == 2);
    ask(*client, {{"op", "release"}, {"machine", "single"}});
}

TEST_CASE("a user's limit holds over all his machines, and holds up nobody else", "[server][queue]") {
    Server server({"--emulate", "h100:3", "--linger-ms", "0"}, {"TNR_WORKER_FAKE_GPUS=3"});
    auto alice = enroll(server, "alice"), bob = enroll(server, "bob");
    auto limit = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"user", "limit"});
        words.insert(words.end(), {"--state", server.folder->path + "/state"});
        return run_server_command(words);
    };
    CHECK(limit({"alice", "--gpus", "1"}).out ==
          "alice, a user, may use at most 1 GPU at once; its weight in the queue is 1, its priority 0\n");
    CHECK(limit({"nobody", "--gpus", "1"}).code == 1);
    CHECK(limit({"alice", "--weight", "0"}).code == 2);
    auto client = client_of(server, alice);
    REQUIRE(ask(*client, session_request("a0")).contains("session"));
    auto one_more = ask(*client, session_request("a1"));
    CHECK(told(one_more) == "alice may use 1 GPU at once, uses 1 and asks for 1");
    CHECK(one_more["error"]["hint"] == "end other programs of yours first; the limit is the pool's operator's");
    CHECK(ask(*client, session_request("a1", "h100", 2))["error"]["hint"] ==
          "ask for fewer; the limit is the pool's operator's");
    CHECK(told(ask(*client, waiting_request("a1", "n", 60, 2))) ==
          "alice may use 1 GPU at once, uses 1 and asks for 2");
    Waiter waits(server, waiting_request("a1", "n"), alice);
    REQUIRE(server.wait_for_log("alice/a1 waits"));
    auto bobs = client_of(server, bob);
    REQUIRE(ask(*bobs, session_request("b0")).contains("session"));
    REQUIRE(ask(*bobs, session_request("b1")).contains("session"));
    CHECK_FALSE(waits.done(300ms));
    CHECK(limit({"alice", "--gpus", "0", "--weight", "2"}).out ==
          "alice, a user, may use all GPUs; its weight in the queue is 2, its priority 0\n");
    ask(*bobs, {{"op", "release"}, {"machine", "b0"}});
    REQUIRE(waits.done(patience));
    CHECK(waits.answer.get().contains("session"));
}

TEST_CASE("who has a higher priority is first, whoever came before and used less", "[server][queue]") {
    Server server({"--emulate", "h100", "--linger-ms", "0"});
    auto alice = enroll(server, "alice"), bob = enroll(server, "bob"), carol = enroll(server, "carol");
    auto limited = [&](const std::string& name, const std::string& priority) {
        return run_server_command(
                   {"user", "limit", name, "--priority", priority, "--state", server.folder->path + "/state"})
            .code;
    };
    REQUIRE(limited("carol", "5") == 0);
    CHECK(limited("carol", "101") == 2);
    auto first = client_of(server, carol), operators = client_of(server, alice);
    REQUIRE(ask(*first, session_request("c0")).contains("session"));
    Waiter bobs(server, waiting_request("b1", "b"), bob);
    REQUIRE(server.wait_for_log("bob/b1 waits"));
    Waiter carols(server, waiting_request("c1", "c"), carol);
    REQUIRE(server.wait_for_log("carol/c1 waits"));
    auto his = ask(*client_of(server, bob), {{"op", "queue"}})["queue"];
    REQUIRE(his.size() == 1);
    CHECK(his[0]["machine"] == "b1");
    CHECK(his[0]["place"] == 2);
    CHECK_FALSE(his[0].contains("account"));
    CHECK(told(ask(*operators, {{"op", "queue"}, {"everyone", true}})).find("only an operator") != std::string::npos);
    REQUIRE(
        run_server_command({"user", "limit", "alice", "--role", "operator", "--state", server.folder->path + "/state"})
            .code == 0);
    auto all = ask(*operators, {{"op", "queue"}, {"everyone", true}})["queue"];
    REQUIRE(all.size() == 2);
    CHECK(all[0]["account"] == "carol");
    CHECK(all[0]["priority"] == 5);
    CHECK(all[1]["account"] == "bob");
    ask(*first, {{"op", "release"}, {"machine", "c0"}});
    REQUIRE(carols.done(patience));  // she has used more than bob, and came later
    CHECK_FALSE(bobs.done(300ms));
    CHECK(
        std::any_of(bobs.places.begin(), bobs.places.end(), [](auto& place) { return place.value("above", 0) == 1; }));
    ask(*first, {{"op", "release"}, {"machine", "c1"}});
    REQUIRE(bobs.done(patience));
}

TEST_CASE("who is refused hears of the free type that is most like it", "[server][queue]") {
    Server server({"--plain", "--emulate", "h100,a100"}, {"TNR_WORKER_FAKE_GPUS=2"});
    auto client = client_of(server);
    REQUIRE(ask(*client, session_request("one")).contains("session"));
    json refused;
    auto hears_of_a100 = [&] {
        refused = ask(*client, session_request("two"))["error"];
        return refused["hint"].get<std::string>().starts_with(
            "a100 is free: --gpu a100; or wait for one: `tnr run --wait 5m`");
    };
    // Its worker may still be starting.
    for (int i = 0; i < 200 && !hears_of_a100(); ++i) std::this_thread::sleep_for(50ms);
    INFO(refused.dump());
    CHECK(hears_of_a100());
    REQUIRE(ask(*client, session_request("three", "a100")).contains("session"));
    refused = ask(*client, session_request("two"))["error"];
    CHECK(refused["hint"].get<std::string>().starts_with("wait for one: "));
}

TEST_CASE("what was used fades, and what is held counts as it goes", "[server][queue]") {
    tnr::server::FairShare shares;
    tnr::server::FairShare::Time start{};
    shares.began("alice", 2, start);
    CHECK(shares.used("alice", start + 10s) == Approx(20).epsilon(0.01));
    shares.ended("alice", 2, start + 10s);
    CHECK(shares.held("alice") == 0);
    CHECK(shares.used("alice", start + 10s + 3600s) == Approx(10).epsilon(0.01));
    CHECK(shares.used("bob", start) == 0);
    // Two with weights 2 and 1 that always wait: whoever's turn it is has the GPU for 20 s.
    double weights[] = {2, 1}, had[] = {0, 0};
    auto now = start;
    for (int turn = 0; turn < 3000; ++turn) {
        double used[] = {shares.used("u0", now) / weights[0], shares.used("u1", now) / weights[1]};
        int next = used[0] <= used[1] ? 0 : 1;
        auto user = "u" + std::to_string(next);
        shares.began(user, 1, now);
        now += 20s;
        shares.ended(user, 1, now);
        had[next] += 20;
    }
    CHECK(had[0] / had[1] == Approx(2).epsilon(0.05));
}
