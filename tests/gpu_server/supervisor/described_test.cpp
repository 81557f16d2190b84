// Programs that start at the same moment: each gets the GPU that it was told of.
#include "paper_world.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;
using namespace tnr::server::test;
using nlohmann::json;

namespace {

class Hall {
public:
    explicit Hall(size_t gpus) {
        std::vector<FoundGpu> found(gpus);
        for (auto& gpu : found) gpu.type = "h100";
        gpus_.add(found);
        for (auto& wiped : std::exchange(wiped_, {})) wiped({1 << 20, 0, 0}, "");
        while (auto* worker = workers_.in(Worker::State::starting)) {
            worker->devices[0].uuid = "GPU " + std::to_string(worker->gpus[0]);
            workers_.ready(*worker);
        }
    }
    std::string is_told(const std::string& machine) {
        std::string uuid;
        claims_.describe(caller(machine), {"h100", 1},
                         [&](Result<json> answer) { uuid = (*answer)["devices"][0]["uuid"]; });
        return uuid;
    }
    std::string gets(const std::string& machine) {
        std::string uuid;
        claims_.open_session(caller(machine), {"h100", 1}, {1, "p", "nonce"},
                             [&](Result<json> answer) { uuid = (*answer)["devices"][0]["uuid"]; });
        return uuid;
    }
    void pass(std::chrono::milliseconds time) { now_ += time; }

private:
    static Caller caller(const std::string& machine) {
        return {Caller::Role::machine, "alice", machine, "key " + machine};
    }
    static ClaimOptions plain() {
        ClaimOptions options;
        options.plain = true;
        return options;
    }
    EventLoop::Clock::time_point now_{};
    EventLoop loop_{[this] { return now_; }};
    PaperLedger ledger_;
    PuppetWorkers workers_;
    std::vector<Wiped> wiped_;
    Gpus gpus_{loop_, workers_, [this](const FoundGpu&, Wiped wiped) -> Result<> {
                   wiped_.push_back(std::move(wiped));
                   return Ok{};
               }};
    Books books_{loop_, ledger_, "node"};
    Claims claims_{loop_, gpus_, workers_, books_, plain()};
};

}  // namespace

TEST_CASE("who asks at the same moment is told of different GPUs, and gets them in any order", "[described]") {
    Hall hall(3);
    std::vector<std::string> machines{"one", "two", "three"};
    std::map<std::string, std::string> told;
    std::set<std::string> all;
    for (auto& machine : machines) all.insert(told[machine] = hall.is_told(machine));
    CHECK(all.size() == machines.size());
    for (auto& machine : machines) CHECK(hall.is_told(machine) == told[machine]);  // and again
    std::reverse(machines.begin(), machines.end());
    for (auto& machine : machines) CHECK(hall.gets(machine) == told[machine]);
}

TEST_CASE("what somebody was told of keeps nobody from it", "[described]") {
    Hall hall(1);
    CHECK(hall.is_told("one") == "GPU 0");
    CHECK(hall.is_told("two") == "GPU 0");
    CHECK(hall.gets("three") == "GPU 0");
}

TEST_CASE("it is forgotten after a while", "[described]") {
    Hall hall(2);
    CHECK(hall.is_told("one") == "GPU 0");
    hall.pass(described_for);
    CHECK(hall.gets("two") == "GPU 0");
}
