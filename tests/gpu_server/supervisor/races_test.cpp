// Who loses a race between nodes and is willing to wait: it waits on, where it was in the queue.
#include "gpu_server/supervisor/handover.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "paper_world.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;
using namespace tnr::server::test;

namespace {

// One GPU; alice may use one at once, here and at the other nodes.
class Race : public PaperNode {
public:
    Race() : PaperNode(one_each(&pool)) {
        finds_its_gpu();
        pool.slow = true;
    }
    // `place`: in the queue, as it was told last.
    void asks(const std::string& machine, std::chrono::seconds wait, int place = 0) {
        Caller caller{Caller::Role::machine, "alice", machine, "key of " + machine};
        claims_.open_session(
            caller, {"h100", 1, wait, place, 0}, {1, "p", "nonce of " + machine},
            [this, machine](const Result<nlohmann::json>& answer) { answers.insert_or_assign(machine, answer); });
    }
    void describes(const std::string& machine, int count) {
        Caller caller{Caller::Role::machine, "alice", machine, "key of " + machine};
        claims_.describe(
            caller, {"h100", count, std::chrono::seconds(0), 0, 0},
            [this, machine](const Result<nlohmann::json>& answer) { answers.insert_or_assign(machine, answer); });
    }
    void releases(const std::string& machine) {
        claims_.release({Caller::Role::machine, "alice", machine, "key of " + machine}, "released");
        answers.erase(machine);
    }
    using PaperNode::takes_its_course;
    std::vector<std::string> queue() {
        std::vector<std::string> machines;
        for (auto& one : claims_.queue()) machines.push_back(one.caller.machine);
        return machines;
    }
    bool served(const std::string& machine) {
        auto found = answers.find(machine);
        return found != answers.end() && found->second && found->second->contains("endpoint");
    }
    // Another server goes on with those who wait.
    std::unique_ptr<Race> replaced() const {
        Handover handover;
        claims_.hand_over(handover);
        auto next = std::make_unique<Race>();
        next->pool.held = pool.held;
        REQUIRE(next->claims_.take_over(handover, [](pid_t) { return nullptr; }));
        next->claims_.go_on();
        return next;
    }
    void in_touch_again() {
        pool.cut = false;
        claims_.lease_renewed();
    }
    void revokes() {
        claims_.end_revoked([](auto&, auto&, auto&) { return false; });
    }
    PaperPool pool;
    std::map<std::string, Result<nlohmann::json>> answers;

private:
    static ClaimOptions one_each(PoolLink* pool) {
        auto options = plain();
        options.limits = [](auto&) {
            UserLimits limits;
            limits.gpus_max = 1;
            return limits;
        };
        options.pool = pool;
        return options;
    }
};

}  // namespace

TEST_CASE("who waits and loses a user's last GPU to another node waits on, ahead of who came later", "[races]") {
    Race race;
    race.asks("first", std::chrono::hours(1));
    race.pass(std::chrono::milliseconds(100));
    race.asks("second", std::chrono::hours(1));
    race.pool.held = 1;  // another node was faster
    race.pool.answer(true);
    CHECK(race.answers.count("first") == 0);
    CHECK(race.queue() == std::vector<std::string>{"first", "second"});

    race.takes_its_course();
    race.pass(std::chrono::seconds(2));
    CHECK(race.pool.holders.empty());
    race.pool.held = 0;
    race.asks("second", std::chrono::hours(1), 2);
    race.asks("first", std::chrono::hours(1), 1);
    race.pass(std::chrono::seconds(1));
    race.pool.answer(true);
    CHECK(race.served("first"));
    CHECK_FALSE(race.served("second"));
}

TEST_CASE("who does not wait hears why", "[races]") {
    Race race;
    race.asks("first", std::chrono::seconds(0));
    race.pool.held = 1;
    race.pool.answer(true);
    race.takes_its_course();
    REQUIRE(race.answers.count("first") == 1);
    CHECK(race.answers.at("first").error().what.find("asked several nodes") != std::string::npos);
}

TEST_CASE("who is refused by the pool's store hears what helps, also who waits", "[races]") {
    for (auto wait : {std::chrono::hours(0), std::chrono::hours(1)}) {
        Race race;
        race.asks("first", wait);
        race.pool.answer(false);
        REQUIRE(race.answers.count("first") == 1);
        auto& error = race.answers.at("first").error();
        CHECK(error.what == "the GPU could not be claimed: taken for dead");
        CHECK(error.hint == "what helps");
        race.takes_its_course();
        CHECK(race.pool.holders.empty());
    }
}

TEST_CASE("who waits while a node loses touch with its pool waits for that, too", "[races]") {
    Race race;
    race.asks("first", std::chrono::hours(1));
    race.pool.cut = true;
    race.pool.answer(false);
    CHECK(race.answers.count("first") == 0);
    CHECK(race.queue() == std::vector<std::string>{"first"});
    race.takes_its_course();
    race.pool.cut = false;
    race.pass(std::chrono::milliseconds(500));
    race.asks("first", std::chrono::hours(1), 1);
    race.pass(std::chrono::milliseconds(500));
    race.pool.answer(true);
    CHECK(race.served("first"));
}

