// `tnr start` from every state the world can be in.
#include "cli/commands/start.hpp"
#include "cli/commands/reach.hpp"

#include <nlohmann/json.hpp>
#include "tests/support/catch.hpp"

#include "tests/cli/fakes.hpp"

using namespace tnr;
using nlohmann::json;

static void must_start(test::FakeSession& fake, const cli::StartOptions& options) {
    auto started = cli::start(fake.session, options);
    if (!started) FAIL(started.error().what + " / " + started.error().hint);
}

static cli::Record record_of(test::FakeSession& fake) {
    return **fake.session.records().find("demo");
}

TEST_CASE("start makes a machine, plants its keys, installs and proves the GPU", "[cli][start]") {
    test::FakeSession fake;
    must_start(fake, {.name = "demo", .gpu = "h100:2"});
    auto record = record_of(fake);
    CHECK(fake.world.created == 1);
    CHECK(fake.world.proofs == 1);
    CHECK(record.step == cli::Step::proven);
    CHECK(fake.world.enrolled["demo"] == record.machine_key.public_key);
    CHECK(fake.world.last_order.user_data.find("PRIVATE KEY") != std::string::npos);
    CHECK(record.host_secret.empty());  // the machine has it, nobody else needs it
    auto config = json::parse(fake.world.installed);
    CHECK(config["pool"] == "tcp://10.0.2.2:14900");  // loopback is somewhere else for a machine
    CHECK(config["gpu"] == "h100");
    CHECK(config["count"] == 2);
    CHECK(config["machine"]["secret_key"] == record.machine_key.secret_key);
    auto login = *fake.session.logins().find("");
    CHECK(fake.world.installed.find(login.keys.own.secret_key) == std::string::npos);  // never leaves the laptop
    CHECK(fake.said().find("tnr connect demo") != std::string::npos);
}

TEST_CASE("a second start checks a running machine and keeps its GPU, or changes it when told", "[cli][start]") {
    test::FakeSession fake;
    must_start(fake, {.name = "demo", .gpu = "h100"});
    fake.said();
    must_start(fake, {.name = "demo"});
    CHECK(fake.said().find("was already running") != std::string::npos);
    CHECK(fake.world.created == 1);
    CHECK(fake.world.proofs == 2);
    must_start(fake, {.name = "demo", .gpu = "a100"});
    CHECK(fake.world.created == 1);
    CHECK(json::parse(fake.world.installed)["gpu"] == "a100");
    CHECK(record_of(fake).gpu == "a100");
}

TEST_CASE("start brings a stopped machine back, and makes one anew that was deleted behind our back", "[cli][start]") {
    test::FakeSession fake;
    must_start(fake, {.name = "demo", .gpu = "h100"});
    auto host_key = record_of(fake).host_key;
    fake.world.machines["i-1"].state = MachineState::stopping;
    must_start(fake, {.name = "demo"});
    CHECK(fake.world.created == 1);
    CHECK(fake.world.machines["i-1"].state == MachineState::running);

    fake.world.machines.clear();
    must_start(fake, {.name = "demo"});
    CHECK(fake.world.created == 2);
    CHECK(record_of(fake).host_key != host_key);
    CHECK(fake.err.str().find("deleted outside tnr") != std::string::npos);
}

TEST_CASE("start makes a machine anew that stops because it is being deleted", "[cli][start]") {
    test::FakeSession fake;
    must_start(fake, {.name = "demo", .gpu = "h100"});
    auto host_key = record_of(fake).host_key;
    fake.world.machines["i-1"].state = MachineState::stopping;
    fake.world.stops_to_be_deleted = true;
    must_start(fake, {.name = "demo"});
    CHECK(fake.world.created == 2);
    CHECK(record_of(fake).id == "i-2");
    CHECK(record_of(fake).host_key != host_key);
}

TEST_CASE("wherever start fails or is interrupted, it says what exists, and the next start continues", "[cli][start]") {
    for (std::string step : {"create", "created", "get_in", "install", "prove"})
        for (bool by_user : {false, true}) {
            test::FakeSession fake;
            (by_user ? fake.world.interrupted_at : fake.world.fails_at) = step;
            INFO(step << (by_user ? " interrupted" : " failed"));
            auto failed = cli::start(fake.session, {.name = "demo", .gpu = "h100"});
            REQUIRE_FALSE(failed);
            CHECK(failed.error().hint.find("tnr delete demo") != std::string::npos);
            bool exists = !fake.world.machines.empty();
            CHECK(exists == (step != "create"));
            CHECK((failed.error().hint.find("$0.25/h") != std::string::npos) == (exists && step != "created"));
            CHECK(interrupt::exit_code() == (by_user ? 130 : 0));
            interrupt::clear_for_test();

            must_start(fake, {.name = "demo", .gpu = "h100"});
            CHECK(fake.world.created == 1);  // one machine, whatever happened
            CHECK(fake.world.proofs == 1);
        }
}

