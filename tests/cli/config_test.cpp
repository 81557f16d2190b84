// `tnr config`, and which word counts: the command line's, the machine's, the environment's, the file's.
#include "cli/config.hpp"

#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

struct ConfigWorld {
    test::FakeSession fake;
    std::map<std::string, std::string> environment;
    ConfigWorld() {
        fake.session.world.variable = [this](const std::string& name) {
            auto found = environment.find(name);
            return found == environment.end() ? "" : found->second;
        };
    }
};

}  // namespace

TEST_CASE("settings are set, shown with their source, and taken out", "[cli][config]") {
    ConfigWorld world;
    auto& fake = world.fake;
    CHECK(fake.tnr({"config", "get", "gpu"}) == 1);
    REQUIRE(fake.tnr({"config", "set", "gpu", "a100"}) == 0);
    REQUIRE(fake.tnr({"config", "set", "idle-stop", "45m"}) == 0);
    REQUIRE(fake.tnr({"config", "get", "gpu"}) == 0);
    CHECK(fake.out.str() == "a100\n");
    world.environment["TNR_GPU"] = "h100:2";
    CHECK(fake.document({"config", "get", "gpu"})["settings"][0]["value"] == "h100:2");
    CHECK(fake.document({"config", "get", "gpu"})["settings"][0]["source"] == "TNR_GPU");
    REQUIRE(fake.tnr({"config", "set", "gpu", "a100"}) == 0);
    CHECK(fake.err.str().find("TNR_GPU is set and comes before it") != std::string::npos);
    CHECK(fake.document({"config", "list"})["settings"].size() == cli::settings().size());
    REQUIRE(fake.tnr({"config", "unset", "idle-stop"}) == 0);
    CHECK(fake.tnr({"config", "get", "idle-stop"}) == 1);
}

TEST_CASE("settings that make no sense are refused, and a damaged file is told", "[cli][config]") {
    ConfigWorld world;
    auto& fake = world.fake;
    for (const auto& [name, value] : std::map<std::string, std::string>{
             {"gpu", "h100:many"}, {"provider", "amazon"}, {"pool", "http://x"}, {"ttl", "soon"}, {"colour", "red"}})
        CHECK(fake.tnr({"config", "set", name, value}) == 2);
    CHECK(fake.tnr({"config", "get", "prvider"}) == 2);
    CHECK(fake.err.str().find("did you mean 'provider'?") != std::string::npos);
    CHECK(fake.tnr({"config"}) == 2);
    REQUIRE(write_file(fake.session.config_folder + "/config.json", "[1"));
    CHECK(fake.tnr({"config", "list"}) == 1);
    CHECK(fake.tnr({"start", "demo"}) == 1);
    CHECK(fake.err.str().find("config.json is damaged") != std::string::npos);
    CHECK(fake.world.created == 0);
    // One that was right when it was set, or never was.
    REQUIRE(write_file(fake.session.config_folder + "/config.json", "{\"provider\": \"gone\", \"new\": \"x\"}"));
    CHECK(fake.tnr({"start", "demo"}) == 2);
    CHECK(fake.err.str().find("(from " + fake.session.config_folder + "/config.json)") != std::string::npos);
}

TEST_CASE("the command line comes before the machine, the environment and the file, in this order", "[cli][config]") {
    ConfigWorld world;
    auto& fake = world.fake;
    auto has = [&](const std::string& name) { return (**fake.session.records().find(name)).gpu; };
    REQUIRE(fake.tnr({"config", "set", "gpu", "a100"}) == 0);
    REQUIRE(fake.tnr({"config", "set", "region", "far"}) == 0);
    REQUIRE(fake.tnr({"config", "set", "size", "medium"}) == 0);
    REQUIRE(fake.tnr({"config", "set", "ttl", "8h"}) == 0);
    REQUIRE(fake.tnr({"start", "one"}) == 0);
    CHECK(has("one") == "a100");
    CHECK(fake.world.last_order.region == "far");
    CHECK(fake.world.last_order.offer == "medium");
    CHECK((**fake.session.records().find("one")).ttl_s == 8 * 3600);
    world.environment["TNR_GPU"] = "h100";
    REQUIRE(fake.tnr({"start", "one"}) == 0);
    CHECK(has("one") == "a100");  // what it has
    REQUIRE(fake.tnr({"start", "two"}) == 0);
    CHECK(has("two") == "h100");
    REQUIRE(fake.tnr({"start", "three", "--gpu", "a100", "--provider", "local"}) == 0);
    CHECK(has("three") == "a100");
    CHECK(fake.world.last_order.region.empty());  // the settings say nothing of this provider
    CHECK(fake.document({"run", "--dry-run", "--", "true"})["gpu"]["type"] == "h100");
}
