// What a node knows of the pool's others, for whoever watches it. Nobody listens where these nodes are said to be; one that
// answers is a server.
#include "gpu_server/supervisor/fellows.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <zmq.hpp>

#include "api_client/base/files.hpp"
#include "gpu_client/protocol/keys.hpp"
#include "gpu_server/pool/clock.hpp"
#include "server.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/files.hpp"

using namespace tnr;
using namespace tnr::server;
using namespace tnr::test;
using std::chrono::milliseconds;

namespace {

std::vector<Fellows::Node> silent_nodes(size_t count) {
    std::vector<Fellows::Node> nodes;
    for (size_t i = 0; i < count; ++i) nodes.push_back({"n" + std::to_string(i), "tcp://127.0.0.1:9", ""});
    return nodes;
}

// Requests of other nodes that it has answered.
int asked_of(const Server& node) {
    const auto now =
        json::parse(run_server_command({"status", "-o", "json", "--state", node.folder->path + "/state"}).out);
    return now.at("totals").at("requests").value("pool", 0);
}

bool is_so(const std::function<bool()>& so) {
    for (int i = 0; i < 600 && !so(); ++i) std::this_thread::sleep_for(milliseconds(50));
    return so();
}

// A node whose clock can be told.
class OtherClock {
public:
    OtherClock() {
        socket_.set(zmq::sockopt::rcvtimeo, 20);
        socket_.bind("tcp://127.0.0.1:*");
        thread_ = std::thread([this] { answer_all(); });
    }
    ~OtherClock() {
        over_ = true;
        thread_.join();
    }
    std::string address() { return socket_.get(zmq::sockopt::last_endpoint); }
    std::atomic<int64_t> ahead_ms = 0;

private:
    void answer_all() {
        for (zmq::message_t sender, text; !over_;) {
            if (!socket_.recv(sender) || !socket_.recv(text)) continue;
            const auto id = json::parse(text.to_string()).at("id");
            socket_.send(sender, zmq::send_flags::sndmore);
            socket_.send(zmq::buffer(json{{"id", id}, {"now", now_ms() + ahead_ms}}.dump()), zmq::send_flags::none);
        }
    }
    zmq::context_t context_;
    zmq::socket_t socket_{context_, ZMQ_ROUTER};
    std::atomic<bool> over_ = false;
    std::thread thread_;
};

// What is written to stderr meanwhile.
class Overheard {
public:
    explicit Overheard(const std::string& path) : path_(path), before_(dup(STDERR_FILENO)) {
        UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
        REQUIRE(dup2(file.get(), STDERR_FILENO) == STDERR_FILENO);
    }
    ~Overheard() { dup2(before_.get(), STDERR_FILENO); }
    size_t times(const std::string& words) const {
        const auto read = read_file(path_);
        const std::string text = read ? *read : "";
        size_t found = 0;
        for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++found;
        return found;
    }

private:
    std::string path_;
    UniqueFd before_;
};

}  // namespace

TEST_CASE("the log names a node whose clock is another, once each time that it becomes so", "[fellows]") {
    TemporaryFolder folder;
    OtherClock node;
    FellowTimes times;
    times.day_noted_every = times.asked_every = milliseconds(20);
    Overheard log(folder / "log");
    Fellows fellows(times);
    node.ahead_ms = -3'600'000;
    fellows.are({{"b", node.address(), ""}}, {});
    CHECK(is_so([&] { return log.times("the clock of node 'b' is 3600 s behind this node's") == 1; }));
    node.ahead_ms = 2'000;
    CHECK(is_so([&] { return log.times("the clock of node 'b' is in step with this node's again") == 1; }));
    node.ahead_ms = 60'000;
    CHECK(is_so([&] { return log.times("the clock of node 'b' is 60 s ahead of this node's") == 1; }));
    fellows.stop();
    CHECK(log.times("the clock of node") == 3);
}

// One after the other they would take half a minute; by then the first ones are no longer known to be silent.
TEST_CASE("silent nodes are asked at once, and known for a while", "[fellows]") {
    Fellows fellows;
    fellows.are(silent_nodes(fellows_asked_max), {});
    CHECK(is_so([&] { return fellows.told().silent.size() == fellows_asked_max; }));
    CHECK(fellows.told().said.empty());
    CHECK(fellows.told().silent.count("n7") == 1);
    fellows.are(silent_nodes(2), {});
    CHECK(fellows.told().silent == std::set<std::string>{"n0", "n1"});
}