// etcd's members choose another leader, or are restarted one by one: no program shall end for that.
TEST_CASE("a program that begins while a node is out of touch with its pool waits for that, for a while", "[races]") {
    for (auto wait : {std::chrono::seconds(0), std::chrono::seconds(1)}) {
        Race race;
        race.pool.cut = true;
        race.asks("first", wait);
        race.pass(pool_missed_for / 2);
        CHECK(race.answers.count("first") == 0);
        race.in_touch_again();
        race.pool.answer(true);
        CHECK(race.served("first"));
    }
    Race race;
    race.pool.cut = true;
    race.asks("patient", std::chrono::hours(1));
    CHECK(race.queue() == std::vector<std::string>{"patient"});
    race.in_touch_again();
    race.pool.answer(true);
    CHECK(race.served("patient"));
}

TEST_CASE(
    "a program that waits for its machine's GPU to be wiped when a node loses touch with its pool waits for that, too",
    "[races]") {
    Race race;
    race.asks("first", std::chrono::seconds(0));
    race.pool.answer(true);
    race.releases("first");
    race.asks("first", std::chrono::seconds(0));
    race.pass(std::chrono::seconds(1));  // its worker has been told to end
    race.pool.cut = true;
    race.takes_its_course();
    CHECK(race.answers.count("first") == 0);
    SECTION("and begins when that is over") {
        race.in_touch_again();
        race.pool.answer(true);
        CHECK(race.served("first"));
    }
    SECTION("and is told so when it is not") {
        race.pass(worker_start_timeout);
        REQUIRE(race.answers.count("first") == 1);
        REQUIRE_FALSE(race.answers.at("first"));
        CHECK(race.answers.at("first").error().what == "out of touch");
    }
}

TEST_CASE("a program that waited for a node's pool in vain is told so", "[races]") {
    for (auto wait : {std::chrono::seconds(0), std::chrono::seconds(1), std::chrono::seconds(6)}) {
        Race race;
        race.pool.cut = true;
        race.asks("first", wait);
        for (int place = 1; race.answers.count("first") == 0 && place < 100; ++place) {
            race.pass(std::chrono::milliseconds(500));
            auto answer = race.answers.find("first");
            if (answer != race.answers.end() && answer->second && answer->second->contains("queued")) {
                race.answers.erase(answer);
                race.asks("first", wait, 1);
            }
        }
        REQUIRE(race.answers.count("first") == 1);
        REQUIRE_FALSE(race.answers.at("first"));
        CHECK(race.answers.at("first").error().what == "out of touch");
    }
}

TEST_CASE("a program whose claim the pool's store did not take in time begins anew when it answers again", "[races]") {
    for (auto wait : {std::chrono::seconds(0), std::chrono::seconds(1)}) {
        Race race;
        race.asks("first", wait);
        race.pool.cut = true;
        race.pool.answer(false);
        race.takes_its_course();
        CHECK(race.answers.count("first") == 0);
        CHECK(race.pool.holders.empty());
        race.in_touch_again();
        race.pool.answer(true);
        CHECK(race.served("first"));
    }
}

TEST_CASE("a program that is to be told of another node's GPUs waits while a node is out of touch with its pool",
          "[races]") {
    Race race;
    race.pool.cut = true;
    race.describes("here", 1);
    race.describes("there", 2);
    CHECK(race.answers.count("here") == 1);
    CHECK(race.answers.count("there") == 0);
    race.pool.moved = true;
    race.in_touch_again();
    REQUIRE(race.answers.count("there") == 1);
    REQUIRE(race.answers.at("there"));
    CHECK(race.answers.at("there")->at("redirect") == "there");
}

TEST_CASE("what a node knew of others before it lost touch with its pool is looked up anew before anybody is refused",
          "[races]") {
    Race race;
    race.asks("other", std::chrono::seconds(0));
    race.pool.answer(true);
    REQUIRE(race.served("other"));
    race.pool.cut = true;
    race.asks("first", std::chrono::seconds(0));
    race.describes("second", 2);
    race.pool.slow_looks = true;
    race.in_touch_again();
    CHECK(race.answers.count("first") == 0);
    CHECK(race.answers.count("second") == 0);
    SECTION("and sent there where they have what is wanted") {
        race.pool.moves_unseen = true;
        race.pool.answer_look();
        race.pool.answer_look();
    }
    SECTION("as often as touch is lost again meanwhile") {
        race.pool.cut = true;
        race.pool.answer_look();
        race.pool.answer_look();
        CHECK(race.answers.count("first") == 0);
        race.pool.moves_unseen = true;
        race.in_touch_again();
        race.pool.answer_look();
        race.pool.answer_look();
    }
    for (auto machine : {"first", "second"}) {
        REQUIRE(race.answers.count(machine) == 1);
        REQUIRE(race.answers.at(machine));
        CHECK(race.answers.at(machine)->at("redirect") == "there");
    }
}

