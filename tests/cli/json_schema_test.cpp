// Every command's --json, good and bad, against the schema that cli/README.md writes down.
#include <algorithm>
#include <set>

#include "cli/commands/sync.hpp"
#include "tests/api_client/clouds/mock_world.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/cli/schema.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

struct Checked {
    test::FakeSession fake;
    test::Schema schema;
    std::set<std::string> seen;  // commands that have printed results

    json run(const std::vector<std::string>& words) {
        auto document = fake.document(words);
        if (document.size() > 3) seen.insert(schema.line_of(document["command"]));
        return document;
    }
    json fails(const std::vector<std::string>& words, const std::string& kind) {
        auto document = run(words);
        INFO(document.dump(1));
        REQUIRE(document["errors"].size() == 1);
        CHECK(document["errors"][0]["kind"] == kind);
        return document;
    }
};

}  // namespace

TEST_CASE("every command's --json is of the one schema", "[cli][json]") {
    Checked checked;
    auto& fake = checked.fake;
    auto server = wire::make_key_pair(), own = wire::make_key_pair();
    checked.run({"start", "demo", "--gpu", "h100", "--dry-run"});
    auto started = checked.run({"start", "demo", "--gpu", "h100"});
    CHECK(started["gpus"][0]["memory_bytes"] == uint64_t{80} << 30);
    CHECK(started["machine"]["ready"] == true);
    checked.run({"start", "demo", "--dry-run"});
    checked.run({"status"});
    test::Sshd sshd;
    fake.put_demo_at(sshd);
    test::write_text(fake.folder / "file", "content");
    test::TemporaryFolder there;
    CHECK(checked.run({"sync", fake.folder / "file", "demo:" + there.path() + "/"})["copied"] == 1);
    checked.run({"stop", "demo"});
    checked.run({"stop", "demo", "nobody"});
    fake.world.machines.clear();
    checked.run({"status"});
    checked.run({"delete", "demo", "--dry-run"});
    checked.run({"delete", "demo", "nobody", "--yes"});
    checked.run({"run", "--gpu", "a100", "--dry-run", "--", "./saxpy"});
    checked.run({"login", "pool", "tcp://h:1", server.public_key, own.secret_key});
    checked.run({"logout", "pool", "tcp://h:1"});
    test::MockCloud cloud("hetzner", "hetzner_mock.py", "HCLOUD_ENDPOINT", "/v1");
    fake.session.world = cloud.world;
    fake.in.str(std::string(cloud.token) + "\n");
    checked.run({"login", "hetzner"});
    checked.run({"whoami"});
    checked.run({"logout", "hetzner"});
    checked.run({"version"});
    checked.run({"--version"});
    checked.run({"completion", "bash"});
    checked.run({"--help"});
    const auto help = checked.run({"--help"});
    for (const auto& word : help["commands"]) checked.run({word["name"], "--help"});
    checked.run({"support", "memcpy"});
    auto missing = checked.schema.commands();
    for (const auto& command : checked.seen) missing.erase(command);
    // The others show their results in a test of their own name.
    std::erase_if(missing, [](const std::string& command) {
        std::string name = command.substr(0, command.find(' ')), file = name;
        std::replace(file.begin(), file.end(), '-', '_');
        std::string test = TNR_CLI_TESTS "/" + file + "_test.cpp";
        return file_exists(test) && test::read_text(test).find("document({\"" + name + "\"") != std::string::npos;
    });
    CHECK(missing == std::set<std::string>{"connect"});  // its streams pass through: it can only fail
}

TEST_CASE("every failure's --json is of the one schema, and its kind decides the exit code", "[cli][json]") {
    Checked checked;
    auto& fake = checked.fake;
    checked.fails({}, "usage");
    checked.fails({"bogus"}, "usage");
    checked.fails({"start"}, "usage");
    checked.fails({"start", "Demo", "--gpu", "h100"}, "usage");
    checked.fails({"start", "demo", "--gpu", "h300"}, "usage");
    checked.fails({"connect", "demo"}, "usage");
    checked.fails({"run", "--", "true"}, "usage");
    checked.fails({"sync", "a", "b"}, "usage");
    CHECK(checked.fails({"stop", "demo"}, "not_found")["errors"][0]["about"] == "demo");
    checked.fails({"delete", "demo", "--yes"}, "not_found");
    checked.fails({"completion", "tcsh"}, "usage");
    checked.fails({"support", "nosuchcall"}, "not_found");
    fake.world.pool_reachable = false;
    checked.fails({"start", "demo", "--gpu", "h100"}, "network");
    CHECK(checked.fails({"status"}, "network")["pools"][0]["reachable"] == false);
    REQUIRE(fake.tnr({"logout", "pool", "tcp://127.0.0.1:14900"}) == 0);
    checked.fails({"start", "demo", "--gpu", "h100"}, "auth");
    CHECK(fake.session.exit_code == cli::exit_sign_in);
}
