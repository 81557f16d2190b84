// Records survive a round trip, are private, and a name cannot lead out of their folder.
#include <sys/stat.h>

#include <filesystem>
#include "tests/support/catch.hpp"

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

TEST_CASE("a machine's name is a host name", "[cli][records]") {
    for (std::string good : {"a", "demo", "gpu-7", "a1"}) CHECK(cli::check_name(good));
    for (std::string bad : {"", "-a", "a-", "7a", "A", "a.b", "../a", "a/b", "a b", "ä"})
        CHECK_FALSE(cli::check_name(bad));
    CHECK(cli::check_name(std::string(63, 'a')));
    CHECK_FALSE(cli::check_name(std::string(64, 'a')));
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