TEST_CASE("start waits for a machine that boots, not for one that has died", "[cli][start]") {
    test::FakeSession fake;
    fake.world.tries_in_vain = 100;
    SECTION("it boots slowly") {
        must_start(fake, {.name = "demo", .gpu = "h100"});
    }
    SECTION("its provider does not answer") {
        fake.world.machine_error_while_booting = Error{Error::Kind::network, "no route"};
        must_start(fake, {.name = "demo", .gpu = "h100"});
    }
    SECTION("it has died") {
        fake.world.dies_while_booting = true;
        auto failed = cli::start(fake.session, {.name = "demo", .gpu = "h100"});
        REQUIRE_FALSE(failed);
        CHECK(failed.error().what == "the machine has ended while it was booting: it is stopped");
        CHECK(failed.error().hint.find("`tnr start demo` continues") != std::string::npos);
        fake.world.dies_while_booting = false;
        must_start(fake, {.name = "demo"});
        CHECK(fake.world.created == 1);
    }
}

TEST_CASE("start refuses what cannot be, before anything is made", "[cli][start]") {
    test::FakeSession fake;
    auto error_of = [&](const cli::StartOptions& options) {
        auto started = cli::start(fake.session, options);
        REQUIRE_FALSE(started);
        return started.error();
    };
    CHECK(error_of({.name = "demo", .gpu = "h200"}).hint == "did you mean 'h100'? it has: h100, a100");
    CHECK(error_of({.name = "demo", .gpu = "a100:2"}).kind == Error::Kind::usage);
    CHECK(error_of({.name = "demo", .gpu = "h100:0"}).kind == Error::Kind::usage);
    CHECK(error_of({.name = "demo"}).what == "the pool has several types of GPU: h100, a100");
    CHECK(error_of({.name = "../x", .gpu = "h100"}).kind == Error::Kind::usage);
    CHECK(error_of({.name = "demo", .gpu = "h100", .pool = "tcp://elsewhere:1"}).kind == Error::Kind::auth);
    CHECK(error_of({.name = "demo", .gpu = "h100", .provider = "nowhere"}).kind == Error::Kind::usage);
    fake.world.pool_reachable = false;
    CHECK(error_of({.name = "demo", .gpu = "h100"}).what.find("tcp://127.0.0.1:14900") != std::string::npos);
    // What is mistyped is told before a pool is asked.
    CHECK(error_of({.name = "demo", .gpu = "h100", .ttl = "-5m"}).what == "--ttl '-5m': that is no time");
    CHECK(error_of({.name = "demo", .gpu = "h100", .tags = {"x"}}).what == "'x' is no tag");
    CHECK(fake.world.machines.empty());
    CHECK(fake.world.enrolled.empty());
}

TEST_CASE("two starts of one name at a time: the second says so", "[cli][start]") {
    test::FakeSession fake;
    auto lock = fake.session.records().lock("demo");
    REQUIRE(lock);
    auto second = cli::start(fake.session, {.name = "demo", .gpu = "h100"});
    REQUIRE_FALSE(second);
    CHECK(second.error().what.find("another tnr") != std::string::npos);
    CHECK(fake.world.machines.empty());
}

