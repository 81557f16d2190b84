// `tnr status` in worlds where somebody else may have been at work.
#include "cli/commands/status.hpp"

#include <nlohmann/json.hpp>

#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

TEST_CASE("status as JSON is one document with machines, strangers and pools, and survives an unreachable pool",
          "[cli]") {
    test::FakeSession fake;
    fake.start_demo();
    Machine stranger;
    stranger.id = "i-9";
    stranger.name = "other";
    stranger.state = MachineState::running;
    fake.world.machines["i-9"] = stranger;
    fake.session.json = true;
    REQUIRE(cli::status(fake.session));
    auto all = json::parse(fake.said());
    REQUIRE(all["machines"].size() == 2);
    CHECK(all["machines"][0]["name"] == "demo");
    CHECK(all["machines"][0]["state"] == "running");
    CHECK(all["machines"][0]["created"] == "2026-01-02T03:04:05Z");
    CHECK(all["machines"][1]["hint"].get<std::string>().find("--provider local") != std::string::npos);
    CHECK(all["pools"][0]["types"][0]["name"] == "h100");

    fake.world.pool_reachable = false;
    REQUIRE(cli::status(fake.session));
    all = json::parse(fake.said());
    CHECK(all["machines"].size() == 2);
    CHECK(all["pools"][0]["reachable"] == false);
    CHECK(all["errors"][0]["kind"] == "network");
    CHECK(all["errors"][0]["about"] == "tcp://127.0.0.1:14900");
}

TEST_CASE("one damaged record hides none of the others, and is told in plain words", "[cli][status]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.start_demo("other");
    for (std::string text : {"{\"name\": ", "{\"name\": \"demo\"}", "[]", "\xff"}) {
        test::write_text(fake.session.state_folder + "/machines/demo.json", text);
        REQUIRE(fake.tnr({"status"}) == 0);
        CHECK(fake.out.str().find("other") != std::string::npos);
        CHECK(fake.out.str().find("demo") != std::string::npos);  // its provider has it
        CHECK(fake.err.str().find("the record of 'demo' is damaged") != std::string::npos);
        CHECK(fake.err.str().find("json.exception") == std::string::npos);
        CHECK(fake.err.str().find("`tnr delete demo`") != std::string::npos);
        auto document = fake.document({"status"});
        CHECK(document["machines"].size() == 2);
        CHECK(document["errors"][0]["about"] == "demo");
    }
    test::write_text(fake.session.config_folder + "/pool.json", "{");
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(fake.err.str().find("json.exception") == std::string::npos);
    CHECK(fake.err.str().find("tnr login pool") != std::string::npos);
}

TEST_CASE("a machine whose change of GPU was cut off is shown with the GPU that it has", "[cli][status]") {
    test::FakeSession fake;
    REQUIRE(cli::start(fake.session, {.name = "demo", .gpu = "a100"}));
    fake.world.fails_at = "get_in";
    REQUIRE_FALSE(cli::start(fake.session, {.name = "demo", .gpu = "h100:2"}));
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(fake.out.str().find("a100  ") != std::string::npos);
    CHECK(fake.out.str().find("h100:2") == std::string::npos);
    CHECK(fake.err.str().find("'demo' still has a100: `tnr start demo` gives it h100:2") != std::string::npos);
    auto machine = fake.document({"status"})["machines"][0];
    CHECK(machine["gpu"] == json{{"type", "a100"}, {"count", 1}});
    CHECK(machine["wanted_gpu"] == json{{"type", "h100"}, {"count", 2}});
    CHECK(machine["ready"] == false);
    REQUIRE(cli::start(fake.session, {.name = "demo"}));
    CHECK(fake.document({"status"})["machines"][0]["gpu"] == json{{"type", "h100"}, {"count", 2}});
}

TEST_CASE("Ctrl-C while something is asked ends status as interrupted", "[cli][status]") {
    test::FakeSession fake;
    fake.start_demo();
    interrupt::raise_for_test();
    CHECK(fake.tnr({"status"}) == 130);
    CHECK(fake.err.str().find("tnr: interrupted") != std::string::npos);
    CHECK(fake.err.str().find("hint: \n") == std::string::npos);
}

TEST_CASE("people see how old a machine is, and colours on a terminal alone", "[cli][status]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.session.now = [] { return "2026-01-02T06:14:05Z"; };
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(fake.out.str().find("  3 h  ") != std::string::npos);
    CHECK(fake.out.str().find("2026") == std::string::npos);
    CHECK(fake.out.str().find('\033') == std::string::npos);
    auto plain = fake.out.str();
    fake.session.out_paint.on = true;
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(fake.out.str().find("\033[32mrunning\033[0m") != std::string::npos);
    std::string without = fake.out.str();
    for (size_t at; (at = without.find('\033')) != std::string::npos;)
        without.erase(at, without.find('m', at) + 1 - at);
    CHECK(without == plain);  // the columns line up all the same
}
