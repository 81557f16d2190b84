// stop, delete and status in worlds where somebody else may have been at work.
#include <netinet/in.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include "tests/support/catch.hpp"

#include "cli/commands/delete.hpp"
#include "cli/commands/login.hpp"
#include "cli/commands/reach.hpp"
#include "cli/commands/start.hpp"
#include "cli/commands/status.hpp"
#include "cli/commands/stop.hpp"
#include "cli/json_out.hpp"
#include "tests/cli/fakes.hpp"

using namespace tnr;
using nlohmann::json;

static void with_machine(test::FakeSession& fake) {
    REQUIRE(cli::start(fake.session, {.name = "demo", .gpu = "h100"}));
    fake.said();
}

TEST_CASE("stop keeps the machine, and says when there was nothing to do", "[cli]") {
    test::FakeSession fake;
    with_machine(fake);
    REQUIRE(cli::stop(fake.session, {"demo"}));
    CHECK(fake.said() == "Stopped 'demo'; its disk is kept. `tnr start demo` brings it back\n");
    CHECK(fake.world.machines.at("i-1").state == MachineState::stopped);
    REQUIRE(cli::stop(fake.session, {"demo"}));
    CHECK(fake.said() == "'demo' was already stopped\n");
}

TEST_CASE("a machine deleted behind our back is told apart from one that never was", "[cli]") {
    test::FakeSession fake;
    with_machine(fake);
    fake.world.machines.clear();
    auto gone = cli::stop(fake.session, {"demo"});
    REQUIRE_FALSE(gone);
    CHECK(gone.error().what.find("deleted outside tnr") != std::string::npos);
    auto never = cli::stop(fake.session, {"other"});
    REQUIRE_FALSE(never);
    CHECK(never.error().what == "there is no machine called 'other'");

    REQUIRE(cli::status(fake.session));
    CHECK(fake.said().find("gone") != std::string::npos);
    REQUIRE(cli::delete_machine(fake.session, {.name = "demo"}));  // nothing left to lose: no question
    CHECK(fake.said().find("already gone") != std::string::npos);
    CHECK(fake.world.destroyed == std::vector<std::string>{"i-1"});  // it may have left something behind
    CHECK_FALSE(*fake.session.records().find("demo"));
    CHECK(fake.world.enrolled.empty());
}

TEST_CASE("delete removes a machine whose provider has lost track of it, but forgets none it could not ask about",
          "[cli]") {
    test::FakeSession fake;
    with_machine(fake);
    fake.world.machine_error = Error{Error::Kind::network, "the cloud does not answer"};
    REQUIRE_FALSE(cli::delete_machine(fake.session, {.name = "demo", .yes = true}));
    CHECK(fake.world.machines.size() == 1);
    CHECK(*fake.session.records().find("demo"));
    fake.world.machine_error = Error{Error::Kind::internal, "the record of 'demo' is damaged"};
    REQUIRE(cli::delete_machine(fake.session, {.name = "demo", .yes = true}));
    CHECK(fake.world.machines.empty());
    CHECK_FALSE(*fake.session.records().find("demo"));
}

TEST_CASE("a machine that runs but whose SSH refuses is given up with a next step", "[cli]") {
    test::FakeSession fake;
    with_machine(fake);
    const UniqueFd taken{::socket(AF_INET, SOCK_STREAM, 0)};  // and nobody listens there
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    fake.world.address = "127.0.0.1";
    fake.world.ssh_port = ntohs(address.sin_port);
    REQUIRE((*fake.session.provider("local"))->machine("i-1"));  // the cloud learns its new address
    auto client = cli::reach(fake.session, "demo", std::chrono::milliseconds(600));
    REQUIRE_FALSE(client);
    CHECK(client.error().kind == Error::Kind::network);
    CHECK(client.error().what.find("port " + std::to_string(fake.world.ssh_port)) != std::string::npos);
    CHECK(client.error().hint.find("tnr stop demo") != std::string::npos);
    CHECK(fake.err.str().find("waiting for SSH on 'demo'") != std::string::npos);
}

TEST_CASE("delete asks on a terminal, wants --yes in a script, and removes machine, key and record", "[cli]") {
    test::FakeSession fake;
    with_machine(fake);
    auto refused = cli::delete_machine(fake.session, {.name = "demo"});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().hint.find("--yes") != std::string::npos);
    CHECK(fake.world.machines.size() == 1);

    fake.session.in_is_terminal = true;
    fake.in.str("n\n");
    REQUIRE_FALSE(cli::delete_machine(fake.session, {.name = "demo"}));
    CHECK(fake.world.machines.size() == 1);
    fake.in.clear();
    fake.in.str("y\n");
    REQUIRE(cli::delete_machine(fake.session, {.name = "demo"}));
    CHECK(fake.world.machines.empty());
    CHECK(fake.world.enrolled.empty());
    CHECK_FALSE(*fake.session.records().find("demo"));
}

