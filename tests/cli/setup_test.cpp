// `tnr start --setup`: once, seen, and again when it failed.
#include "cli/setup.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <future>

#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/complaints.hpp"

using namespace tnr;

TEST_CASE("a setup script runs once on a new machine, and is shown", "[cli][setup]") {
    test::FakeSession fake;
    std::string file = fake.folder / "setup.sh";
    test::write_text(file, "#!/bin/sh\napt-get install -y jq\n");
    REQUIRE(fake.tnr({"start", "demo", "--gpu", "h100", "--setup", file}) == 0);
    CHECK(fake.world.scripts == std::vector<std::string>{"#!/bin/sh\napt-get install -y jq\n"});
    CHECK(fake.err.str().find("  | it says something\n") != std::string::npos);
    REQUIRE(fake.tnr({"start", "demo"}) == 0);
    REQUIRE(fake.tnr({"start", "demo", "--setup", file}) == 0);
    REQUIRE(fake.tnr({"stop", "demo"}) == 0);
    REQUIRE(fake.tnr({"start", "demo"}) == 0);
    CHECK(fake.world.scripts.size() == 1);
    SECTION("another script is another wish") {
        test::write_text(file, "echo more\n");
        REQUIRE(fake.tnr({"start", "demo", "--setup", file}) == 0);
        CHECK(fake.world.scripts.size() == 2);
    }
    SECTION("a machine that is made anew is new") {
        fake.world.machines.clear();
        REQUIRE(fake.tnr({"start", "demo"}) == 0);
        CHECK(fake.world.scripts.size() == 2);
    }
}

TEST_CASE("a setup script that fails is told, and start runs it again", "[cli][setup]") {
    test::FakeSession fake;
    std::string file = fake.folder / "setup.sh";
    test::write_text(file, "exit 3\n");
    fake.world.script_code = 3;
    CHECK(fake.tnr({"start", "demo", "--gpu", "h100", "--setup", file}) == 1);
    CHECK(fake.err.str().find("the setup script on 'demo' ended with exit code 3") != std::string::npos);
    CHECK(fake.err.str().find("`tnr start demo` runs it again") != std::string::npos);
    CHECK(fake.document({"status"})["machines"][0]["ready"] == false);
    REQUIRE(remove_file(file));
    fake.world.fails_at = "setup";  // the connection breaks
    CHECK(fake.tnr({"start", "demo"}) == 1);
    REQUIRE(fake.tnr({"start", "demo"}) == 0);
    CHECK(fake.world.scripts == std::vector<std::string>{"exit 3\n", "exit 3\n"});
    CHECK(fake.document({"status"})["machines"][0]["ready"] == true);
}

TEST_CASE("a setup script that is missing, empty, too large or no text is refused before anything is made",
          "[cli][setup]") {
    test::FakeSession fake;
    std::string file = fake.folder / "setup.sh";
    auto refused = [&](const std::string& why) {
        CHECK(fake.tnr({"start", "demo", "--gpu", "h100", "--setup", file}) == 2);
        CHECK(fake.err.str().find(why) != std::string::npos);
    };
    refused("cannot read the setup script");
    test::write_text(file, "");
    refused("is empty");
    test::write_text(file, std::string(cli::setup_bytes_max + 1, 'x'));
    refused("is larger than 256 KiB");
    test::write_text(file, "\xff\xfe");
    refused("is no text");
    CHECK(fake.world.created == 0);
    CHECK(fake.world.enrolled.empty());
}

namespace {

// Into a machine whose login user's home is a folder of the test's.
struct ScriptWorld {
    test::TemporaryFolder home;
    test::Sshd sshd{"SetEnv HOME=" + home.path() + "\n"};
    std::unique_ptr<cli::MachineAccess> access = cli::ssh_access(home.path());
    std::vector<std::string> lines;

    ScriptWorld() {
        auto target = sshd.target();
        REQUIRE(write_file(home / "ssh_key", ssh::private_file(target.key, "")));
        Machine machine{.name = "demo", .state = MachineState::running, .address = target.host};
        machine.ssh_port = target.port;
        machine.user = target.user;
        cli::Record record;
        record.name = "demo";
        record.host_key = target.host_key;
        REQUIRE(access->get_in(machine, record, [](const std::string&) -> Result<> { return Ok{}; }));
    }
    Result<int> run(const std::string& script) {
        lines.clear();
        return access->run_script(script, [this](const std::string& line) { lines.push_back(line); });
    }
};

}  // namespace

TEST_CASE("a script runs on the machine in its user's home, with or without a first line, both streams shown",
          "[cli][setup]") {
    ScriptWorld world;
    auto code = world.run("pwd; echo problem >&2; printf 'no newline'; exit 4\n");
    REQUIRE(code);
    CHECK(*code == 4);
    CHECK(std::count(world.lines.begin(), world.lines.end(), world.home.path()) == 1);
    CHECK(world.lines.size() >= 2);  // a line without its end and the other stream may share one
    code = world.run("#!/usr/bin/env python3\nprint(6 * 7)\n");
    REQUIRE(code);
    CHECK(*code == 0);
    CHECK(world.lines == std::vector<std::string>{"42"});
}

TEST_CASE("a script that still runs from before is not run beside itself", "[cli][setup]") {
    ScriptWorld world;
    std::promise<void> begun;
    REQUIRE(::mkfifo((world.home / "gate").c_str(), 0600) == 0);
    test::Complaints complaints;
    std::thread first([&] {
        ScriptWorld* other = &world;
        auto access = cli::ssh_access(other->home.path());
        auto target = other->sshd.target();
        Machine machine{.name = "demo", .state = MachineState::running, .address = target.host};
        machine.ssh_port = target.port;
        machine.user = target.user;
        cli::Record record;
        record.name = "demo";
        record.host_key = target.host_key;
        auto in = access->get_in(machine, record, [](const std::string&) -> Result<> { return Ok{}; });
        if (!complaints.expect(static_cast<bool>(in), "could not be got in")) return begun.set_value();
        auto code = access->run_script("echo begun; read line <gate\n", [&](const std::string&) { begun.set_value(); });
        complaints.expect(static_cast<bool>(code), "the first script did not end");
    });
    begun.get_future().wait();
    auto second = world.run("echo never\n");
    test::write_text(world.home / "gate", "go on\n");
    first.join();
    CHECK(complaints.text() == "");
    REQUIRE_FALSE(second);
    CHECK(second.error().what.find("still runs on 'demo' from before") != std::string::npos);
    CHECK(world.lines.empty());
}
