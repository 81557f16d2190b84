// `tnr stop`.
#include "cli/commands/stop.hpp"

#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("stop keeps the machine, and says when there was nothing to do", "[cli]") {
    test::FakeSession fake;
    fake.start_demo();
    REQUIRE(cli::stop(fake.session, {{"demo"}}));
    CHECK(fake.said() == "Stopped 'demo'; its disk is kept. `tnr start demo` brings it back\n");
    CHECK(fake.world.machines.at("i-1").state == MachineState::stopped);
    REQUIRE(cli::stop(fake.session, {{"demo"}}));
    CHECK(fake.said() == "'demo' was already stopped\n");
}

TEST_CASE("stop takes several names, and one that fails keeps none of the others running", "[cli][stop]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.start_demo("other");
    CHECK(fake.tnr({"stop", "demo", "nobody", "other"}) == 1);
    CHECK(fake.world.machines.at("i-1").state == MachineState::stopped);
    CHECK(fake.world.machines.at("i-2").state == MachineState::stopped);
    CHECK(fake.err.str().find("there is no machine called 'nobody'") != std::string::npos);
}

TEST_CASE("a name that is nearly one is asked about", "[cli][stop]") {
    test::FakeSession fake;
    fake.start_demo();
    CHECK(fake.tnr({"stop", "dmeo"}) == 1);
    CHECK(fake.err.str().find("did you mean 'demo'?") != std::string::npos);
}

TEST_CASE("another tnr at work on the machine is no wrong usage", "[cli][stop]") {
    test::FakeSession fake;
    fake.start_demo();
    auto lock = fake.session.records().lock("demo");
    CHECK(fake.tnr({"stop", "demo"}) == 1);
    CHECK(fake.err.str().find("another tnr is working on 'demo'") != std::string::npos);
}

TEST_CASE("stop tells what the machine has cost, and what it goes on to cost", "[cli][stop]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.session.now = [] { return "2026-01-02T09:04:05Z"; };
    REQUIRE(fake.tnr({"stop", "demo"}) == 0);
    CHECK(fake.out.str().find("\n  it has cost $1.50 in 6 h; stopped it costs free\n") != std::string::npos);
}

TEST_CASE("stop, delete and status tell what the machine's GPUs have cost", "[cli][stop][delete][status]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.session.now = [] { return "2026-01-02T09:04:05Z"; };
    const int64_t hour_ms = 3'600'000, made_ms = 1'767'323'045'000;
    fake.world.books.uses = {
        {1, "demo", "h100", 2, made_ms + hour_ms, made_ms + 2 * hour_ms},
        {2, "other", "h100", 1, made_ms, made_ms + hour_ms},
        {3, "demo", "h100", 1, made_ms - 2 * hour_ms, made_ms - hour_ms}};  // one of that name before
    fake.world.books.prices = {{"h100", 0, "USD", 2.0}};
    CHECK(fake.document({"status", "demo"})["machines"][0]["gpu_cost"]["amounts"][0]["amount"] == 4.0);
    CHECK(fake.document({"status"})["machines"][0]["gpu_cost"].is_null());  // not asked
    REQUIRE(fake.tnr({"status", "--columns", "cost,gpu-cost"}) == 0);
    CHECK(fake.out.str() == "COST   GPU-COST\n$1.50  $4.00\n");
    REQUIRE(fake.tnr({"stop", "demo"}) == 0);
    CHECK(
        fake.out.str().find("\n  it has cost $1.50 in 6 h; its GPUs have cost $4.00 in 2 h; stopped it costs free\n") !=
        std::string::npos);
    fake.world.books.prices.clear();
    REQUIRE(fake.tnr({"stop", "demo"}) == 0);
    CHECK(fake.out.str().find("its GPUs were used for 2 h, at a price that its pool does not tell") !=
          std::string::npos);
    fake.world.pool_reachable = false;
    REQUIRE(fake.tnr({"delete", "demo", "--yes"}) == 0);
    CHECK(fake.out.str() ==
          "Deleted 'demo' and its disk; it has cost $1.50 in 6 h; what its GPUs have cost its pool does not tell\n");
}
