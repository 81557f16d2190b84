// Places for requests that wait: nobody is kept out of them, however many others together want all.
#include <netinet/in.h>
#include <sys/socket.h>

#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "paper_world.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;
using namespace tnr::server::test;

namespace {

// One GPU, which somebody has for good.
class Crowd : public PaperNode {
public:
    Crowd() : PaperNode(plain()) {
        finds_its_gpu();
        asks("holder", 0, 0);
    }
    // A machine of the user's waits for the GPU as long as it takes.
    void asks(const std::string& user, int machine, int number) {
        auto name = user + "-" + std::to_string(machine);
        Caller caller{Caller::Role::machine, user, name, "key of " + name};
        claims_.open_session(caller, {"h100", 1, std::chrono::hours(1)}, {1, "p", std::to_string(number)},
                             [this, user](const Result<nlohmann::json>& answer) { refused[user] += !answer; });
    }
    // As many as one user may have at all, each key as many as it may have.
    void asks_for_all(const std::string& user) {
        for (size_t i = 0; i < waiting_requests_per_account_max; ++i)
            asks(user, static_cast<int>(i / waiting_requests_per_owner_max), static_cast<int>(i));
    }
    std::map<std::string, size_t> waiting() {
        std::map<std::string, size_t> of_users;
        for (auto& one : claims_.queue()) ++of_users[one.caller.account];
        return of_users;
    }
    // One that does not wait in the queue, over this connection.
    void asks_at_once(const std::string& user, int connection) {
        Process process{1, "p", ""};
        process.connection = {connection, socket_number(connection)};
        claims_.open_session(Caller{Caller::Role::machine, user, user, "key of " + user}, {"h100", 1}, process,
                             [this, user](const Result<nlohmann::json>& answer) { refused[user] += !answer; });
    }
    void holder_crashes() { workers_.exits(*workers_.in(Worker::State::serving), ""); }
    void gpu_is_wiped() { takes_its_course(); }
    std::vector<std::string> holders() const {
        std::vector<std::string> users;
        for (auto& claim : claims_.all()) users.push_back(claim->account);
        return users;
    }
    std::map<std::string, size_t> refused;
};

// Both ends of a connection of this host's.
struct Connection {
    Connection() {
        Endpoint here;
        auto listener = listen_on("127.0.0.1", 0, 1, here);
        REQUIRE(listener);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        to.sin_port = htons(static_cast<uint16_t>(here.port));
        client.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
        server.reset(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    UniqueFd client, server;
};

const std::vector<std::string> greedy{"one", "two", "three", "four"};

}  // namespace

TEST_CASE("users who together take all places leave one to whoever comes", "[places]") {
    Crowd crowd;
    for (auto& user : greedy) crowd.asks_for_all(user);
    size_t all = 0;
    for (auto& [user, places] : crowd.waiting()) all += places;
    REQUIRE(all == waiting_requests_max);
    crowd.asks("fifth", 0, 0);
    CHECK(crowd.waiting()["fifth"] == 1);
    CHECK(crowd.refused["fifth"] == 0);
    CHECK(crowd.refused["one"] + crowd.refused["two"] + crowd.refused["three"] + crowd.refused["four"] == 1);
    // And who has one keeps it, whatever the others ask for.
    for (auto& user : greedy) crowd.asks_for_all(user);
    CHECK(crowd.waiting()["fifth"] == 1);
    CHECK(crowd.refused["fifth"] == 0);
}

TEST_CASE("who comes later gets as many places as those who were there", "[places]") {
    Crowd crowd;
    for (auto& user : greedy) crowd.asks_for_all(user);
    crowd.asks_for_all("fifth");
    const auto share = waiting_requests_max / (greedy.size() + 1);
    for (auto& [user, places] : crowd.waiting()) {
        CAPTURE(user);
        CHECK(places >= share);
        CHECK(places <= share + 1);
    }
}

TEST_CASE("a GPU that is being wiped does not go to one who has asked for it and is gone", "[places]") {
    Crowd crowd;
    crowd.holder_crashes();
    REQUIRE(crowd.holders().empty());
    Connection gone, there;
    crowd.asks_at_once("gone", gone.server.get());
    gone.client.reset();
    crowd.asks_at_once("there", there.server.get());
    crowd.gpu_is_wiped();
    CHECK(crowd.holders() == std::vector<std::string>{"there"});
    CHECK(crowd.refused["there"] == 0);
}

TEST_CASE("programs of one machine that ask for a GPU while it is being wiped get it together", "[places]") {
    Crowd crowd;
    crowd.holder_crashes();
    Connection first, second, third, another;
    for (auto* one : {&first, &second, &third}) crowd.asks_at_once("one", one->server.get());
    CHECK(crowd.refused["one"] == 0);
    crowd.asks_at_once("other", another.server.get());  // it is theirs
    CHECK(crowd.refused["other"] == 1);
    crowd.gpu_is_wiped();
    CHECK(crowd.holders() == std::vector<std::string>{"one"});
    CHECK(crowd.refused["one"] == 0);
}
