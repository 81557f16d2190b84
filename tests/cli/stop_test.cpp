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
