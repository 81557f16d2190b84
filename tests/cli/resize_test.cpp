// `tnr resize`: another size, the same disk.
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("a stopped machine is resized by name or by what it shall have", "[cli][resize]") {
    test::FakeSession fake;
    fake.start_demo();
    REQUIRE(fake.tnr({"stop", "demo"}) == 0);
    CHECK(fake.document({"resize", "demo", "--size", "large"})["size"] == "large");
    CHECK(fake.world.machines.at("i-1").offer == "large");
    CHECK(fake.document({"resize", "demo", "--cpus", "2", "--memory", "3"})["size"] == "medium");
    CHECK(fake.document({"resize", "demo", "--memory", "8G"})["size"] == "large");
    REQUIRE(fake.tnr({"start", "demo"}) == 0);  // and start knows
    CHECK(fake.world.created == 1);
    CHECK(fake.tnr({"resize", "demo"}) == 2);
    CHECK(fake.tnr({"resize", "demo", "--size", "huge"}) == 2);
    CHECK(fake.tnr({"resize", "demo", "--size", "large", "--cpus", "4"}) == 2);
    CHECK(fake.tnr({"resize", "demo", "--cpus", "many"}) == 2);
    CHECK(fake.tnr({"resize", "demo", "--cpus", "0"}) == 2);
    CHECK(fake.tnr({"resize", "demo", "--cpus", "999"}) == 2);
}

TEST_CASE("a running machine is resized only with --restart, and says what is left when that fails", "[cli][resize]") {
    test::FakeSession fake;
    fake.start_demo();
    CHECK(fake.tnr({"resize", "demo", "--size", "large"}) == 2);
    CHECK(fake.err.str().find("add --restart") != std::string::npos);
    CHECK(fake.world.machines.at("i-1").state == MachineState::running);
    REQUIRE(fake.tnr({"resize", "demo", "--size", "large", "--restart"}) == 0);
    CHECK(fake.world.machines.at("i-1").offer == "large");
    CHECK(fake.world.machines.at("i-1").state != MachineState::stopped);
    fake.world.fails_at = "resize";
    CHECK(fake.tnr({"resize", "demo", "--size", "small", "--restart"}) == 1);
    CHECK(fake.err.str().find("'demo' may be stopped now: `tnr start demo` brings it back") != std::string::npos);
    REQUIRE(fake.tnr({"start", "demo"}) == 0);
}
