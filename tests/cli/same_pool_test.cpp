// Who is signed in at several nodes of one pool, or at several addresses of a server.
#include "cli/money/budget.hpp"
#include "cli/ui/time.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

constexpr const char *here = "tcp://127.0.0.1:14900", *there = "tcp://gpu-2.example:14900";

// Signed in at two addresses with one key. Each tells 2 GPUs for an hour at $2; at `there` they are another's pool's, or the
// same.
struct TwoLogins {
    test::FakeSession fake;
    test::FakeWorld other;

    TwoLogins() {
        auto first = fake.session.logins().find(here);
        REQUIRE(first);
        REQUIRE(fake.session.logins().save({there, {wire::make_key_pair().public_key, first->keys.own}}));
        fake.session.pool = [this](const cli::PoolLogin& login) -> Result<std::unique_ptr<cli::Pool>> {
            return std::unique_ptr<cli::Pool>(
                std::make_unique<test::FakePool>(login.address == here ? fake.world : other));
        };
        constexpr int64_t hour = 3'600'000, new_year = 1'767'225'600'000;  // 2026-01-01
        for (auto* world : {&fake.world, &other}) {
            world->types = {{"h100", 2, 0, 80'000'000'000}};
            world->claims = {{"demo", "h100", 2, "2026-01-02T03:05:00Z", 1}};
            world->books.uses = {{1, "demo", "h100", 2, new_year, new_year + hour}};
            world->books.prices = {{"h100", 0, "USD", 2.0}};
        }
    }
    void are(const std::string& pool_here, const std::string& pool_there) {
        fake.world.pool_identity = pool_here;
        other.pool_identity = pool_there;
    }
    json spent(const std::vector<std::string>& words) { return fake.document(words)["total"]["amounts"][0]["amount"]; }
    // What is told of a pool in the document of `tnr status`, and of its GPUs.
    size_t pools() { return fake.document({"status"})["pools"].size(); }
    size_t types() { return fake.document({"gpus"})["types"].size(); }
};

}  // namespace

TEST_CASE("a pool that one is signed in to at two of its nodes is billed and listed once", "[cli][pool]") {
    TwoLogins two;
    REQUIRE(two.fake.tnr({"budget", "set", "100/month"}) == 0);
    two.are("p", "p");
    CHECK(two.spent({"billing"}) == 4.0);
    CHECK(two.fake.document({"budget", "show"})["budgets"][0]["spent"] == 4.0);
    CHECK(two.pools() == 1);
    CHECK(two.types() == 1);
    auto pool = two.fake.document({"billing"})["pools"][0];
    CHECK(pool["address"] == here);
    CHECK(pool["also"] == json{there});
    SECTION("two pools are two, also of a server that does not tell which it is") {
        for (auto [first, second] : {std::pair{"p", "q"}, {"", ""}, {"p", ""}}) {
            two.are(first, second);
            CHECK(two.spent({"billing"}) == 8.0);
            CHECK(two.fake.document({"budget", "show"})["budgets"][0]["spent"] == 8.0);
            CHECK(two.pools() == 2);
            CHECK(two.types() == 2);
        }
    }
    SECTION("a node that is gone hides nothing, and is no trouble while another answers") {
        two.fake.world.pool_reachable = false;
        CHECK(two.spent({"billing"}) == 4.0);
        CHECK(two.fake.document({"billing"})["errors"].empty());
        CHECK(two.fake.document({"billing"})["pools"][0]["address"] == there);
        CHECK(two.types() == 1);
        CHECK(two.fake.tnr({"status"}) == 0);
        // One that refuses has said more than one that is silent.
        auto errors = two.fake.document({"billing", "--everyone"})["errors"];
        REQUIRE(errors.size() == 1);
        CHECK(errors[0]["kind"] == "auth");
        two.other.pool_says = Error{Error::Kind::auth, "refused"};
        CHECK(two.fake.tnr({"status"}) == 4);
        CHECK(two.fake.out.str().find(std::string("\nPool ") + there + ": refused\n") != std::string::npos);
        two.other.pool_says.reset();
        two.other.pool_reachable = false;
        CHECK(two.fake.document({"billing"})["errors"].size() == 1);
    }
    SECTION("a node that is gone, of a pool that had not told which it is, is named") {
        two.fake.world.pool_reachable = false;
        REQUIRE(two.fake.session.logins().note_pool(here, ""));
        CHECK(two.spent({"billing"}) == 4.0);
        CHECK(two.fake.document({"billing"})["errors"][0]["about"] == here);
    }
    SECTION("a budget and a machine of any of its addresses know it") {
        REQUIRE(two.fake.tnr({"budget", "set", "10/month", "--provider", there}) == 0);
        CHECK(two.fake.document({"budget", "show"})["budgets"][1]["spent"] == 4.0);
    }
    SECTION("another account of the pool is billed beside") {
        REQUIRE(two.fake.session.logins().save({there, {wire::make_key_pair().public_key, wire::make_key_pair()}}));
        CHECK(two.spent({"billing"}) == 8.0);
    }
}

TEST_CASE("a command asks the pool at another of its addresses where the one that it is for is dead", "[cli][pool]") {
    TwoLogins two;
    two.are("p", "p");
    for (const char* address : {here, there}) REQUIRE(two.fake.session.logins().note_pool(address, "p"));
    two.other.pool_reachable = false;  // the default: the last one that was signed in to
    auto pool_of = [&](const json& document) { return document["pool"]; };
    SECTION("and says so") {
        REQUIRE(two.fake.tnr({"run", "--dry-run", "--", "true"}) == 0);
        CHECK(two.fake.out.str() == "Would run true with 1 x h100 from the pool at " + std::string(here) + "\n");
        CHECK(two.fake.err.str() ==
              "note: the pool does not answer at " + std::string(there) + "; it is asked at " + here + "\n");
        CHECK(two.fake.tnr({"pool", "top", "--once"}) == 0);
    }
    SECTION("a machine that starts meanwhile is told of the one that answers, and the others know it") {
        two.fake.start_demo();
        CHECK((*two.fake.session.records().find("demo"))->pool == here);
        CHECK(two.fake.world.enrolled.contains("demo"));
        two.other.pool_reachable = true;
        REQUIRE(two.fake.tnr({"start", "demo", "--pool", there}) == 0);
        CHECK((*two.fake.session.records().find("demo"))->pool == there);
        // What one address forgets the pool has forgotten.
        CHECK(two.fake.world.enrolled.contains("demo"));
    }
    SECTION("an address that is another pool's by now does not stand for it") {
        two.fake.world.pool_identity = "q";
        CHECK(two.fake.tnr({"run", "--dry-run", "--", "true"}) == 1);
    }
    SECTION("another account's address does not either") {
        REQUIRE(two.fake.session.logins().save({here, {wire::make_key_pair().public_key, wire::make_key_pair()}, "p"}));
        CHECK(two.fake.tnr({"run", "--dry-run", "--pool", there, "--", "true"}) == 1);
    }
    SECTION("one that was silent a moment ago is asked last") {
        two.other.pool_reachable = true;
        two.fake.session.silent_pools().note(there, true, *ui::seconds_of("2026-01-02T03:04:00Z"));
        CHECK(pool_of(two.fake.document({"run", "--dry-run", "--", "true"})) == here);
        two.fake.session.now = [] { return "2026-01-02T03:05:01Z"; };
        CHECK(pool_of(two.fake.document({"run", "--dry-run", "--", "true"})) == there);
    }
}

TEST_CASE("for a minute it is known which addresses were silent, but for a clock that is set back", "[cli][pool]") {
    test::FakeSession fake;
    auto silent = fake.session.silent_pools();
    CHECK_FALSE(silent.lately(here, 1'000));
    silent.note(here, true, 1'000);
    CHECK(silent.lately(here, 1'000));
    CHECK(silent.lately(here, 1'059));
    CHECK_FALSE(silent.lately(there, 1'000));
    silent.note(here, true, 1'050);  // no longer for that
    CHECK_FALSE(silent.lately(here, 1'060));
    CHECK_FALSE(silent.lately(here, 999));
    silent.note(there, true, 1'001);
    silent.note(here, false, 1'002);
    CHECK_FALSE(silent.lately(here, 1'002));
    CHECK(silent.lately(there, 1'002));
    REQUIRE(write_file(fake.session.cache_folder + "/silent_pools.json", "[1, {"));
    CHECK_FALSE(silent.lately(there, 1'002));
    silent.note(there, true, 1'003);
    CHECK(silent.lately(there, 1'003));
}

TEST_CASE("who signs in is told which pool it is, and pool.json has it", "[cli][pool]") {
    TwoLogins two;
    two.are("p", "q");
    auto key = wire::make_key_pair();
    REQUIRE(two.fake.tnr({"login", "pool", there, wire::make_key_pair().public_key, key.secret_key}) == 0);
    CHECK(two.fake.session.logins().find(there)->pool == "q");
}
