// Records survive a round trip, are private, and a name cannot lead out of their folder.
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include "tests/support/catch.hpp"

#include "cli/logins.hpp"
#include "cli/records.hpp"
#include "tests/cli/sshd.hpp"

using namespace tnr;

TEST_CASE("a record comes back as it was saved, and only its owner can read it", "[cli][records]") {
    test::TemporaryFolder folder;
    cli::Records records{folder / "machines"};
    cli::Record record{"demo", "local",  "i-1",          "h100", 2, "tcp://h:1", cli::Step::installed,
                       "host", "secret", {"pub", "sec"}, "then"};
    REQUIRE(records.save(record));
    auto found = records.find("demo");
    REQUIRE(found);
    REQUIRE(*found);
    CHECK((*found)->step == cli::Step::installed);
    CHECK((*found)->count == 2);
    CHECK((*found)->machine_key.secret_key == "sec");
    struct stat file {};
    REQUIRE(::stat((folder / "machines/demo.json").c_str(), &file) == 0);
    CHECK((file.st_mode & 0777) == 0600);
    REQUIRE(records.remove("demo"));
    CHECK_FALSE(*records.find("demo"));
    CHECK(records.remove("demo"));
}

TEST_CASE("what a newer tnr has added to a record survives an older one that changes it", "[cli][records]") {
    test::TemporaryFolder folder;
    cli::Records records{folder / "machines"};
    cli::Record record;
    record.name = "demo";
    record.gpu = "h100";
    REQUIRE(records.save(record));
    const std::string file = folder / "machines/demo.json";
    auto newer = nlohmann::json::parse(test::read_text(file));
    newer["of_tomorrow"] = {{"a", 1}};
    test::write_text(file, newer.dump());
    record.gpu = "a100";
    REQUIRE(records.save(record));
    newer["gpu"] = "a100";
    CHECK(nlohmann::json::parse(test::read_text(file)) == newer);

    REQUIRE(records.remove("demo"));
    REQUIRE(records.save(record));
    CHECK_FALSE(nlohmann::json::parse(test::read_text(file)).contains("of_tomorrow"));
    test::write_text(file, "damaged");
    REQUIRE(records.save(record));
    CHECK(*records.find("demo"));
}

TEST_CASE("a lock is held by one at a time and ends with its holder", "[cli][records]") {
    test::TemporaryFolder folder;
    cli::Records records{folder / "machines"};
    {
        auto first = records.lock("demo");
        REQUIRE(first);
        CHECK_FALSE(records.lock("demo"));
        CHECK(records.lock("other"));
    }
    CHECK(records.lock("demo"));
    CHECK(std::filesystem::is_empty(folder / "machines"));  // nothing stays of a name that was only asked for
}

TEST_CASE("a record that says what cannot be is damaged, not guessed at", "[cli][records]") {
    test::TemporaryFolder folder;
    cli::Records records{folder / "machines"};
    cli::Record record{"demo", "local",  "i-1",          "h100", 2, "tcp://h:1", cli::Step::ordered,
                       "host", "secret", {"pub", "sec"}, "then"};
    auto damaged = [&](const std::string& before, const std::string& after) {
        REQUIRE(records.save(record));
        std::string text = test::read_text(folder / "machines/demo.json");
        REQUIRE(text.find(before) != std::string::npos);
        test::write_text(folder / "machines/demo.json", text.replace(text.find(before), before.size(), after));
        auto found = records.find("demo");
        return !found && found.error().hint.find("tnr delete demo") != std::string::npos;
    };
    CHECK_FALSE(damaged("h100", "a100"));
    CHECK(damaged("\"ordered\"", "\"paid\""));  // a machine may exist: it must not look like one that was never made
    CHECK(records.find("demo").error().hint.starts_with("where a newer tnr has written it, use that one; otherwise "));
    CHECK(damaged("\"demo\"", "\"../demo\""));
    CHECK(damaged("\"count\": 2", "\"count\": 1e300"));
    CHECK(damaged("\"count\": 2", "\"count\": 0"));
    CHECK(damaged("\"id\"", "\"di\""));
    CHECK(damaged("{", "["));
    test::write_text(folder / "machines/two words.json", "x");
    CHECK(records.find("two words").error().hint ==
          "it is no machine's: remove " + (folder / "machines/two words.json"));
}

TEST_CASE("pool.json with keys or addresses that are none is damaged", "[cli][records]") {
    auto file = [&](const std::string& address, const std::string& secret) {
        return "{\"pools\": [{\"address\": \"" + address + "\", \"server_key\": \"" + std::string(40, 'a') +
               "\", \"client_key\": {\"public\": \"" + std::string(40, 'b') + "\", \"secret\": \"" + secret + "\"}}]}";
    };
    CHECK(cli::parse_logins(file("tcp://h:1", std::string(40, 'c'))));
    CHECK_FALSE(cli::parse_logins(file("tcp://h:1", "short")));
    CHECK_FALSE(cli::parse_logins(file("h:1", std::string(40, 'c'))));
    CHECK_FALSE(cli::parse_logins(file("tcp://h h:1", std::string(40, 'c'))));
    CHECK_FALSE(cli::parse_logins("{\"pools\": 7}"));
}
