// A pool of several nodes that are asked at once. Here two of them answer only when both have been asked, and one never.
#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "cli/pool.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

class PoolOfFour {
public:
    PoolOfFour() {
        for (const auto* name : {"a", "b", "c", "d"}) {
            auto& socket = sockets_.emplace(name, zmq::socket_t(context_, ZMQ_ROUTER)).first->second;
            socket.set(zmq::sockopt::linger, 0);
            socket.bind("tcp://127.0.0.1:*");
            addresses[name] = socket.get(zmq::sockopt::last_endpoint);
        }
        thread_ = std::thread([this] { serve(); });
    }
    ~PoolOfFour() {
        stopping_ = true;
        thread_.join();
    }
    int asked_d() const { return asked_d_; }

    std::map<std::string, std::string> addresses;

private:
    struct Question {
        std::string node, who;
        json request;
    };

    void serve() {
        while (!stopping_) {
            for (auto& [name, socket] : sockets_) {
                zmq::message_t who, text;
                if (!socket.recv(who, zmq::recv_flags::dontwait)) continue;
                (void)socket.recv(text);
                take({name, who.to_string(), json::parse(text.to_string())});
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
    }
    void take(Question question) {
        asked_d_ += question.node == "d";
        if (question.node == "a") answer(question);
        if (question.node == "b" || question.node == "c") held_.push_back(std::move(question));
        std::set<std::string> nodes;
        for (auto& held : held_) nodes.insert(held.node);
        if (nodes.size() < 2) return;
        for (auto& held : held_) answer(held);
        held_.clear();
    }
    void answer(const Question& question) {
        auto reply = answer_of(question);
        reply["id"] = question.request.at("id");
        auto& socket = sockets_.at(question.node);
        socket.send(zmq::buffer(question.who), zmq::send_flags::sndmore);
        socket.send(zmq::buffer(reply.dump()), zmq::send_flags::none);
    }
    json answer_of(const Question& question) {
        const auto op = question.request.at("op");
        if (op == "nodes") {
            json nodes = json::array();
            for (auto& [name, address] : addresses)
                nodes.push_back({{"name", name}, {"address", address}, {"server_key", ""}});
            return {{"nodes", nodes}, {"asked", "a"}, {"gone", json::array({"e"})}};
        }
        if (op == "prices") return {{"prices", json::array()}, {"next", nullptr}};
        if (op == "ledger") return {{"claims", json::array({claim(question.node)})}, {"next", nullptr}};
        return {{"now", 1000},
                {"claims", json::array()},
                {"queue", json::array()},
                {"queue_length", 0},
                {"nodes", json::array({{{"name", question.node}, {"version", "1"}, {"ending", false}}})},
                {"gpus", json::array()}};
    }
    static json claim(const std::string& machine) {
        return {{"id", 1},    {"machine", machine}, {"gpu", "h100"}, {"count", 1},     {"from", 1},
                {"to", 1000}, {"ended", true},      {"bytes_up", 0}, {"bytes_down", 0}};
    }

    zmq::context_t context_;
    std::map<std::string, zmq::socket_t> sockets_;
    std::vector<Question> held_;
    std::atomic<int> asked_d_{0};
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

std::set<std::string> silent_of(const cli::PoolNow& now) {
    std::set<std::string> silent;
    for (auto& node : now.nodes)
        if (node.silent) silent.insert(node.name);
    return silent;
}

}  // namespace

TEST_CASE("all nodes of a pool are asked at once for what they do, and a silent one is left alone for a while",
          "[cli][pool]") {
    PoolOfFour nodes;
    auto pool = cli::connect_pool({nodes.addresses["a"], {}});
    REQUIRE(pool);
    auto now = (*pool)->now();
    REQUIRE(now);
    CHECK(silent_of(*now) == std::set<std::string>{"d", "e"});
    CHECK(now->nodes.size() == 5);
    const int before = nodes.asked_d();
    CHECK(before > 0);
    now = (*pool)->now();
    REQUIRE(now);
    CHECK(silent_of(*now) == std::set<std::string>{"d", "e"});
    CHECK(nodes.asked_d() == before);
}

TEST_CASE("all nodes of a pool are asked at once for their ledgers", "[cli][pool]") {
    PoolOfFour nodes;
    auto pool = cli::connect_pool({nodes.addresses["a"], {}});
    REQUIRE(pool);
    auto books = (*pool)->books(0, true, {});
    REQUIRE(books);
    std::set<std::string> from;
    for (auto& use : books->uses) from.insert(use.machine);
    CHECK(from == std::set<std::string>{"a", "b", "c"});
    CHECK(std::set<std::string>(books->silent.begin(), books->silent.end()) == std::set<std::string>{"d", "e"});
}