TEST_CASE("delete removes the machine even when the pool is out of reach, and says what is left", "[cli]") {
    test::FakeSession fake;
    with_machine(fake);
    fake.world.pool_reachable = false;
    REQUIRE(cli::delete_machine(fake.session, {.name = "demo", .yes = true}));
    CHECK(fake.world.machines.empty());
    CHECK(fake.err.str().find("still knows the key") != std::string::npos);
}

TEST_CASE("delete removes a machine whose record is lost or damaged", "[cli]") {
    for (bool damaged : {false, true}) {
        test::FakeSession fake;
        with_machine(fake);
        REQUIRE(fake.session.records().remove("demo"));
        if (damaged) test::write_text(fake.session.state_folder + "/machines/demo.json", "{\"name\": ");
        REQUIRE(cli::delete_machine(fake.session, {.name = "demo", .yes = true}));
        CHECK(fake.world.machines.empty());
        CHECK_FALSE(fake.session.records().exists("demo"));
    }
}

TEST_CASE("a start that never ordered a machine does not let delete touch somebody else's of that name", "[cli]") {
    test::FakeSession fake;
    Machine other;
    other.id = "i-9";
    other.name = "demo";
    other.state = MachineState::running;
    fake.world.machines["i-9"] = other;
    REQUIRE_FALSE(cli::start(fake.session, {.name = "demo", .gpu = "h100"}));
    REQUIRE(cli::delete_machine(fake.session, {.name = "demo", .yes = true}));
    CHECK(fake.world.machines.count("i-9") == 1);
}

TEST_CASE("status as JSON is one document with machines, strangers and pools, and survives an unreachable pool",
          "[cli]") {
    test::FakeSession fake;
    with_machine(fake);
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
    CHECK(all["machines"][0]["since"] == "2026-01-02T03:04:05Z");
    CHECK(all["machines"][1]["hint"].get<std::string>().find("--provider local") != std::string::npos);
    CHECK(all["pools"][0]["types"][0]["name"] == "h100");

    fake.world.pool_reachable = false;
    REQUIRE(cli::status(fake.session));
    all = json::parse(fake.said());
    CHECK(all["machines"].size() == 2);
    CHECK(all["pools"][0]["error"]["kind"] == "network");
}

TEST_CASE("login checks the keys and asks the pool before it stores anything; the last pool is the default", "[cli]") {
    test::FakeSession fake;
    auto server = wire::make_key_pair(), own = wire::make_key_pair();
    CHECK_FALSE(cli::login_pool(fake.session, {"gpu.example:1", server.public_key, own.secret_key}));
    CHECK_FALSE(cli::login_pool(fake.session, {"tcp://gpu.example:99999", server.public_key, own.secret_key}));
    CHECK_FALSE(cli::login_pool(fake.session, {"tcp://gpu.example:1", "short", own.secret_key}));
    fake.world.pool_reachable = false;
    CHECK_FALSE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, own.secret_key}));
    CHECK(fake.session.logins().find("")->address == "tcp://127.0.0.1:14900");
    fake.world.pool_reachable = true;
    REQUIRE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, own.secret_key}));
    auto login = fake.session.logins().find("");
    REQUIRE(login);
    CHECK(login->address == "tcp://gpu.example:1");
    SECTION("the key may come on standard input, where no other process sees it") {
        auto other = wire::make_key_pair();
        fake.in.str(other.secret_key + "\n");
        REQUIRE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, ""}));
        CHECK(fake.session.logins().find("")->keys.own.public_key == other.public_key);
        fake.in.str("");
        CHECK_FALSE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, ""}));
    }
    SECTION("or in a file") {
        CHECK_FALSE(cli::login_pool(fake.session, {"tcp://gpu.example:1", server.public_key, "", "/no/such/file"}));
    }
    CHECK(login->keys.own.public_key == own.public_key);
    CHECK(fake.session.logins().all()->size() == 2);
    REQUIRE(cli::logout_pool(fake.session, "tcp://gpu.example:1"));
    CHECK(fake.session.logins().find("")->address == "tcp://127.0.0.1:14900");
    CHECK(cli::logout_pool(fake.session, "tcp://gpu.example:1"));
}

TEST_CASE("what --json prints can be parsed, whatever bytes were in a name or an error", "[cli]") {
    std::ostringstream out;
    cli::print_json(out, {{"error", cli::error_json(Error{Error::Kind::usage, "'\xff\xfe' is no name"})}});
    CHECK(json::parse(out.str())["error"]["what"].get<std::string>().find("is no name") != std::string::npos);
    CHECK(out.str().back() == '\n');
}
