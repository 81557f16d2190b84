// The pool over its control messages, while signals come.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <zmq.hpp>

#include "api_client/base/interrupt.hpp"
#include "cli/pool.hpp"
#include "tests/cli/sshd.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace std::chrono_literals;

namespace {

// A pool that accepts and never says a word.
struct DeafPool {
    UniqueFd socket{::socket(AF_INET, SOCK_STREAM, 0)};
    std::string address;
    DeafPool() {
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof name;
        REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&name), length) == 0);
        REQUIRE(::listen(socket.get(), 4) == 0);
        REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0);
        address = "tcp://127.0.0.1:" + std::to_string(ntohs(name.sin_port));
    }
    // What types() says when something happens meanwhile, and after how long.
    std::pair<Error, ssh::Clock::duration> asked(const std::function<void()>& meanwhile) const {
        auto pool = cli::connect_pool({address, {}});
        REQUIRE(pool);
        auto begun = ssh::Clock::now();
        UniqueFd connection;
        std::thread other([&] {
            connection = UniqueFd{::accept(socket.get(), nullptr, nullptr)};  // it is being asked now
            meanwhile();
        });
        auto types = (*pool)->types();
        other.join();
        REQUIRE_FALSE(types);
        return {types.error(), ssh::Clock::now() - begun};
    }
};

// Nodes of a pool, of which the first is asked. The others tell of their ledgers once each of them has been asked to.
class SlowLedgers {
public:
    explicit SlowLedgers(size_t count) {
        for (size_t i = 0; i < count; ++i) {
            auto& node = nodes_.emplace_back(context_, ZMQ_ROUTER);
            node.set(zmq::sockopt::linger, 0);
            node.bind("tcp://127.0.0.1:*");
        }
        thread_ = std::thread([this] { serve(); });
    }
    ~SlowLedgers() {
        over_ = true;
        thread_.join();
    }
    std::string address(size_t node) const { return nodes_[node].get(zmq::sockopt::last_endpoint); }

private:
    using Json = nlohmann::json;
    struct Asked {
        zmq::socket_t* node;
        zmq::message_t from;
        Json answer;
    };
    void serve() {
        while (!over_) {
            for (auto& node : nodes_) {
                zmq::message_t from, text;
                if (!node.recv(from, zmq::recv_flags::dontwait) || !node.recv(text)) continue;
                hear({&node, std::move(from), {}}, Json::parse(text.to_string_view()));
            }
            std::this_thread::sleep_for(1ms);
        }
    }
    void hear(Asked asked, const Json& request) {
        asked.answer = {{"id", request.at("id")}, {"next", nullptr}};
        if (request.at("op") == "nodes") {
            asked.answer.update({{"asked", "node 0"}, {"gone", Json::array()}});
            for (size_t i = 0; i < nodes_.size(); ++i)
                asked.answer["nodes"].push_back(
                    {{"name", "node " + std::to_string(i)}, {"address", address(i)}, {"server_key", ""}});
        }
        asked.answer[request.at("op") == "prices" ? "prices" : "claims"] = Json::array();
        if (request.at("op") != "ledger" || asked.node == &nodes_.front()) return say(asked);
        waiting_.push_back(std::move(asked));
        std::set<zmq::socket_t*> waiting;
        for (auto& one : waiting_) waiting.insert(one.node);
        if (waiting.size() + 1 < nodes_.size()) return;
        for (auto& one : waiting_) say(one);
    }
    static void say(Asked& asked) {
        asked.node->send(asked.from, zmq::send_flags::sndmore);
        asked.node->send(zmq::buffer(asked.answer.dump()));
    }

    zmq::context_t context_;
    std::vector<zmq::socket_t> nodes_;
    std::vector<Asked> waiting_;
    std::atomic<bool> over_{false};
    std::thread thread_;
};

}  // namespace

TEST_CASE("all nodes' ledgers are asked at once", "[cli][pool]") {
    SlowLedgers nodes(4);
    auto pool = cli::connect_pool({nodes.address(0), {}});
    REQUIRE(pool);
    auto books = (*pool)->books(0, false);
    REQUIRE(books);
    CHECK(books->silent.empty());
}

TEST_CASE("Ctrl-C ends the waiting for a pool at once, and is told as that", "[cli][pool]") {
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
    interrupt::install();
    DeafPool pool;
    auto [error, took] = pool.asked([] { ::kill(::getpid(), SIGINT); });
    CHECK(error.what == "interrupted");
    CHECK(interrupt::exit_code() == 130);
    CHECK(took < 4s);
    interrupt::clear_for_test();
}

TEST_CASE("a signal that is none of ours is not noticed while a pool is asked", "[cli][pool]") {
    struct sigaction heard {
    }, before{};
    heard.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &heard, &before);
    DeafPool pool;
    auto [error, took] = pool.asked([] { ::kill(::getpid(), SIGUSR1); });
    ::sigaction(SIGUSR1, &before, nullptr);
    CHECK(error.kind == Error::Kind::network);
    CHECK(error.what.find("no answer from the pool at " + pool.address) == 0);
}
