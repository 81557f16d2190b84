// Sessions that were asked for before their server was replaced: whoever has not connected by then is looked for, and none has
// more memory than before.
#include "gpu_server/supervisor/handover.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "paper_world.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;
using namespace tnr::server::test;

namespace {

constexpr uint64_t gpu_bytes = uint64_t{1} << 30, claim_bytes_max = gpu_bytes / 4;

// A server with one GPU, in an open pool.
class Replaced : public PaperNode {
public:
    // Asked for, served, and not connected to.
    Replaced() : PaperNode(a_quarter_each()) {
        finds_its_gpu(gpu_bytes);
        asks();
    }
    // The one that goes on with it.
    explicit Replaced(const Replaced* before) : PaperNode(a_quarter_each()) {
        Handover handover;
        before->gpus_.hand_over(handover);
        before->claims_.hand_over(handover);
        handover.section("gpus")[0]["description"] = nullptr;  // a worker of paper has no GPU to describe
        auto found = Gpus::found_before(handover);
        REQUIRE(found);
        gpus_.add_later(*found);
        REQUIRE(gpus_.take_over(handover));
        auto* worker = *workers_.start({0}, {});
        worker->state = Worker::State::serving;
        REQUIRE(claims_.take_over(handover, [worker](pid_t) { return worker; }));
        claims_.go_on();
    }
    void asks() {
        claims_.open_session(Caller{Caller::Role::machine, "alice", "m", "key"}, {"h100", 1}, {1, "p", "nonce"},
                             [this](const Result<nlohmann::json>& answer) { answered += bool(answer); });
    }
    void connects() { workers_.connected(*workers_.in(Worker::State::serving)); }
    // A worker that is told to end, and does not, is killed in the end.
    bool serves() const { return workers_.in(Worker::State::serving) != nullptr; }
    uint64_t memory_for_claims() const { return gpus_.at(0).memory.size(); }
    int answered = 0;

private:
    static ClaimOptions a_quarter_each() {
        auto options = plain();
        options.limits = [](auto&) { return UserLimits{{}, 1, 0, false, claim_bytes_max}; };
        return options;
    }
};

constexpr auto twice = 2 * asker_connects_over_reload;

}  // namespace

TEST_CASE("a session whose client left before it connected ends soon after its server was replaced", "[asked_before]") {
    Replaced before, after(&before);
    after.pass(asker_connects_over_reload - std::chrono::seconds(1));
    CHECK(after.serves());
    after.pass(twice);
    CHECK_FALSE(after.serves());
}

TEST_CASE("a client that connects after its server was replaced, or asks again, keeps its session", "[asked_before]") {
    Replaced before, connected(&before), asked(&before);
    connected.connects();
    connected.pass(twice);
    CHECK(connected.serves());
    asked.pass(asker_connects_over_reload / 2);
    asked.asks();
    CHECK(asked.answered == 1);
    asked.pass(twice);
    CHECK(asked.serves());
}

TEST_CASE("what a claim may use of its GPU's memory stays so when its server is replaced", "[asked_before]") {
    Replaced before, after(&before);
    CHECK(before.memory_for_claims() == claim_bytes_max);
    CHECK(after.memory_for_claims() == claim_bytes_max);
}
