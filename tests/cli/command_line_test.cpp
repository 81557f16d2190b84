// Command lines as a whole: what they end with, and what they print.
#include "cli/json_out.hpp"

#include <algorithm>

#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("what --json prints can be parsed, whatever bytes were in a name or an error", "[cli]") {
    std::ostringstream out;
    cli::print_json(out, {{"what", "'\xff\xfe' is no name"}});
    CHECK(nlohmann::json::parse(out.str())["what"].get<std::string>().find("is no name") != std::string::npos);
    CHECK(out.str().back() == '\n');
}
namespace {

// A stream into a full disk.
struct FullDisk : std::streambuf {
    int sync() override {
        errno = ENOSPC;
        return -1;
    }
    int overflow(int) override { return sync(); }
};

}  // namespace

TEST_CASE("results that could not be written are no success", "[cli][command_line]") {
    test::FakeSession fake;
    FullDisk full;
    std::ostream out{&full};
    cli::Session session{out, fake.err, fake.in};
    session.provider_names = {};
    session.now = fake.session.now;
    session.config_folder = session.state_folder = fake.folder.path();
    for (const auto& words : std::vector<std::vector<std::string>>{
             {"version"}, {"--version"}, {"--help"}, {"status"}, {"completion", "bash"}}) {
        out.clear();
        fake.err.str("");
        CHECK(cli::run_command_line(session, words) == 1);
        CHECK(fake.err.str().find("tnr: cannot write the results: ") != std::string::npos);
    }
}

TEST_CASE("a program's words are its own, with and without --", "[cli][command_line]") {
    test::FakeSession fake;
    auto program = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"run", "--dry-run", "--gpu", "h100"});
        return fake.document(words)["program"];
    };
    using nlohmann::json;
    CHECK(program({"echo", "-T", "--json", "x"}) == json{"echo", "-T", "--json", "x"});
    CHECK(program({"--", "echo", "--", "-x"}) == json{"echo", "--", "-x"});
    CHECK(program({"prog", "--gpu"}) == json{"prog", "--gpu"});
    CHECK(fake.tnr({"run", "--nosuch", "prog"}) == 2);
    CHECK(fake.err.str().find("goes after `--`") != std::string::npos);
}

TEST_CASE("what was mistyped is recognised", "[cli][command_line]") {
    test::FakeSession fake;
    CHECK(fake.tnr({"statsu"}) == 2);
    CHECK(fake.err.str().find("did you mean 'status'?") != std::string::npos);
    CHECK(fake.tnr({"frobnicate"}) == 2);
    CHECK(fake.err.str().find("did you mean") == std::string::npos);
}

TEST_CASE("every command has a test of its own name", "[cli][command_line]") {
    test::FakeSession fake;
    auto commands = fake.document({"--help"})["commands"];
    CHECK(commands.size() > 10);
    for (const auto& command : commands) {
        std::string name = command["name"];
        INFO(name);
        std::replace(name.begin(), name.end(), '-', '_');
        CHECK(file_exists(std::string(TNR_CLI_TESTS) + "/" + name + "_test.cpp"));
    }
}

TEST_CASE("commands have the names that people try first", "[cli][command_line]") {
    test::FakeSession fake;
    fake.start_demo();
    for (const char* name : {"ls", "list", "ps"}) CHECK(fake.document({name})["command"] == "status");
    CHECK(fake.tnr({"rm", "demo", "--yes"}) == 0);
    CHECK(fake.document({"create", "demo", "--gpu", "h100", "--dry-run"})["command"] == "start");
    CHECK(fake.document({"ssh", "nobody", "--", "echo", "--json"})["command"] == "connect");
    CHECK(fake.tnr({"pss"}) == 2);
    CHECK(fake.err.str().find("did you mean 'ps'?") != std::string::npos);
}

TEST_CASE("options, commands below commands, providers and machines are recognised, too", "[cli][command_line]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.session.provider = [&](const std::string& name) { return cli::open_provider(fake.session, name); };
    auto hint = [&](const std::vector<std::string>& words) {
        CHECK(fake.tnr(words) != 0);
        return fake.err.str();
    };
    CHECK(hint({"start", "demo", "--regoin", "x"}).find("did you mean '--region'? ") != std::string::npos);
    CHECK(hint({"login", "hetzer"}).find("`tnr login` does not know 'hetzer'\nhint: did you mean 'hetzner'? ") !=
          std::string::npos);
    CHECK(hint({"offers", "--provider", "hetzer"}).find("did you mean 'hetzner'? providers: ") != std::string::npos);
    CHECK(hint({"delete", "dmeo", "--provider", "local", "--yes"}).find("did you mean 'demo'? ") != std::string::npos);
    CHECK(hint({"start", "demo", "--zzz"}).find("did you mean") == std::string::npos);
    for (const std::vector<std::string>& form :
         {std::vector<std::string>{"-o", "json"}, {"-ojson"}, {"--output=json"}, {"--json"}}) {
        std::vector<std::string> words = {"status", "--bogus"};
        words.insert(words.end(), form.begin(), form.end());
        CHECK(fake.tnr(words) == 2);
        CHECK(nlohmann::json::parse(fake.out.str())["errors"][0]["kind"] == "usage");
    }
    CHECK(fake.tnr({"status", "-o", "yaml", "--bogus"}) == 2);
    CHECK(fake.out.str().find("\n    kind: usage\n") != std::string::npos);
}
