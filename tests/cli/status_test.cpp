// `tnr status` in worlds where somebody else may have been at work.
#include "cli/commands/status.hpp"

#include <sys/stat.h>

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

TEST_CASE("status tells what a machine costs by the hour, and what its GPUs add", "[cli][status]") {
    test::FakeSession fake;
    fake.world.types = {{"h100", 4, 4, 80'000'000'000, "USD", 2.5}};
    REQUIRE(fake.tnr({"start", "demo", "--gpu", "h100:2"}) == 0);
    REQUIRE(fake.tnr({"status", "--columns", "name,price"}) == 0);
    CHECK(fake.out.str().find("$0.25/h + $5/h GPU") != std::string::npos);
    CHECK(fake.document({"status"})["machines"][0]["gpu_price"] == json{{"currency", "USD"}, {"per_hour", 5.0}});
    fake.world.types[0].per_hour.reset();
    REQUIRE(fake.tnr({"status", "--columns", "name,price"}) == 0);
    CHECK(fake.out.str().find("GPU") == std::string::npos);
    CHECK(fake.document({"status"})["machines"][0]["gpu_price"].is_null());
}

TEST_CASE("one damaged record hides none of the others, and is told in plain words", "[cli][status]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.start_demo("other");
    for (std::string text : {"{\"name\": ", "{\"name\": \"demo\"}", "[]", "\xff"}) {
        test::write_text(fake.session.state_folder + "/machines/demo.json", text);
        REQUIRE(fake.tnr({"status"}) == 1);
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
    REQUIRE(fake.tnr({"delete", "demo", "--yes"}) == 0);
    REQUIRE(fake.tnr({"status"}) == 1);
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
    CHECK(fake.out.str().find("  3 h 10 min  ") != std::string::npos);
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

namespace {

// A cloud that answers only once all clouds have been asked, and gives up after a while.
class PatientProvider : public test::FakeProvider {
public:
    PatientProvider(test::FakeWorld& world, std::string name, test::Meeting& meeting)
        : FakeProvider(world), name_(std::move(name)), meeting_(meeting) {}
    std::string name() const override { return name_; }
    Result<std::vector<Machine>> machines() override {
        if (auto met = meeting_.wait_for_all(); !met) return met.error();
        std::vector<Machine> machines;
        for (int i = 0; i < 67; ++i)
            machines.push_back({.id = std::to_string(i),
                                .name = name_ + "-" + std::to_string(i),
                                .state = MachineState::running,
                                .address = "192.0.2.1"});
        return machines;
    }

private:
    std::string name_;
    test::Meeting& meeting_;
};

}  // namespace

TEST_CASE("clouds are asked side by side, and one that fails is named", "[cli][status]") {
    test::FakeSession fake;
    test::Meeting meeting(3);
    fake.session.provider_names = {"one", "two", "three", "mute"};
    fake.session.provider = [&](const std::string& name) -> Result<std::unique_ptr<Provider>> {
        CHECK(fake.session.world.limits.total_ms <= 15'000);  // nobody waits longer than that for the slowest
        if (name == "mute") {
            fake.world.machine_error = Error{Error::Kind::network, "api.example did not end its reply within 15 s"};
            return std::unique_ptr<Provider>(std::make_unique<test::FakeProvider>(fake.world));
        }
        return std::unique_ptr<Provider>(std::make_unique<PatientProvider>(fake.world, name, meeting));
    };
    REQUIRE(fake.tnr({"status", "-o", "name"}) == 1);
    auto lines = fake.out.str();
    CHECK(std::count(lines.begin(), lines.end(), '\n') == 3 * 67);
    CHECK(fake.err.str().find("tnr: mute: api.example did not end its reply within 15 s") != std::string::npos);
    CHECK(fake.session.world.limits.total_ms == http::Limits{}.total_ms);
}

TEST_CASE("words of a cloud that a terminal would obey are shown escaped", "[cli][status]") {
    test::FakeSession fake;
    fake.world.machines["i-9"] = {.id = "i-9",
                                  .name = "x;\033[2Jrm -rf",
                                  .state = MachineState::running,
                                  .address = "192.0.2.9",
                                  .region = "a\nb",
                                  .offer = "\033]0;title\a"};
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"status"}, {"status", "-o", "wide"}, {"status", "-o", "name"}}) {
        REQUIRE(fake.tnr(words) == 0);
        const std::string said = fake.out.str() + fake.err.str();
        INFO(said);
        CHECK(said.find_first_of("\033\a\r") == std::string::npos);
        CHECK(said.find("x;\\033[2Jrm -rf") != std::string::npos);
        CHECK(said.find("tnr delete") == std::string::npos);  // which would be pasted into a shell
    }
    fake.world.machine_error = Error{Error::Kind::network, "the cloud says \033[2J", "do \033[1m this"};
    CHECK(fake.tnr({"status"}) == 1);
    CHECK(fake.err.str().find("the cloud says \\033[2J\nhint: do \\033[1m this\n") != std::string::npos);
    fake.world.machine_error.reset();
}

TEST_CASE("status and billing tell by their exit code that a cloud or a pool did not answer", "[cli][status]") {
    test::FakeSession fake;
    fake.start_demo();
    for (const char* command : {"status", "billing"}) {
        CHECK(fake.tnr({command}) == 0);
        fake.world.machine_error = Error{Error::Kind::network, "no answer from the cloud"};
        CHECK(fake.tnr({command}) == 1);
        CHECK(fake.err.str().find("no answer from the cloud") != std::string::npos);
        CHECK(fake.document({command})["errors"][0]["about"] == "local");
        fake.world.machine_error.reset();
        fake.world.pool_reachable = false;
        CHECK(fake.tnr({command}) == 1);
        CHECK(fake.document({command})["errors"][0]["about"] == "tcp://127.0.0.1:14900");
        fake.world.pool_reachable = true;
    }
}

TEST_CASE("pipes among the records and settings are named, and nobody waits for them", "[cli][status]") {
    test::FakeSession fake;
    fake.start_demo();
    const std::string name = GENERATE("state/machines/pipe.json", "state/machines/demo.json", "state/history.jsonl",
                                      "config/pool.json", "config/config.json", "config/budgets.json");
    const std::string path = fake.folder / name;
    INFO(path);
    (void)remove_file(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    std::string told;
    for (const std::vector<std::string>& words : {std::vector<std::string>{"status"},
                                                  {"billing"},
                                                  {"config", "list"},
                                                  {"start", "demo", "--dry-run"},
                                                  {"delete", "pipe", "--yes"}}) {
        (void)fake.tnr(words);
        told += fake.err.str();
    }
    CHECK(told.find(path + ": it is a pipe") != std::string::npos);
    const bool noted = told.find("could not be written down: ") == std::string::npos;
    CHECK(noted == (name != "state/history.jsonl"));
}

TEST_CASE("money that could not be written down is no success of whoever saw it", "[cli][status]") {
    test::FakeSession fake;
    fake.start_demo();
    const std::string history = fake.session.state_folder + "/history.jsonl";
    auto pipe_there = [&] {
        (void)remove_file(history);
        REQUIRE(::mkfifo(history.c_str(), 0600) == 0);
    };
    auto unwritten = [&](const std::vector<std::string>& words) {
        pipe_there();
        INFO(words[0]);
        const int code = fake.tnr(words);
        CHECK(code == 1);
        CHECK(fake.err.str().find("could not be written down: ") != std::string::npos);
        pipe_there();
        auto errors = fake.document(words)["errors"];
        REQUIRE(errors.size() == 1);
        CHECK(errors[0]["what"].get<std::string>().find("could not be written down: ") != std::string::npos);
    };
    unwritten({"status"});
    unwritten({"stop", "demo"});
    CHECK(fake.world.machines.at("i-1").state == MachineState::stopped);
    unwritten({"start", "demo"});
    CHECK(fake.world.machines.at("i-1").state == MachineState::running);
    unwritten({"attach", "demo", "a100"});
    CHECK(fake.world.installed.find("a100") != std::string::npos);
    pipe_there();
    CHECK(fake.tnr({"delete", "demo", "--yes"}) == 1);
    CHECK(fake.out.str().starts_with("Deleted 'demo'"));
    CHECK(fake.world.machines.empty());
    CHECK_FALSE(fake.session.records().exists("demo"));
}

TEST_CASE("status of one machine tells all that is known of it", "[cli][status]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.start_demo("other");
    fake.world.claims = {{"demo", "h100", 1, "2026-01-02T03:05:00Z", 2}};
    fake.session.now = [] { return "2026-01-02T07:04:05Z"; };
    REQUIRE(fake.tnr({"status", "demo"}) == 0);
    for (const char* line : {"Name:       demo\n", "State:      running\n", "Busy:       busy\n", "Up:         4 h\n",
                             "Price:      $0.25/h\n", "Cost:       $1.00\n", "Id:         i-1\n"})
        CHECK(fake.out.str().find(line) != std::string::npos);
    CHECK(fake.out.str().find("other") == std::string::npos);
    auto machines = fake.document({"status", "other", "demo"})["machines"];
    REQUIRE(machines.size() == 2);
    CHECK(machines[0]["gpu_busy"] == true);
    CHECK(machines[0]["running_since"] == "2026-01-02T03:04:05Z");
    CHECK(machines[0]["cost"]["amounts"] == json{{{"currency", "USD"}, {"amount", 1.0}}});
    CHECK(machines[1]["gpu_busy"] == false);
    CHECK(fake.tnr({"status", "demo", "othr"}) == 1);
    CHECK(fake.out.str().find("demo") != std::string::npos);
    CHECK(fake.err.str().find("did you mean 'other'?") != std::string::npos);
}

TEST_CASE("each column of status has what its name says", "[cli][status]") {
    test::FakeSession fake;
    fake.world.types = {{"h100", 4, 4, 80'000'000'000, "USD", 2.5}};
    REQUIRE(fake.tnr({"start", "demo", "--gpu", "h100:2", "--size", "medium", "--region", "near", "--tag", "team=ml",
                      "--tag", "project=x"}) == 0);
    fake.world.claims = {{"demo", "h100", 2, "2026-01-02T03:05:00Z", 1}};
    fake.session.now = [] { return "2026-01-02T06:14:05Z"; };
    const std::map<std::string, std::string> told = {{"name", "demo"},
                                                     {"state", "running"},
                                                     {"provider", "local"},
                                                     {"region", "near"},
                                                     {"gpu", "h100:2"},
                                                     {"busy", "busy"},
                                                     {"address", "192.0.2.7"},
                                                     {"up", "3 h 10 min"},
                                                     {"price", "$0.25/h + $5/h GPU"},
                                                     {"size", "medium"},
                                                     {"age", "3 h"},
                                                     {"pool", "tcp://127.0.0.1:14900"},
                                                     {"tags", "project=x,team=ml"},
                                                     {"id", "i-1"}};
    for (const auto& [column, text] : told) {
        REQUIRE(fake.tnr({"status", "--columns", column}) == 0);
        CHECK(fake.out.str() == ui::upper(column) + "\n" + text + "\n");
    }
    REQUIRE(fake.tnr({"status", "demo"}) == 0);
    const std::string details = "\n" + fake.out.str();
    for (const auto& [column, text] : told) {
        std::string line = column + ":";
        line[0] = static_cast<char>(line[0] - 'a' + 'A');
        line.resize(12, ' ');
        line.append(text).append("\n");
        INFO(details);
        CHECK(details.find("\n" + line) != std::string::npos);
    }
    auto machine = fake.document({"status"})["machines"][0];
    CHECK(machine["tags"] == json{{{"key", "project"}, {"value", "x"}}, {{"key", "team"}, {"value", "ml"}}});
    CHECK(machine["region"] == "near");
    CHECK(machine["address"] == "192.0.2.7");
    CHECK(machine["ssh_port"] == 22);
    CHECK(machine["size"] == "medium");
    CHECK(machine["pool"] == "tcp://127.0.0.1:14900");
    CHECK(machine["ready"] == true);
    fake.world.machines.at("i-1").ssh_port = 2222;
    REQUIRE(fake.tnr({"status", "--columns", "address"}) == 0);
    CHECK(fake.out.str() == "ADDRESS\n192.0.2.7:2222\n");
}

TEST_CASE("status tells of each machine what to do next, and of each pool whether it answers", "[cli][status]") {
    test::FakeSession fake;
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(fake.out.str().find("No machines. `tnr start NAME --gpu TYPE` makes one.\n") == 0);
    auto hint = [&](const std::string& state, int code = 0) {
        REQUIRE(fake.tnr({"status"}) == code);
        INFO(fake.out.str() << fake.err.str());
        CHECK(fake.out.str().find("demo  " + state + "  ") != std::string::npos);
        return fake.err.str();
    };
    fake.world.fails_at = "create";
    REQUIRE_FALSE(cli::start(fake.session, {.name = "demo", .gpu = "h100"}));
    CHECK(hint("not created").find("'demo' is not made yet: `tnr start demo` continues") != std::string::npos);
    fake.world.fails_at = "install";
    REQUIRE_FALSE(cli::start(fake.session, {.name = "demo"}));
    CHECK(hint("running, not ready").find("'demo' is not set up yet: `tnr start demo` continues") != std::string::npos);
    fake.world.machines.clear();
    CHECK(hint("gone").find("'demo' was deleted outside tnr: `tnr delete demo` forgets it") != std::string::npos);
    fake.world.machine_error = Error{Error::Kind::network, "the cloud hangs"};
    CHECK(hint("unknown", 1).find("the cloud hangs") != std::string::npos);
    fake.world.machine_error.reset();
    CHECK(fake.out.str().find("\nPool tcp://127.0.0.1:14900\n") != std::string::npos);
    fake.world.pool_reachable = false;
    CHECK(hint("gone", 1).find("no answer from the pool") != std::string::npos);
    CHECK(fake.out.str().find("\nPool tcp://127.0.0.1:14900: not reachable\n") != std::string::npos);
    fake.world.pool_says = Error{Error::Kind::auth, "the pool does not let in the key"};
    CHECK(hint("gone", 4).find("tnr: the pool does not let in the key") != std::string::npos);
    CHECK(fake.out.str().find("\nPool tcp://127.0.0.1:14900: the pool does not let in the key\n") != std::string::npos);
}

TEST_CASE("status tells who holds the GPUs", "[cli][status]") {
    test::FakeSession fake;
    fake.world.types = {{"h100", 8, 3, 80'000'000'000}};
    fake.world.claims = {{"demo", "h100", 2, "2026-01-02T03:05:00Z", 2}};
    REQUIRE(fake.tnr({"status"}) == 0);
    CHECK(fake.out.str().find("h100  3     8   74.5 GiB  demo (2), others or not ready (3)\n") != std::string::npos);
}

TEST_CASE("hints of many machines do not push the machines off the screen", "[cli][status]") {
    test::FakeSession fake;
    for (int i = 0; i < 300; ++i) {
        const std::string id = "i-" + std::to_string(100 + i), name = "m" + std::to_string(i);
        fake.world.machines[id] = {.id = id, .name = name, .state = MachineState::running};
    }
    REQUIRE(fake.tnr({"status"}) == 0);
    const std::string said = fake.err.str();
    CHECK(std::count(said.begin(), said.end(), '\n') == 6);
    CHECK(said.find("hint: 295 more machines have one: `tnr status NAME` tells that of NAME\n") != std::string::npos);
}

TEST_CASE("--watch draws over what it drew, until Ctrl-C, which is no failure", "[cli][status]") {
    test::FakeSession fake;
    fake.start_demo();
    int pauses = 0;
    fake.session.pause = [&](int ms) {
        CHECK(ms == 2000);
        fake.world.machines.at("i-1").state = MachineState::stopped;
        if (++pauses == 2) interrupt::raise_for_test();
        return !interrupt::interrupted();
    };
    fake.session.out_redraws = true;
    fake.session.out_size = [] { return ui::Size{4, 30}; };
    CHECK(fake.tnr({"status", "--watch"}) == 0);
    auto shown = fake.out.str();
    INFO(json(shown).dump());
    CHECK(shown.starts_with("\033[2J\033[HNAME  STATE    PROVIDER  REGI…\033[K\ndemo  running"));
    CHECK(shown.find("\033[J\033[HNAME  STATE    PROVIDER") != std::string::npos);
    CHECK(shown.find("demo  stopped") != std::string::npos);
    CHECK(std::count(shown.begin(), shown.end(), '\n') == 2 * 3);  // no more than the window has
    interrupt::clear_for_test();
    CHECK(fake.tnr({"status", "--watch", "--json"}) == 2);
}

TEST_CASE("what status sees is written down, and a machine that is gone costs nothing more", "[cli][status]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.session.now = [] { return "2026-01-02T05:04:05Z"; };
    fake.world.machines.clear();
    REQUIRE(fake.tnr({"status"}) == 0);
    fake.session.now = [] { return "2026-01-09T05:04:05Z"; };
    auto cost = fake.document({"status"})["machines"][0]["cost"];
    CHECK(cost["hours_running"] == 2.0);
    CHECK(fake.session.history().all()->sightings.size() == 3);  // made, up, gone
}
