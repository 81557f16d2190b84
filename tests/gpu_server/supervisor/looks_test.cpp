// What one user asks of a pool's store costs the others nothing: looks, changes, and what is noted of who was sent where.
#include <atomic>
#include <thread>

#include "gpu_server/supervisor/errands.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/looks.hpp"
#include "gpu_server/supervisor/sent_clients.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;
using std::chrono::milliseconds;

namespace {

// Answers when the test says so.
class PaperDirectory : public Directory {
public:
    void on_change(std::function<void()>) override {}
    void join(PoolNode, std::optional<Tenure>) override {}
    Tenure hand_over() override { return {}; }
    void tell(const TypeCounts&) override {}
    void tell_key(const std::string&) override {}
    void leave() override {}
    void add_claim(const PoolClaim&, const TypeCounts&, Unless, std::function<void(Result<int64_t>)>) override {}
    void remove_claim(int64_t, const TypeCounts&) override {}
    void look(const Question& question, std::function<void()> then) override {
        asked.push_back(question);
        waiting.push_back(std::move(then));
    }
    const std::map<std::string, PoolNode>& nodes() const override { return nodes_; }
    const std::map<std::string, PoolClaim>& claims() const override { return claims_; }
    const Standing& standing() const override { return standing_; }

    void answer() {
        for (auto& then : std::exchange(waiting, {})) then();
    }
    std::vector<Question> asked;
    std::vector<std::function<void()>> waiting;
    std::map<std::string, PoolNode> nodes_;
    PaperDirectory() {
        nodes_["a"].name = "a";
        nodes_["a"].kinds = {"h100"};
    }

private:
    std::map<std::string, PoolClaim> claims_;
    Standing standing_;
};

// A clock that the test sets.
struct Calendar {
    EventLoop::Clock::time_point now{std::chrono::hours(1)};
    EventLoop loop{[this] { return now; }};
    void pass(milliseconds time) {
        now += time;
        loop.run_once(milliseconds(0));
    }
};

}  // namespace

TEST_CASE("who asks for everything in a loop has it looked for once in a while, for all who wait", "[looks]") {
    Calendar calendar;
    PaperDirectory store;
    Looks looks(calendar.loop, store);
    int answered = 0;
    auto ask = [&](const Question& question) { looks.look(question, [&] { ++answered; }); };
    ask({.all_free = true});
    for (int i = 0; i < 100; ++i) ask({.all_claims = true, .all_free = true});
    REQUIRE(store.asked.size() == 1);  // the others wait until it is answered
    calendar.now += milliseconds(20);
    store.answer();
    CHECK(answered == 1);
    calendar.pass(milliseconds(179));
    REQUIRE(store.asked.size() == 1);  // it took 20 ms, so it rests for 180
    ask({.accounts = {"alice"}, .free = {{"h100", 1}}});
    REQUIRE(store.asked.size() == 2);  // whoever asks for something has it at once
    store.answer();
    calendar.pass(milliseconds(2));
    REQUIRE(store.asked.size() == 3);
    CHECK(store.asked[2] == Question{.all_claims = true, .all_free = true});
    store.answer();
    CHECK(answered == 102);
    calendar.pass(look_at_all_pause_max);
    CHECK(store.asked.size() == 3);  // nobody wants more
}

