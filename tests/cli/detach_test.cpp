// `tnr detach`.
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("a detached machine has no GPU, is in order, and gets one again", "[cli][detach]") {
    test::FakeSession fake;
    fake.start_demo();
    auto machine = fake.document({"detach", "demo"})["machine"];
    CHECK(machine["gpu"].is_null());
    CHECK(machine["wanted_gpu"].is_null());
    CHECK(fake.world.installed.empty());
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(fake.err.str().empty());
    CHECK(fake.tnr({"start", "demo"}) == 2);  // which, of two types
    CHECK(fake.err.str().find("--gpu") != std::string::npos);
    REQUIRE(fake.tnr({"attach", "demo", "h100"}) == 0);
    CHECK(fake.document({"status"})["machines"][0]["ready"] == true);
    REQUIRE(fake.tnr({"detach", "demo"}) == 0);
    REQUIRE(fake.tnr({"start", "demo", "--gpu", "a100"}) == 0);
    CHECK(fake.world.installed.find("a100") != std::string::npos);
}
