// Which member of an etcd is asked.
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <thread>

#include "gpu_server/pool/directory_backend.hpp"
#include "gpu_server/pool/etcd.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;

namespace {

// Three members that answer every question with `body`, in which each puts its number for "%", and count who comes.
class Members {
public:
    Members() {
        for (size_t i = 0; i < listeners_.size(); ++i) {
            Endpoint here;
            listeners_[i] = std::move(*listen_on("127.0.0.1", 0, 64, here));
            text_ += (i ? "," : "etcd://") + ("127.0.0.1:" + std::to_string(here.port));
        }
        thread_ = std::thread([this] {
            while (!stopping_) answer();
        });
    }
    ~Members() {
        stopping_ = true;
        thread_.join();
    }
    etcd::Address address() const { return *etcd::parse_address(text_); }
    std::array<std::atomic<int>, 3> asked{};
    std::atomic<int> silent = -1;  // one that hangs up at once
    std::string body = R"({"header":{"revision":"1"}})";

private:
    void answer() {
        std::array<pollfd, 3> knocks;
        for (size_t i = 0; i < knocks.size(); ++i) knocks[i] = {listeners_[i].get(), POLLIN, 0};
        if (poll(knocks.data(), knocks.size(), 20) <= 0) return;
        for (size_t i = 0; i < knocks.size(); ++i) {
            if (!(knocks[i].revents & POLLIN)) continue;
            UniqueFd caller(accept4(listeners_[i].get(), nullptr, nullptr, SOCK_CLOEXEC));
            ++asked[i];
            if (silent == static_cast<int>(i)) continue;
            std::string request;
            char bytes[4096];
            while (request.find('}') == std::string::npos) {
                auto size = recv(caller.get(), bytes, sizeof bytes, 0);
                if (size <= 0) break;
                request.append(bytes, static_cast<size_t>(size));
            }
            auto body = this->body;
            if (auto number = body.find('%'); number != std::string::npos) body[number] = static_cast<char>('0' + i);
            const std::string reply =
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                "Content-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body;
            (void)!send(caller.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
        }
    }
    std::array<UniqueFd, 3> listeners_;
    std::string text_;
    std::atomic<bool> stopping_ = false;
    std::thread thread_;
};

}  // namespace

TEST_CASE("what a claim has to know of the other nodes is one request to etcd", "[pool]") {
    Members members;
    members.body = R"({"header":{"revision":"1"},"responses":[{"response_range":{"header":{"revision":"1"}}},)"
                   R"({"response_range":{"header":{"revision":"1"}}},{"response_range":{"header":{"revision":"1"}}}]})";
    auto backend = make_etcd_backend(members.address(), {});
    auto found = backend->look({.accounts = {"alice"}, .free = {{"h100", 1}}}, "node-7");
    REQUIRE(found);
    CHECK(found->entries.empty());
    CHECK(members.asked[0] + members.asked[1] + members.asked[2] == 1);
    CHECK_FALSE(backend->look({.all_claims = true, .all_free = true}, ""));  // two questions, and three answers
}

TEST_CASE("the nodes of a pool spread over etcd's members, and come to another where one is away", "[pool]") {
    Members members;
    constexpr int nodes = 60;  // that all of them miss a member has a chance of 1 in 10^10
    for (int i = 0; i < nodes; ++i) {
        etcd::Client client(members.address(), {.connect_ms = 5'000, .total_ms = 20'000});
        REQUIRE(client.list("/x"));
        REQUIRE(client.list("/x"));  // of the same one
    }
    for (auto& each : members.asked) CHECK(each >= 2);
    CHECK(members.asked[0] + members.asked[1] + members.asked[2] == 2 * nodes);
    members.silent = 1;
    for (int i = 0; i < nodes; ++i) {
        etcd::Client client(members.address(), {.connect_ms = 5'000, .total_ms = 20'000});
        REQUIRE(client.list("/x"));
    }
}

TEST_CASE("leases are renewed at the leader, which is looked for when there is another", "[pool]") {
    Members members;
    auto lead = [&](const std::string& leader, const std::string& term) {
        members.body = R"({"header":{"member_id":"%"},"leader":")" + leader +
                       R"(","result":{"TTL":"3","header":{"revision":"5","raft_term":")" + term + R"("}}})";
    };
    etcd::Client client(members.address(), {.connect_ms = 5'000, .total_ms = 20'000});
    auto renew = [&](int times) {
        for (int i = 0; i < times; ++i) REQUIRE(client.keep_alive(1));
    };
    lead("2", "7");
    renew(1);
    for (auto& each : members.asked) each = 0;
    renew(5);
    CHECK(members.asked[2] == 5);
    CHECK(members.asked[0] + members.asked[1] == 0);
    lead("0", "8");
    renew(1);
    for (auto& each : members.asked) each = 0;
    renew(5);
    CHECK(members.asked[0] == 5);
    // One that nobody finds: the lease is renewed all the same.
    lead("9", "9");
    renew(5);
}

// Something else listens on etcd's port, or a proxy gives one's answers to another: "/y", where "/x…" was asked for.
TEST_CASE("an answer with keys that nobody asked for is nonsense, and takes nothing with it", "[pool]") {
    Members members;
    const std::string range = R"({"header":{"revision":"1"},"kvs":[{"key":"L3k="}]})";
    etcd::Client client(members.address(), {.connect_ms = 5'000, .total_ms = 20'000});
    members.body = range;
    CHECK_FALSE(client.list("/x"));
    CHECK(client.list("/y"));
    CHECK_FALSE(open_etcd_store(members.address()));
    CHECK_FALSE(make_etcd_admin(members.address())->view());
    CHECK_FALSE(make_etcd_backend(members.address(), {})->claims_of("node-7"));
    members.body = R"({"header":{"revision":"1"},"succeeded":true,"responses":[{"response_range":)" + range + "}]}";
    CHECK_FALSE(client.commit(etcd::Txn().read(etcd::all_under("/x"))));
    CHECK(client.commit(etcd::Txn().read(etcd::all_under("/y"))));
    CHECK_FALSE(client.list(std::vector{etcd::just("/x")}));
    const std::string news = R"({"result":{"header":{"revision":"1"},"events":[{"kv":{"key":"L3k="}}]}})";
    CHECK_FALSE(etcd::parse_news(news, etcd::all_under("/x")));
    CHECK(etcd::parse_news(news, etcd::all_under("/y")));
}
