// `tnr config`, and which word counts: the command line's, the machine's, the environment's, the file's.
#include "cli/config.hpp"

#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

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

TEST_CASE("what a newer tnr has written beside what we know stays", "[cli][config]") {
    test::FakeSession fake;
    const std::string folder = fake.session.config_folder;
    auto at = [&](const std::string& file) { return json::parse(test::read_text(folder + "/" + file)); };
    auto put = [&](const std::string& file, const json& content) {
        REQUIRE(write_file(folder + "/" + file, content.dump()));
    };
    SECTION("of settings, whatever kind they are") {
        put("config.json", {{"gpu", "a100"}, {"colours", {"red", 3}}});
        REQUIRE(fake.tnr({"config", "set", "gpu", "h100"}) == 0);
        CHECK(at("config.json") == json{{"gpu", "h100"}, {"colours", {"red", 3}}});
        REQUIRE(fake.tnr({"config", "unset", "gpu"}) == 0);
        CHECK(at("config.json") == json{{"colours", {"red", 3}}});
    }
    SECTION("of logins, as long as they are the same") {
        const auto address = fake.session.logins().find("")->address;
        json pools = at("pool.json");
        pools["newer"] = 7;
        pools["pools"][0]["newer"] = {1, 2};
        put("pool.json", pools);
        auto server = wire::make_key_pair(), own = wire::make_key_pair();
        REQUIRE(fake.session.logins().save({"tcp://gpu.example:1", {server.public_key, own}}));
        REQUIRE(fake.session.logins().renew(address, server.public_key));
        CHECK(at("pool.json")["newer"] == 7);
        CHECK(at("pool.json")["pools"][0]["newer"] == json{1, 2});
        CHECK(at("pool.json")["pools"][0]["server_key"] == server.public_key);
        REQUIRE(fake.session.logins().save({address, {server.public_key, own}}));  // with another key
        CHECK_FALSE(at("pool.json").dump().find("[1,2]") != std::string::npos);
    }
    SECTION("of budgets, as long as they are the same") {
        REQUIRE(fake.tnr({"budget", "set", "50/month"}) == 0);
        REQUIRE(fake.tnr({"budget", "set", "5/day", "--provider", "local"}) == 0);
        json budgets = at("budgets.json");
        for (auto& each : budgets) each["newer"] = true;
        put("budgets.json", budgets);
        REQUIRE(fake.tnr({"budget", "set", "6/day", "--provider", "local"}) == 0);
        CHECK(at("budgets.json")[0]["newer"] == true);
        CHECK_FALSE(at("budgets.json")[1].contains("newer"));
    }
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
