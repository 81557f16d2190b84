// `tnr pool top`: what is shown of a pool, to people and to programs, on wide and on narrow terminals.
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

// Two nodes; one user's claim, a GPU that is wiped, a free one, and two who wait, one of them somebody else.
cli::PoolNow busy_pool() {
    cli::PoolNow now;
    now.now_ms = 1'000'000;
    now.nodes = {{"n1", "1.0", false}, {"n2", "1.0", true}};
    cli::PoolGpu held{"n1", "h100", 0, "claimed"};
    held.user = "ada";
    held.machine = "demo";
    held.programs = {"python3", "train"};
    held.held_s = 90;
    held.busy_share = 0.5;
    now.gpus = {held, {"n1", "h100", 1, "wiping"}, {"n2", "a100", 0, "free"}};
    now.queue = {{.gpu = "h100", .count = 2, .place = 1, .of = 2, .user = "ada", .waited_s = 7}};
    now.queue_length = 2;
    now.claims_total = 40;
    return now;
}

bool shows(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("pool top --once shows GPUs, who holds them and who waits", "[cli][pool]") {
    test::FakeSession fake;
    fake.world.now = busy_pool();
    REQUIRE(fake.tnr({"pool", "top", "--once"}) == 0);
    const auto text = fake.out.str();
    INFO(text);
    CHECK(shows(text, "tcp://127.0.0.1:14900, 3 GPUs, 1 claimed, 1 free, 1 wiping"));
    CHECK(shows(text, "n2 is stopping"));
    CHECK(shows(text, "python3, train"));
    CHECK(shows(text, "50%"));
    CHECK(shows(text, "2 h100"));
    CHECK(shows(text, "1 of 2"));
    CHECK(shows(text, "1 other waits."));
}

TEST_CASE("pool top says which node does not answer", "[cli][pool]") {
    test::FakeSession fake;
    fake.world.now = busy_pool();
    fake.world.now.nodes.push_back({.name = "n3", .version = "", .silent = true});
    REQUIRE(fake.tnr({"pool", "top", "--once"}) == 0);
    CHECK(shows(fake.out.str(), "n3 does not answer"));
    auto document = fake.document({"pool", "top"});
    CHECK(document["nodes"][2]["silent"] == true);
    CHECK(document["nodes"][0]["silent"] == false);
}

TEST_CASE("pool top --json says the same, of the schema", "[cli][pool]") {
    test::FakeSession fake;
    fake.world.now = busy_pool();
    auto document = fake.document({"pool", "top"});
    CHECK(document["command"] == "pool top");
    REQUIRE(document["gpus"].size() == 3);
    CHECK(document["gpus"][0]["held_s"] == 90);
    CHECK(document["gpus"][1]["user"].is_null());
    CHECK(document["nodes"][1]["stopping"] == true);
    CHECK(document["queue_length"] == 2);
    CHECK(document["queue"][0]["place"] == 1);
}

TEST_CASE("pool top on a terminal follows, with rates, and waits for a pool that stops answering", "[cli][pool]") {
    test::FakeSession fake;
    fake.world.now = busy_pool();
    fake.session.out_is_terminal = fake.session.out_redraws = true;
    fake.session.out_size = [] { return ui::Size{.rows = 24, .columns = 60}; };
    int looks = 0;
    fake.session.pause = [&](int) {
        ++looks;
        fake.world.now.now_ms += 1000;
        fake.world.now.claims_total = *fake.world.now.claims_total + 3;
        fake.world.pool_reachable = looks != 2;
        return looks < 4;
    };
    REQUIRE(fake.tnr({"pool", "top"}) == 0);
    const auto text = fake.out.str();
    INFO(text);
    CHECK(looks == 4);
    CHECK(shows(text, "claims 3.0/s"));
    CHECK(shows(text, "no answer from the pool"));
    CHECK_FALSE(shows(text, "PROGRAMS"));  // too narrow for them
}

TEST_CASE("pool top of a pool that has never answered fails, and without a login says what to do", "[cli][pool]") {
    test::FakeSession fake;
    fake.world.pool_reachable = false;
    CHECK(fake.tnr({"pool", "top"}) == 1);
    CHECK(shows(fake.err.str(), "no answer from the pool"));
    fake.world.pool_reachable = true;
    REQUIRE(fake.session.logins().remove("tcp://127.0.0.1:14900"));
    CHECK(fake.tnr({"pool", "top"}) != 0);
    CHECK(shows(fake.err.str(), "tnr login"));
    CHECK(fake.tnr({"pool"}) == 2);
}
