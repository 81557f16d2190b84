// `tnr delete`, above all: nothing that exists is ever forgotten.
#include "cli/commands/delete.hpp"

#include <sys/stat.h>

#include <filesystem>

#include "cli/commands/status.hpp"
#include "cli/commands/stop.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("a machine deleted behind our back is told apart from one that never was", "[cli]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.world.machines.clear();
    auto gone = cli::stop(fake.session, {{"demo"}});
    REQUIRE_FALSE(gone);
    CHECK(gone.error().what.find("deleted outside tnr") != std::string::npos);
    auto never = cli::stop(fake.session, {{"other"}});
    REQUIRE_FALSE(never);
    CHECK(never.error().what == "there is no machine called 'other'");

    REQUIRE(cli::status(fake.session));
    CHECK(fake.said().find("gone") != std::string::npos);
    REQUIRE(cli::delete_machines(fake.session, {.names = {"demo"}}));  // nothing left to lose: no question
    CHECK(fake.said().find("already gone") != std::string::npos);
    CHECK(fake.world.destroyed == std::vector<std::string>{"i-1"});  // it may have left something behind
    CHECK_FALSE(*fake.session.records().find("demo"));
    CHECK(fake.world.enrolled.empty());
}

TEST_CASE("delete removes a machine whose provider has lost track of it, but forgets none it could not ask about",
          "[cli]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.world.machine_error = Error{Error::Kind::network, "the cloud does not answer"};
    REQUIRE_FALSE(cli::delete_machines(fake.session, {.names = {"demo"}, .yes = true}));
    CHECK(fake.world.machines.size() == 1);
    CHECK(*fake.session.records().find("demo"));
    fake.world.machine_error = Error{Error::Kind::internal, "the record of 'demo' is damaged"};
    REQUIRE(cli::delete_machines(fake.session, {.names = {"demo"}, .yes = true}));
    CHECK(fake.world.machines.empty());
    CHECK_FALSE(*fake.session.records().find("demo"));
}

TEST_CASE("delete asks on a terminal, wants --yes in a script, and removes machine, key and record", "[cli]") {
    test::FakeSession fake;
    fake.start_demo();
    auto refused = cli::delete_machines(fake.session, {.names = {"demo"}});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().hint.find("--yes") != std::string::npos);
    CHECK(fake.world.machines.size() == 1);

    fake.session.in_is_terminal = true;
    fake.in.str("n\n");
    REQUIRE(cli::delete_machines(fake.session, {.names = {"demo"}}));
    CHECK(fake.session.exit_code == 1);
    CHECK(fake.world.machines.size() == 1);
    fake.in.clear();
    fake.in.str("y\n");
    REQUIRE(cli::delete_machines(fake.session, {.names = {"demo"}}));
    CHECK(fake.world.machines.empty());
    CHECK(fake.world.enrolled.empty());
    CHECK_FALSE(*fake.session.records().find("demo"));
}

TEST_CASE("delete removes the machine even when the pool is out of reach, and says what is left", "[cli]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.world.pool_reachable = false;
    REQUIRE(cli::delete_machines(fake.session, {.names = {"demo"}, .yes = true}));
    CHECK(fake.world.machines.empty());
    CHECK(fake.err.str().find("still knows the key") != std::string::npos);
}

TEST_CASE("delete removes a machine whose record is lost or damaged", "[cli]") {
    for (bool damaged : {false, true}) {
        test::FakeSession fake;
        fake.start_demo();
        REQUIRE(fake.session.records().remove("demo"));
        if (damaged) test::write_text(fake.session.state_folder + "/machines/demo.json", "{\"name\": ");
        REQUIRE(cli::delete_machines(fake.session, {.names = {"demo"}, .yes = true}));
        CHECK(fake.world.machines.empty());
        CHECK_FALSE(fake.session.records().exists("demo"));
    }
}