TEST_CASE("a node that has what is wanted, and has yet to register again with its pool, is waited for", "[races]") {
    Race race;
    race.pool.cut = true;
    race.describes("there", 2);
    race.in_touch_again();
    CHECK(race.answers.count("there") == 0);
    SECTION("and found") {
        race.pool.moved = true;
        race.in_touch_again();
        REQUIRE(race.answers.count("there") == 1);
        REQUIRE(race.answers.at("there"));
        CHECK(race.answers.at("there")->at("redirect") == "there");
    }
    SECTION("for a while") {
        race.pass(pool_missed_for);
        REQUIRE(race.answers.count("there") == 1);
        REQUIRE_FALSE(race.answers.at("there"));
        CHECK(race.answers.at("there").error().what == "the pool has 1 h100, not 2");
    }
}

TEST_CASE("a program whose key is removed while a node looks at its pool again begins nothing", "[races]") {
    Race race;
    race.pool.cut = true;
    race.pool.held = 1;  // so a look is worth while
    race.asks("first", std::chrono::seconds(0));
    race.pool.slow_looks = true;
    race.in_touch_again();
    REQUIRE(race.pool.looks.size() == 1);
    race.revokes();
    REQUIRE(race.answers.count("first") == 1);
    CHECK(race.answers.at("first").error().kind == Error::Kind::auth);
    race.pool.held = 0;
    race.pool.answer_look();
    CHECK(race.pool.holders.empty());
}

// Nobody looks before a claim begins: what its account has elsewhere comes with the answer.
TEST_CASE("a program whose machine turns out to have a claim elsewhere is sent there, and nothing of it stays here",
          "[races]") {
    Race race;
    race.asks("first", std::chrono::seconds(0));
    race.pool.moved = true;
    race.pool.answer_that_others_came_first();
    REQUIRE(race.answers.count("first") == 1);
    REQUIRE(race.answers.at("first"));
    CHECK(race.answers.at("first")->at("redirect") == "there");
    race.takes_its_course();
    CHECK(race.pool.holders.empty());
    race.pool.moved = false;
    race.asks("second", std::chrono::seconds(0));
    race.pool.answer(true);
    CHECK(race.served("second"));
}

TEST_CASE("an account's other claims do not keep a machine's from beginning", "[races]") {
    Race race;
    race.asks("first", std::chrono::seconds(0));
    race.pool.answer_that_others_came_first();
    CHECK(race.answers.empty());
    REQUIRE(race.pool.asked.size() == 1);
    CHECK(race.pool.asked.front().unless == Directory::Unless::never);
    race.pool.answer(true);
    CHECK(race.served("first"));
}

TEST_CASE("claims that turn out to be elsewhere count against the limit", "[races]") {
    for (auto wait : {std::chrono::hours(0), std::chrono::hours(1)}) {
        Race race;
        race.asks("first", wait);
        race.pool.held = 1;
        race.pool.answer_that_others_came_first();
        race.takes_its_course();
        CHECK(race.pool.asked.empty());
        CHECK(race.pool.holders.empty());
        CHECK(race.answers.count("first") == (wait.count() > 0 ? 0 : 1));  // who waits, waits on
    }
}

TEST_CASE("who is slow to ask a server that took over keeps the place, and nobody is served before", "[races]") {
    Race before;
    before.asks("first", std::chrono::hours(1));
    before.pass(std::chrono::milliseconds(100));
    before.asks("second", std::chrono::hours(1));
    before.pool.held = 1;
    before.pool.answer(true);
    before.takes_its_course();
    before.pass(std::chrono::seconds(1));
    auto after = before.replaced();
    after->asks("second", std::chrono::hours(1), 2);
    after->pool.held = 0;
    after->pass(place_kept_over_reload - std::chrono::seconds(2));
    CHECK(after->pool.asked.empty());
    after->asks("first", std::chrono::hours(1), 1);
    after->asks("second", std::chrono::hours(1), 2);
    after->pass(std::chrono::seconds(1));
    after->pool.answer(true);
    CHECK(after->served("first"));
    CHECK_FALSE(after->served("second"));
}

TEST_CASE("a place in the queue that nobody asks for any more is gone, however often the server is replaced",
          "[races]") {
    for (bool lives : {false, true}) {
        auto race = std::make_unique<Race>();
        race->pool.held = 1;
        race->asks("first", std::chrono::hours(1));
        race->pass(std::chrono::milliseconds(500));
        REQUIRE(race->answers.count("first") == 1);  // it has been told its place
        for (int reloads = 0; reloads < 3; ++reloads) {
            race->pass(place_kept_for / 2);
            race = race->replaced();
            race->pass(place_kept_over_reload / 4);
            if (lives) race->asks("first", std::chrono::hours(1), 1);
        }
        race->pass(place_kept_for / 2);
        CHECK(race->queue() == (lives ? std::vector<std::string>{"first"} : std::vector<std::string>{}));
    }
}
