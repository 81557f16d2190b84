// --gpu, given and left out: what `tnr start` and `tnr run` take from a pool of one type or of several.
#include "cli/commands/run.hpp"
#include "cli/commands/start.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/cli/log.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

namespace {

Result<> dry_run(test::FakeSession& user, const std::string& gpu) {
    return cli::run(user.session, {.gpu = gpu, .words = {"./saxpy"}, .dry_run = true});
}

}  // namespace

TEST_CASE("--gpu may be left out where the pool has one type", "[cli][gpu]") {
    test::FakeSession user;
    user.world.types = {{"l4", 3, 0, 24'000'000'000}};  // also while all are in use
    REQUIRE(dry_run(user, ""));
    CHECK(user.said() == "Would run ./saxpy with 1 x l4 from the pool at tcp://127.0.0.1:14900\n");
    REQUIRE(cli::start(user.session, {.name = "demo"}));
    CHECK(user.session.records().find("demo")->value().gpu == "l4");
    CHECK(user.world.installed.find("\"l4\"") != std::string::npos);
}

TEST_CASE("with several types the user says which, and is told what there is", "[cli][gpu]") {
    test::FakeSession user;
    for (std::string command : {"tnr run", "tnr start demo"}) {
        auto result = command == "tnr run" ? dry_run(user, "") : cli::start(user.session, {.name = "demo"});
        REQUIRE_FALSE(result);
        CHECK(result.error().kind == Error::Kind::usage);
        CHECK(result.error().what == "the pool has several types of GPU: h100, a100");
        CHECK(result.error().hint == "say which: `" + command + " --gpu h100`");
    }
    CHECK(user.world.created == 0);
    REQUIRE(dry_run(user, "a100"));
    // A machine that exists keeps its own, though there are several by now.
    REQUIRE(cli::start(user.session, {.name = "demo", .gpu = "a100"}));
    REQUIRE(cli::start(user.session, {.name = "demo"}));
    CHECK(user.session.records().find("demo")->value().gpu == "a100");
}

TEST_CASE("a GPU that the pool does not have is refused with what it has", "[cli][gpu]") {
    test::FakeSession user;
    CHECK(dry_run(user, "h200").error().hint == "did you mean 'h100'? it has: h100, a100");
    CHECK(dry_run(user, "tpu-v4").error().hint == "it has: h100, a100");
    for (std::string many : {"h100:3", "h100:99", "h100:99999999999999999999"}) {
        CHECK(dry_run(user, many).error().what == "the pool has only 2 GPUs of type h100");
        CHECK(dry_run(user, many).error().hint == "ask for fewer: `tnr run --gpu h100:2`");
    }
    CHECK(dry_run(user, "A100:2").error().what == "the pool has only 1 GPU of type a100");
    CHECK(dry_run(user, "h100:x").error().what == "'h100:x' is no GPU type");
    user.world.types = {{"h100", 32, 32, 80'000'000'000}};
    CHECK(dry_run(user, "h100:17").error().what ==
          "a machine's GPUs are of one node, and none has more than 16 of type h100");
    CHECK(dry_run(user, "h100:17").error().hint == "ask for fewer: `tnr run --gpu h100:16`");
    REQUIRE(dry_run(user, "h100:16"));
    user.world.types[0].together = 8;
    CHECK(dry_run(user, "h100:9").error().hint == "ask for fewer: `tnr run --gpu h100:8`");
    REQUIRE(dry_run(user, "h100:8"));
    user.world.types = {};
    CHECK(dry_run(user, "").error().what == "the pool has no GPUs at all at the moment");
    CHECK(dry_run(user, "h100").error().what == "the pool has no GPUs at all at the moment");
}

TEST_CASE("upper and lower case are the same in a GPU's name", "[cli][gpu]") {
    test::FakeSession user;
    REQUIRE(cli::start(user.session, {.name = "demo", .gpu = "H100"}));
    CHECK(user.session.records().find("demo")->value().gpu == "h100");
    user.world.types = {{"L40S", 1, 1, 48'000'000'000}};
    REQUIRE(dry_run(user, "l40s"));
}

namespace {

// A pool that answers, with an error, once its user has been told that it is asked.
class SilentPool : public test::FakePool {
public:
    SilentPool(test::FakeWorld& world, test::Log& log, bool& told) : FakePool(world), log_(log), told_(told) {}
    Result<std::vector<cli::GpuType>> types() override {
        told_ = log_.comes_to_say("asking ");
        return Error{Error::Kind::network, "no answer"};
    }

private:
    test::Log& log_;
    bool& told_;
};

}  // namespace

TEST_CASE("nobody waits for a pool without knowing for what", "[cli][gpu]") {
    for (const std::vector<std::string>& words : {std::vector<std::string>{"start", "demo", "--gpu", "h100"},
                                                  {"run", "--gpu", "h100", "--", "true"},
                                                  {"gpus"},
                                                  {"status"}}) {
        test::FakeSession fake;
        test::Log log;
        std::ostream err(&log);
        bool told = false;
        cli::Session session{fake.out, err, fake.in};
        session.config_folder = fake.session.config_folder;
        session.state_folder = fake.session.state_folder;
        session.cache_folder = fake.session.cache_folder;
        session.provider_names = fake.session.provider_names;
        session.provider = fake.session.provider;
        session.now = fake.session.now;
        session.pool = [&](const cli::PoolLogin&) -> Result<std::unique_ptr<cli::Pool>> {
            return std::unique_ptr<cli::Pool>(std::make_unique<SilentPool>(fake.world, log, told));
        };
        (void)cli::run_command_line(session, words);
        INFO(words[0]);
        CHECK(told);
    }
}