TEST_CASE("a look that takes no time is followed by a pause, and one that takes long by no longer one", "[looks]") {
    Calendar calendar;
    PaperDirectory store;
    Looks looks(calendar.loop, store);
    auto took = GENERATE(milliseconds(0), milliseconds(60'000));
    auto pause = took.count() == 0 ? look_at_all_pause_min : look_at_all_pause_max;
    looks.look({.all_free = true}, [] {});
    looks.look({.all_free = true}, [] {});
    calendar.now += took;
    store.answer();
    calendar.pass(pause - milliseconds(1));
    CHECK(store.asked.size() == 1);
    calendar.pass(milliseconds(1));
    CHECK(store.asked.size() == 2);
}

TEST_CASE("the store is not asked for types of GPUs that nobody has", "[looks]") {
    Calendar calendar;
    PaperDirectory store;
    Looks looks(calendar.loop, store);
    int answered = 0;
    for (auto& type : {std::string("b200"), std::string("h100/a"), std::string("\xff\0", 2), std::string("../claims")})
        looks.look({.free = {{type, 1}}}, [&] { ++answered; });
    CHECK(answered == 4);
    CHECK(store.asked.empty());
    looks.look({.accounts = {"mallory"}, .free = {{"h100", 1}, {"b200", 1}}}, [] {});
    REQUIRE(store.asked.size() == 1);
    CHECK(store.asked[0] == Question{.accounts = {"mallory"}, .free = {{"h100", 1}}});
    store.nodes_["b"].name = "b";  // an older server, which does not say what it has
    looks.look({.free = {{"b200", 1}}}, [] {});
    CHECK(store.asked.size() == 2);
}

TEST_CASE("who is sent to a node takes nothing from others there, whether he goes or not", "[looks]") {
    SentClients sent;
    SentClients::Time now{std::chrono::hours(1)};
    for (int i = 0; i < 1000; ++i) sent.note("mallory " + std::to_string(i), {"mallory", "b", "h100", 16}, now);
    CHECK(sent.on_way("b", "h100", "mallory") == 16 * sent_per_user_max);
    CHECK(sent.on_way("b", "h100", "alice") == 0);
    CHECK(sent.on_way("b", "h100") == 16 * sent_per_user_max);  // for the choice among several
    sent.note("alice 1", {"alice", "c", "h100", 1}, now);
    sent.note("alice 1", {"alice", "b", "h100", 2}, now + milliseconds(600));
    CHECK(sent.on_way("c", "h100") == 0);
    CHECK(sent.on_way("b", "h100", "alice") == 2);
    CHECK(*sent.node_of("alice 1") == "b");

    sent.forget_old(now + sent_remembered_for + milliseconds(1));
    CHECK(sent.on_way("b", "h100") == 2);
    CHECK(sent.node_of("mallory 1") == nullptr);
    CHECK(*sent.node_of("alice 1") == "b");
    sent.forget_old(now + sent_remembered_for + milliseconds(601));
    CHECK(sent.on_way("b", "h100") == 0);
    CHECK(sent.node_of("alice 1") == nullptr);
}

TEST_CASE("one user's changes leave room for others', and do not come without end", "[looks]") {
    Calendar calendar;
    std::atomic<bool> hold{true};
    Errands errands(calendar.loop);
    std::map<std::string, int> done, refused;
    auto change = [&](const std::string& user) {
        errands.run(
            user,
            [&] {
                while (hold) std::this_thread::sleep_for(milliseconds(1));
                return Ok{};
            },
            [&, user](const Result<>& result) { ++(result ? done : refused)[user]; });
    };
    for (int i = 0; i < 300; ++i) change("mallory");
    CHECK(refused["mallory"] == 300 - static_cast<int>(errands_per_user_max));
    change("alice");
    CHECK(refused["alice"] == 0);
    hold = false;
    auto finish = [&] {
        for (int i = 0; i < 10'000 && done["alice"] == 0; ++i) calendar.loop.run_once(milliseconds(1));
    };
    finish();
    CHECK(done["alice"] == 1);
    CHECK(done["mallory"] == static_cast<int>(errands_per_user_max));

    // Also one after the other.
    const int more = static_cast<int>(changes_burst) * 2;
    for (int i = 0; i < more; ++i) {
        change("mallory");
        calendar.loop.run_once(milliseconds(0));
    }
    for (int i = 0; i < 10'000 && done["mallory"] + refused["mallory"] < 300 + more; ++i)
        calendar.loop.run_once(milliseconds(1));
    CHECK(done["mallory"] <= static_cast<int>(changes_burst));
    calendar.now += std::chrono::seconds(10);
    auto before = refused["mallory"];
    change("mallory");
    CHECK(refused["mallory"] == before);
}