TEST_CASE("what a node said long ago is not told", "[fellows]") {
    Server b({"--plain", "--emulate", "h100"});
    FellowTimes times;
    times.good_for = milliseconds(1);
    Fellows fellows(times);
    fellows.are({{"b", b.address, ""}}, {});
    fellows.told();
    // It has been asked: what it said of its GPUs is here.
    REQUIRE(is_so([&] {
        auto days = fellows.days();
        return !days.empty() && days[0].gpus == 1;
    }));
    std::this_thread::sleep_for(milliseconds(20));
    CHECK(fellows.told().said.empty());
    CHECK(fellows.told().silent.empty());  // it will be asked
}

TEST_CASE("of a node that has gone, what its ledger had of the last day is kept, whether somebody watched or not",
          "[fellows]") {
    FellowTimes times;
    times.day_noted_every = milliseconds(100);
    times.asked_every = milliseconds(50);
    times.day_asked_every = milliseconds(0);
    const bool watched = GENERATE(true, false);
    CAPTURE(watched);
    Server b({"--plain", "--emulate", "h100"});
    Fellows fellows(times);
    fellows.are({{"b", b.address, ""}, {"c", "tcp://127.0.0.1:9", ""}}, {});
    if (watched) {
        REQUIRE(is_so([&] {
            for (auto& one : fellows.days())
                if (one.node == "b" && one.day && one.earlier_ms == 0) return true;
            return false;
        }));
    } else {
        REQUIRE(is_so([&] { return asked_of(b) >= 10; }));  // the first few before it had read its ledger
    }
    b.signal(SIGTERM);
    b.wait_for_exit();
    fellows.are({}, {});
    const auto days = fellows.days();
    REQUIRE(days.size() == 2);
    CHECK(days[0].node == "b");
    CHECK(days[0].gone);
    CHECK(days[0].gpus == 1);
    REQUIRE(days[0].day);
    CHECK(days[0].day->contains("users"));
    CHECK(days[0].earlier_ms > 0);
    CHECK(days[1].node == "c");
    CHECK(days[1].gone);
    CHECK_FALSE(days[1].day);
    // It is back, and has not been asked yet.
    fellows.are({{"b", "tcp://127.0.0.1:9", ""}}, {});
    for (auto& one : fellows.days()) CHECK((one.node == "c" || !one.gone));
    std::vector<Fellows::Node> many;
    for (size_t i = 0; i < 2 * fellows_gone_max; ++i)
        many.push_back({"m" + std::to_string(i), "tcp://127.0.0.1:9", ""});
    fellows.are(many, {});
    fellows.are({}, {});
    CHECK(fellows.days().size() == fellows_gone_max);
}

TEST_CASE("what other nodes said of the last day outlasts a restart of the one that asked", "[fellows]") {
    FellowTimes times;
    times.asked_every = milliseconds(50);
    times.day_asked_every = milliseconds(0);
    TemporaryFolder folder;
    const std::string kept = folder / "fellows.json";
    std::optional<Server> b(std::in_place, std::vector<std::string>{"--plain", "--emulate", "h100"});
    std::shared_ptr<const json> said;
    {
        Fellows fellows(times, kept);
        fellows.are({{"b", b->address, ""}}, {});
        REQUIRE(is_so([&] {
            for (auto& one : fellows.days())
                if (one.day) said = one.day;
            return said && file_exists(kept);
        }));
    }
    b.reset();
    SECTION("also of a node that has gone meanwhile") {
        Fellows fellows(times, kept);
        fellows.are({}, {});
        const auto days = fellows.days();
        REQUIRE(days.size() == 1);
        CHECK(days[0].node == "b");
        CHECK(days[0].gone);
        CHECK(days[0].gpus == 1);
        CHECK(days[0].earlier_ms > 0);
        REQUIRE(days[0].day);
        CHECK(days[0].day->at("users") == said->at("users"));
    }
    SECTION("unless the file is damaged") {
        for (auto* text : {"", "{", "[]", R"({"days": 5})", R"({"days": {"b": 1}})",
                           R"({"days": {"b": {"day": {}, "heard_ms": "x", "gpus": 1}}})"}) {
            CAPTURE(text);
            REQUIRE(write_file(kept, text));
            Fellows fellows(times, kept);
            fellows.are({}, {});
            CHECK(fellows.days().empty());
        }
    }
    SECTION("or says what was a day ago") {
        REQUIRE(write_file(kept, R"({"days": {"b": {"day": {"users": []}, "heard_ms": 1, "gpus": 1}}})"));
        Fellows fellows(times, kept);
        fellows.are({}, {});
        for (auto& one : fellows.days()) CHECK_FALSE(one.day);
    }
}
