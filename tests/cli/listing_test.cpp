// -o and --columns, which are the same for every command that lists things.
#include "cli/listing.hpp"

#include <algorithm>
#include <cstdlib>

#include "cli/json_out.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

TEST_CASE("a list is shown as a table, wide, by name, or with the columns that are asked for", "[cli][listing]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.start_demo("other");
    REQUIRE(fake.tnr({"status", "-o", "name"}) == 0);
    CHECK(fake.out.str() == "demo\nother\n");
    REQUIRE(fake.tnr({"status", "--columns", "NAME,gpu,state"}) == 0);
    CHECK(fake.out.str() == "NAME   GPU   STATE\ndemo   h100  running\nother  h100  running\n");
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(fake.out.str().find(" POOL ") == std::string::npos);
    REQUIRE(fake.tnr({"status", "-o", "wide"}) == 0);
    CHECK(fake.out.str().find(" POOL ") != std::string::npos);
    auto plain = fake.document({"status"});
    REQUIRE(fake.tnr({"status", "-o", "json"}) == 0);
    CHECK(json::parse(fake.out.str()) == plain);
    REQUIRE(fake.tnr({"status", "-o", "yaml"}) == 0);
    CHECK(fake.out.str() == cli::to_yaml(plain));
}

TEST_CASE("an output or a column that there is not is named, and the nearest beside it", "[cli][listing]") {
    test::FakeSession fake;
    CHECK(fake.tnr({"status", "-o", "jsn"}) == 2);
    CHECK(fake.err.str() ==
          "tnr: there is no output 'jsn'\nhint: did you mean 'json'? there are table, wide, json, yaml, name\n");
    CHECK(fake.tnr({"status", "--columns", "nam"}) == 2);
    CHECK(fake.err.str().find("did you mean 'name'? columns: name, state") != std::string::npos);
    CHECK(fake.tnr({"status", "-o", "json", "--columns", "name"}) == 2);
    CHECK(json::parse(fake.out.str())["errors"][0]["kind"] == "usage");
}

TEST_CASE("whatever a cloud calls a machine, no list makes a terminal obey it", "[cli][listing]") {
    test::FakeSession fake;
    const std::string name = "a\033[2J\r\n\tb\u009b31m\177\u202ec\u0085";
    fake.world.machines["i-1"] = {.id = "i-1", .name = name, .state = MachineState::running, .offer = name};
    for (const char* format : {"table", "wide", "json", "yaml", "name"}) {
        CAPTURE(format);
        REQUIRE(fake.tnr({"status", "-o", format}) == 0);
        const std::string said = fake.out.str() + fake.err.str();
        for (const char* obeyed : {"\033", "\r", "\t", "\177", "\u009b", "\u0085", "\u202e"})
            CHECK(said.find(obeyed) == std::string::npos);
        const std::string hints = fake.err.str();
        CHECK(std::count(hints.begin(), hints.end(), '\n') <= 1);
    }
    CHECK(fake.document({"status"})["machines"][0]["name"] == name);
    fake.world.machines["i-1"].name = std::string(10'000'000, 'x');
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(fake.out.str().size() + fake.err.str().size() < 10'000);
}

TEST_CASE("YAML says what JSON says, as another reader understands it", "[cli][listing]") {
    json document = {{"empty", json::array()},
                     {"none", nullptr},
                     {"words",
                      {"plain", "true", "no", "1.5", "", "a: b", "- x", "#c", "tab\t\"q\"\\", "Grüße 😀",
                       "\u009b\u202e\177", "2026-01-02"}},
                     {"list", {{{"a", 1}, {"b", {{"c", {1, {2, 3}}}}}}, json::object(), {{"yes", true}}}},
                     {"number", 0.1}};
    test::TemporaryFolder folder;
    test::write_text(folder / "document.yaml", cli::to_yaml(document));
    test::write_text(folder / "document.json", document.dump());
    std::string line = std::string(TNR_TEST_PYTHON) +
                       " -c 'import json, sys, yaml\n"
                       "a, b = yaml.safe_load(open(sys.argv[1])), json.load(open(sys.argv[2]))\n"
                       "sys.exit(0 if a == b else print(a, b) or 1)' " +
                       (folder / "document.yaml") + " " + (folder / "document.json");
    INFO(cli::to_yaml(document));
    CHECK(std::system(line.c_str()) == 0);
}
