// Every command's --json, good and bad, against the schema that cli/README.md writes down.
#include <regex>
#include <set>

#include "cli/commands/sync.hpp"
#include "tests/api_client/clouds/mock_world.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using nlohmann::json;

namespace {

// The block of README.md: a name, and the type of each of its fields.
class Schema {
public:
    Schema() {
        std::string text = test::read_text(TNR_CLI_README), fence = "```schema\n";
        size_t begin = text.find(fence) + fence.size();
        std::istringstream lines{text.substr(begin, text.find("```", begin) - begin)};
        for (std::string line; std::getline(lines, line);) {
            size_t brace = line.find('{');
            if (brace == std::string::npos) continue;
            std::string name = line.substr(0, line.find_last_not_of(' ', brace - 1) + 1);
            auto& fields = shapes_[name];
            static const std::regex field{R"(([a-z_0-9]+): (\[?[a-z_]+\]?\??))"};
            for (std::sregex_iterator at{line.begin() + static_cast<std::ptrdiff_t>(brace), line.end(), field}, end;
                 at != end; ++at)
                fields[(*at)[1]] = (*at)[2];
        }
    }
    std::set<std::string> commands() const {
        std::set<std::string> names;
        for (const auto& [name, fields] : shapes_)
            if (name.starts_with("tnr ")) names.insert(name.substr(4));
        return names;
    }
    // The name of the line that a command's results are to follow: "login PROVIDER" for "login hetzner".
    std::string line_of(const std::string& command) const {
        std::string any = command.substr(0, command.rfind(' ')) + " PROVIDER";
        return !shapes_.count("tnr " + command) && shapes_.count("tnr " + any) ? any : command;
    }
    // What is wrong with a command's document; empty: nothing. One that failed as a whole has no results.
    std::string complaint(const json& document) const {
        auto fields = shapes_.at("every");
        std::string command = document.value("command", "");
        auto results = shapes_.find("tnr " + line_of(command));
        bool failed = !document.value("errors", json::array()).empty() && document.size() == fields.size();
        if (results == shapes_.end() && !failed) return "no line for `tnr " + command + "`";
        if (!failed) fields.insert(results->second.begin(), results->second.end());
        return object(document, fields, command);
    }

private:
    using Fields = std::map<std::string, std::string>;

    std::string object(const json& value, const Fields& fields, const std::string& where) const {
        if (!value.is_object()) return where + " is no object";
        for (const auto& [name, type] : fields) {
            if (!value.contains(name)) return where + " has no " + name;
            if (auto wrong = check(value[name], type, where + "." + name); !wrong.empty()) return wrong;
        }
        for (const auto& [name, unused] : value.items())
            if (!fields.count(name)) return where + "." + name + " is not in the schema";
        return "";
    }
    std::string check(const json& value, std::string type, const std::string& where) const {
        if (type.back() == '?') {
            if (value.is_null()) return "";
            type.pop_back();
        }
        if (type.front() == '[') {
            if (!value.is_array()) return where + " is no list";
            for (const auto& each : value)
                if (auto wrong = check(each, type.substr(1, type.size() - 2), where + "[]"); !wrong.empty())
                    return wrong;
            return "";
        }
        if (auto shape = shapes_.find(type); shape != shapes_.end()) return object(value, shape->second, where);
        static const std::regex time{"\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ"};
        bool good = type == "text"     ? value.is_string()
                    : type == "int"    ? value.is_number_integer()
                    : type == "number" ? value.is_number()
                    : type == "bool"   ? value.is_boolean()
                    : type == "time"   ? value.is_string() && std::regex_match(value.get<std::string>(), time)
                                       : false;
        return good ? "" : where + " is no " + type + ": " + value.dump();
    }

    std::map<std::string, Fields> shapes_;
};

struct Checked {
    test::FakeSession fake;
    Schema schema;
    std::set<std::string> seen;  // commands that have printed results

    json run(const std::vector<std::string>& words) {
        auto document = fake.document(words);
        INFO(document.dump(1));
        CHECK(schema.complaint(document) == "");
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
    for (const auto& word : checked.run({"--help"})["commands"]) checked.run({word["name"], "--help"});
    checked.run({"support", "memcpy"});
    auto missing = checked.schema.commands();
    for (const auto& command : checked.seen) missing.erase(command);
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
    CHECK(fake.session.exit_code == 0);
}