TEST_CASE("delete of a machine whose record is a pipe or a folder leaves nothing that is not named", "[cli][delete]") {
    test::FakeSession fake;
    fake.start_demo();
    const std::string path = fake.session.state_folder + "/machines/demo.json";
    REQUIRE(fake.session.records().remove("demo"));
    SECTION("a pipe goes with it") {
        REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
        auto document = fake.document({"delete", "demo", "--yes"});
        CHECK(document["errors"].empty());
        CHECK(document["machines"][0]["deleted"] == true);
        CHECK(fake.err.str().find("it is a pipe") != std::string::npos);
        CHECK_FALSE(fake.session.records().exists("demo"));
        CHECK(fake.world.enrolled.empty());
    }
    SECTION("a folder stays, and is named") {
        std::filesystem::create_directory(path);
        CHECK(fake.tnr({"delete", "demo", "--yes"}) == 1);
        CHECK(fake.out.str().starts_with("Deleted 'demo' and its disk"));
        CHECK(fake.err.str().find("cannot remove " + path) != std::string::npos);
    }
    SECTION("the pool that could not be asked is named") {
        REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
        fake.world.pool_reachable = false;
        CHECK(fake.tnr({"delete", "demo", "--yes"}) == 0);
        CHECK(fake.err.str().find("which pool knows the key of 'demo'") != std::string::npos);
    }
    CHECK(fake.world.machines.empty());
}

TEST_CASE("a damaged record stays while its machine may be where nobody was asked", "[cli][delete]") {
    test::FakeSession fake;
    REQUIRE(write_file(fake.session.state_folder + "/machines/demo.json", "{}"));
    fake.session.provider_names = {"local", "red"};
    fake.session.provider = [&, usual = fake.session.provider](const std::string& name) {
        if (name != "red") return usual(name);
        return Result<std::unique_ptr<Provider>>{Error{Error::Kind::auth, "sign in to red first"}};
    };
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"delete", "demo", "--yes"}, {"delete", "demo", "--dry-run"}}) {
        CHECK(fake.tnr(words) == 1);
        CHECK(fake.err.str().find("may be at a provider that was not asked") != std::string::npos);
        CHECK(fake.err.str().find("not signed in there: red") != std::string::npos);
        CHECK(fake.session.records().exists("demo"));
    }
    CHECK(fake.tnr({"delete", "demo", "--yes", "--provider", "local"}) == 0);
    CHECK_FALSE(fake.session.records().exists("demo"));
}

// Its owner, without the record, began to start it again and found the name taken; or works on another laptop.
TEST_CASE("delete asks the provider, whatever the record says or does not", "[cli][delete]") {
    test::FakeSession fake;
    fake.start_demo();
    auto record = **fake.session.records().find("demo");
    SECTION("the record says that nothing was ordered") {
        record.step = cli::Step::enrolled;
        record.id.clear();
    }
    SECTION("the record is of an earlier machine") {
        record.id = "i-0";
    }
    REQUIRE(fake.session.records().save(record));
    fake.world.machines.at("i-1").state = GENERATE(MachineState::stopped, MachineState::running);
    fake.session.in_is_terminal = true;
    fake.in.str("y\n");
    REQUIRE(fake.tnr({"delete", "demo"}) == 0);
    CHECK(fake.err.str().find("made by another computer, or its record was lost") != std::string::npos);
    CHECK(fake.world.machines.empty());
    CHECK(fake.out.str() == "Deleted 'demo' and its disk\n");
}

TEST_CASE("start does not take the name, nor the key at the pool, of a machine that it has no record of",
          "[cli][delete]") {
    test::FakeSession fake;
    fake.start_demo();
    auto key = fake.world.enrolled["demo"];
    REQUIRE(fake.session.records().remove("demo"));
    CHECK(fake.tnr({"start", "demo", "--gpu", "h100"}) == 2);
    CHECK(fake.err.str().find("`tnr delete demo`") != std::string::npos);
    CHECK(fake.world.enrolled["demo"] == key);
    REQUIRE(fake.tnr({"delete", "demo", "--yes"}) == 0);
    CHECK(fake.world.machines.empty());
    CHECK(fake.world.enrolled.empty());
}

TEST_CASE("without a record every provider is asked, and one that does not answer is no proof", "[cli][delete]") {
    test::FakeSession fake;
    fake.start_demo();
    REQUIRE(fake.session.records().remove("demo"));
    fake.world.machine_error = Error{Error::Kind::network, "the cloud does not answer"};
    CHECK(fake.tnr({"delete", "demo", "--yes"}) == 1);
    CHECK(fake.err.str().find("the cloud does not answer") != std::string::npos);
    CHECK(fake.world.machines.size() == 1);
}

