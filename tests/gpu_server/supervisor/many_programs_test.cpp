// A user who begins programs without end: he waits for himself, and keeps nobody else from the GPUs.
#include "gpu_server/supervisor/limits.hpp"
#include "paper_world.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;
using namespace tnr::server::test;

namespace {

// One GPU, whose wipes and workers take no time.
class Counter : public PaperNode {
public:
    Counter() : PaperNode(no_linger()) { finds_its_gpu(); }
    void asks(const std::string& user, const std::string& nonce, std::chrono::seconds wait = {}) {
        Caller caller{Caller::Role::machine, user, "machine", "key of " + user};
        claims_.open_session(caller, {"h100", 1, wait}, {1, "p", nonce}, [this, nonce](Result<nlohmann::json> answer) {
            answers.insert_or_assign(nonce, std::move(answer));
        });
    }
    // Uses its GPU for a moment, and is over.
    bool runs(const std::string& user, const std::string& nonce) {
        asks(user, nonce);
        return is_over(nonce);
    }
    bool is_over(const std::string& nonce) {
        const bool served = is_served(nonce);
        if (auto* worker = workers_.in(Worker::State::serving)) {
            workers_.connected(*worker);
            workers_.exits(*worker, "the program has ended");
        }
        takes_its_course();
        return served;
    }
    bool is_served(const std::string& nonce) const {
        auto found = answers.find(nonce);
        return found != answers.end() && found->second && found->second->contains("endpoint");
    }
    bool is_told_its_place(const std::string& nonce) const {
        auto found = answers.find(nonce);
        return found != answers.end() && found->second && found->second->contains("queued");
    }
    std::map<std::string, Result<nlohmann::json>> answers;

private:
    static ClaimOptions no_linger() {
        auto options = plain();
        options.linger = std::chrono::milliseconds(0);
        return options;
    }
};

// As many programs as begin without a pause between them.
int run_all_at_once(Counter& counter) {
    for (int programs = 0; programs <= 2 * static_cast<int>(sessions_begun_burst); ++programs)
        if (!counter.runs("greedy", std::to_string(programs))) return programs;
    return -1;
}

constexpr std::chrono::milliseconds one_comes_back{static_cast<int>(2'000 / sessions_begun_per_second_max)};

}  // namespace

TEST_CASE("a user who begins programs without end waits for a moment, and others do not", "[many-programs]") {
    Counter counter;
    const auto programs = run_all_at_once(counter);
    CHECK(programs == static_cast<int>(sessions_begun_burst) + 1);
    const auto late = std::to_string(programs);
    CHECK(counter.answers.count(late) == 0);  // it waits
    CHECK(counter.runs("modest", "his first"));
    CHECK(counter.runs("modest", "his second"));
    counter.pass(one_comes_back);
    CHECK(counter.is_over(late));
    CHECK(counter.runs("modest", "his third"));
}

TEST_CASE("of more programs than may begin in time the last hear why, and who waits in the queue is served",
          "[many-programs]") {
    Counter counter;
    run_all_at_once(counter);
    counter.asks("greedy", "willing", std::chrono::hours(1));
    const int more = 2 * static_cast<int>(sessions_begun_per_second_max * worker_start_timeout.count() / 1'000);
    for (int i = 0; i < std::min(more, 60); ++i) counter.asks("greedy", "more " + std::to_string(i));
    int served = 0, refused = 0;
    for (auto passed = std::chrono::milliseconds(0); passed < 2 * worker_start_timeout; passed += one_comes_back / 4) {
        counter.pass(one_comes_back / 4);
        counter.is_over("");
        if (counter.is_told_its_place("willing")) counter.asks("greedy", "willing", std::chrono::hours(1));
    }
    for (auto& [nonce, answer] : counter.answers) {
        if (!nonce.starts_with("more")) continue;
        served += counter.is_served(nonce);
        if (answer) continue;
        ++refused;
        CHECK(answer.error().what.find("greedy begins more than") == 0);
        CHECK(answer.error().hint.find("--wait") != std::string::npos);
    }
    CHECK(counter.is_served("willing"));
    CHECK(served > 0);
    CHECK(refused > 0);
}
