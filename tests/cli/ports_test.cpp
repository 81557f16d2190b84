// `tnr ports`: what is open, opened and closed.
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

TEST_CASE("ports are opened and closed, and remembered", "[cli][ports]") {
    test::FakeSession fake;
    fake.start_demo();
    CHECK(fake.document({"ports", "demo"})["ports"] == json::array());
    CHECK(fake.document({"ports", "demo", "open", "443", "80"})["ports"] == json({80, 443}));
    CHECK(fake.world.open_ports == std::vector<int>{80, 443});
    CHECK(fake.document({"ports", "demo", "open", "8080", "80"})["ports"] == json({80, 443, 8080}));
    CHECK(fake.document({"ports", "demo", "close", "443", "9"})["ports"] == json({80, 8080}));
    CHECK(fake.world.open_ports == std::vector<int>{80, 8080});
    REQUIRE(fake.tnr({"ports", "demo"}) == 0);
    CHECK(fake.out.str() == "'demo' can be reached at: 22 (SSH), 80, 8080\n");
    SECTION("a machine that is made anew has none") {
        fake.world.machines.clear();
        REQUIRE(fake.tnr({"start", "demo"}) == 0);
        CHECK(fake.document({"ports", "demo"})["ports"] == json::array());
    }
}

TEST_CASE("ports that make no sense change nothing", "[cli][ports]") {
    test::FakeSession fake;
    fake.start_demo();
    for (const std::vector<std::string>& words : {std::vector<std::string>{"open"},
                                                  {"open", "0"},
                                                  {"open", "65536"},
                                                  {"open", "http"},
                                                  {"close", "22"},
                                                  {"toggle", "80"}}) {
        std::vector<std::string> line = {"ports", "demo"};
        line.insert(line.end(), words.begin(), words.end());
        CHECK(fake.tnr(line) == 2);
    }
    CHECK(fake.world.open_ports.empty());
    CHECK(fake.tnr({"ports", "nobody"}) == 1);
    fake.world.has_firewall = false;
    CHECK(fake.tnr({"ports", "demo", "open", "80"}) == 2);
    CHECK(fake.err.str().find("has no firewall\nhint: a port of it here: `tnr connect demo -L PORT`") !=
          std::string::npos);
    CHECK(fake.document({"ports", "demo"})["ports"] == json::array());
}