TEST_CASE("a user who says no has done nothing wrong, and several names are asked about once", "[cli][delete]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.start_demo("other");
    fake.session.in_is_terminal = true;
    fake.in.str("n\n");
    CHECK(fake.tnr({"delete", "demo", "other"}) == 1);
    CHECK(fake.err.str() == "Delete 'demo', 'other' and all that is on their disks? [y/N] Nothing was deleted\n");
    CHECK(fake.world.machines.size() == 2);
    fake.in.clear();
    fake.in.str("y\n");
    CHECK(fake.tnr({"delete", "demo", "other"}) == 0);
    CHECK(fake.world.machines.empty());
}

namespace {
// Who sits at the terminal presses Ctrl-C instead of an answer.
struct CtrlC : std::streambuf {
    int underflow() override {
        interrupt::raise_for_test();
        return traits_type::eof();
    }
};
}  // namespace

TEST_CASE("Ctrl-C at the question ends delete as an interrupted command", "[cli][delete]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.session.in_is_terminal = true;
    CtrlC pressed;
    static_cast<std::ios&>(fake.in).rdbuf(&pressed);
    CHECK(fake.tnr({"delete", "demo"}) == 130);
    interrupt::clear_for_test();
    CHECK(fake.err.str().starts_with("Delete 'demo' and all that is on its disk? [y/N] \n"));
    CHECK(fake.world.machines.size() == 1);
}

TEST_CASE("delete tells what the machine has cost, which is remembered without it", "[cli][delete]") {
    test::FakeSession fake;
    fake.start_demo();
    fake.session.now = [] { return "2026-01-02T09:04:05Z"; };
    REQUIRE(fake.tnr({"delete", "demo", "--yes"}) == 0);
    CHECK(fake.out.str() == "Deleted 'demo' and its disk; it has cost $1.50 in 6 h\n");
    auto seen = fake.session.history().all()->sightings;
    CHECK(seen.back().state == MachineState::gone);
    CHECK(seen.back().gpu == "h100");
}

// Ordered on another computer, or by a start that was killed and whose record is lost.
TEST_CASE("delete finds the key and the firewall of a machine that nobody has a record of", "[cli][delete]") {
    test::FakeSession fake;
    auto& left = fake.world.leftovers;
    left = {{"k-1", "SSH key tnr-demo"}, {"f-1", "firewall tnr-demo"}};
    SECTION("and removes them where it is told not to ask") {
        CHECK(fake.tnr({"delete", "demo", "--yes"}) == 0);
        CHECK(fake.out.str() ==
              "Removed what was left of 'demo': SSH key tnr-demo, firewall tnr-demo at provider local\n");
        CHECK(left.empty());
        CHECK(fake.tnr({"delete", "demo", "--yes"}) == 1);
        CHECK(fake.err.str().find("there is no machine called 'demo'") != std::string::npos);
    }
    SECTION("and asks before, for another computer may be about to make its machine") {
        CHECK(fake.tnr({"delete", "demo"}) == 2);
        CHECK(fake.err.str().find("delete what is left of 'demo': SSH key tnr-demo, ") != std::string::npos);
        fake.session.in_is_terminal = true;
        fake.in.str("n\n");
        CHECK(fake.tnr({"delete", "demo"}) == 1);
        CHECK(fake.err.str().find("firewall tnr-demo at provider local\nRemove that? [y/N]") != std::string::npos);
        CHECK(left.size() == 2);
    }
    SECTION("and changes nothing in a dry run") {
        CHECK(fake.tnr({"delete", "demo", "--dry-run"}) == 0);
        CHECK(fake.out.str().find("Would remove what is left of 'demo': SSH key tnr-demo") == 0);
        CHECK(left.size() == 2);
    }
    SECTION("and names them in its document") {
        auto document = fake.document({"delete", "demo", "--yes"});
        CHECK(document["machines"][0]["existed"] == false);
        CHECK(document["machines"][0]["deleted"] == true);
        CHECK(document["machines"][0]["leftovers"] == nlohmann::json({"SSH key tnr-demo", "firewall tnr-demo"}));
    }
    SECTION("and leaves those of a machine that exists to its provider") {
        fake.start_demo();
        CHECK(fake.tnr({"delete", "demo", "--yes"}) == 0);
        CHECK(fake.out.str().starts_with("Deleted 'demo' and its disk"));
        CHECK(left.size() == 2);
    }
}