TEST_CASE("a dry run tells the price and changes nothing", "[cli][start]") {
    test::FakeSession fake;
    fake.session.json = true;
    must_start(fake, {.name = "demo", .gpu = "h100", .dry_run = true});
    auto plan = json::parse(fake.said());
    CHECK(plan["machine"]["price"]["per_hour"] == 0.25);
    CHECK(plan["machine"]["price"]["per_month"] == 0.25 * 730);
    must_start(fake, {.name = "demo", .gpu = "h100", .offer = "large", .dry_run = true});
    CHECK(json::parse(fake.said())["machine"]["price"]["per_hour"] == 1.0);
    fake.session.json = false;
    fake.world.types = {{"h100", 4, 4, 80'000'000'000, "USD", 2.5}};
    must_start(fake, {.name = "demo", .gpu = "h100:2", .offer = "small", .dry_run = true});
    CHECK(fake.said() ==
          "Would create 'demo' at provider local (machine: small, $0.25/h, $182.5 a month), with 2 x h100 from the "
          "pool at "
          "tcp://127.0.0.1:14900 (GPU: $5/h while it is used). Nothing was changed.\n");
    CHECK(fake.world.machines.empty());
    CHECK_FALSE(*fake.session.records().find("demo"));
}

TEST_CASE("a pool on loopback is out of reach for a machine elsewhere, any other address is kept", "[cli][start]") {
    const std::string elsewhere, local = "10.0.2.2";
    CHECK(*cli::pool_address_for(elsewhere, "tcp://gpu.example:14900") == "tcp://gpu.example:14900");
    CHECK(*cli::pool_address_for(local, "tcp://gpu.example:14900") == "tcp://gpu.example:14900");
    CHECK(*cli::pool_address_for(local, "tcp://localhost:5") == "tcp://10.0.2.2:5");
    CHECK_FALSE(cli::pool_address_for(elsewhere, "tcp://127.0.0.1:14900"));
}

TEST_CASE("a size and an image are checked before anything is made", "[cli][start]") {
    test::FakeSession fake;
    for (bool dry_run : {false, true}) {
        auto refused = cli::start(fake.session, {.name = "demo", .gpu = "h100", .offer = "huge", .dry_run = dry_run});
        REQUIRE_FALSE(refused);
        CHECK(refused.error().what == "there is no size 'huge'");
    }
    CHECK(fake.world.enrolled.empty());
    CHECK_FALSE(*fake.session.records().find("demo"));
}

TEST_CASE("a start that continues orders the size and the image that were asked for", "[cli][start]") {
    test::FakeSession fake;
    test::write_text(fake.folder / "disk.img", "a disk");
    fake.world.fails_at = "create";
    REQUIRE_FALSE(
        cli::start(fake.session, {.name = "demo", .gpu = "h100", .offer = "large", .image = fake.folder / "disk.img"}));
    must_start(fake, {.name = "demo"});
    CHECK(fake.world.last_order.offer == "large");
    CHECK(fake.world.last_order.image == fake.folder / "disk.img");
    fake.world.machines.clear();  // made anew, as before
    must_start(fake, {.name = "demo"});
    CHECK(fake.world.last_order.offer == "large");
}

TEST_CASE("the place of a machine is remembered, and kept by one that exists", "[cli][start]") {
    test::FakeSession fake;
    fake.world.fails_at = "create";
    REQUIRE_FALSE(cli::start(fake.session, {.name = "demo", .gpu = "h100", .region = "far"}));
    must_start(fake, {.name = "demo", .no_wait = true});
    CHECK(fake.world.last_order.region == "far");
    CHECK(fake.said().find("'demo' is starting (machine: $0.25/h); `tnr start demo` waits") == 0);
    CHECK(fake.world.installs == 0);
    must_start(fake, {.name = "demo", .region = "far"});
    auto other = cli::start(fake.session, {.name = "demo", .region = "near"});
    REQUIRE_FALSE(other);
    CHECK(other.error().what == "'demo' exists and was made with the region 'far'");
}

TEST_CASE("a start that goes on at another provider forgets the words of the first", "[cli][start]") {
    test::FakeSession fake;
    fake.session.provider = [&](const std::string&) -> Result<std::unique_ptr<Provider>> {
        return std::unique_ptr<Provider>(std::make_unique<test::FakeProvider>(fake.world));
    };
    fake.world.fails_at = "create";
    REQUIRE_FALSE(cli::start(fake.session,
                             {.name = "demo", .gpu = "h100", .provider = "cloud", .offer = "medium", .region = "far"}));
    must_start(fake, {.name = "demo", .provider = "local"});
    CHECK(fake.world.last_order.offer == "");
    CHECK(fake.world.last_order.region == "");
}

TEST_CASE("a machine that exists keeps its size and image, and start says so", "[cli][start]") {
    test::FakeSession fake;
    must_start(fake, {.name = "demo", .gpu = "h100"});
    must_start(fake, {.name = "demo", .offer = "small"});  // the default by its name
    auto other = cli::start(fake.session, {.name = "demo", .offer = "large"});
    REQUIRE_FALSE(other);
    CHECK(other.error().kind == Error::Kind::usage);
    CHECK(other.error().what == "'demo' exists and was made with the size 'small'");
    CHECK(other.error().hint.find("`tnr delete demo`") != std::string::npos);
    // What exists is told with what it costs, though nothing was done.
    CHECK(other.error().hint.find("the machine 'demo' exists at provider local ($0.25/h): ") != std::string::npos);
    auto image = cli::start(fake.session, {.name = "demo", .image = "other.img"});
    REQUIRE_FALSE(image);
    CHECK(image.error().what == "'demo' exists and was made without --image");
    CHECK(record_of(fake).size != "large");
    must_start(fake, {.name = "demo"});
}

TEST_CASE("what a start could not write down at one step it writes down at the next", "[cli][start][history]") {
    test::FakeSession fake;
    int minutes = 0;
    fake.session.now = [&] { return "2026-01-02T03:" + std::to_string(10 + minutes) + ":00Z"; };
    const std::string history = fake.session.state_folder + "/history.jsonl";
    std::filesystem::create_directories(history);  // in its place, while the machine is ordered
    fake.session.access = [&]() -> std::unique_ptr<cli::MachineAccess> {
        std::filesystem::remove(history);
        minutes = 7;
        return std::make_unique<test::FakeAccess>(fake.world);
    };
    REQUIRE(fake.tnr({"start", "demo", "--gpu", "h100"}) == 0);
    auto seen = fake.session.history().all()->sightings;
    REQUIRE(seen.size() == 2);
    CHECK(seen[0].at == "2026-01-02T03:10:00Z");
    CHECK(seen[0].state == MachineState::starting);
    CHECK(seen[1].at == "2026-01-02T03:17:00Z");
    CHECK(seen[1].state == MachineState::running);
}
