// Atomic writes and locks.
#include "api_client/base/files.hpp"
#include "api_client/providers/local/files.hpp"

#include <sys/stat.h>

#include <future>
#include "tests/support/catch.hpp"

#include "world.hpp"

using namespace tnr;
using namespace tnr::local;
using namespace tnr::test;

TEST_CASE("a file is written whole, private, and sparse", "[files]") {
    const TemporaryFolder folder;
    const std::string content = "begin" + std::string(1 << 20, '\0') + "end";
    REQUIRE(write_file(folder / "file", content));
    CHECK(test::read_text(folder / "file") == content);
    struct stat status {};
    ::stat((folder / "file").c_str(), &status);
    CHECK((status.st_mode & 0777) == 0600);
    CHECK(status.st_blocks * 512 < 100'000);
}

TEST_CASE("a file that cannot be written is an error that names it, and the old one stays", "[files]") {
    const TemporaryFolder folder;
    test::write_text(folder / "file", "old");
    auto result = write_file(folder / "file/below", "x");
    REQUIRE(!result);
    CHECK(result.error().what.find(folder / "file") != std::string::npos);
    CHECK(test::read_text(folder / "file") == "old");
}

TEST_CASE("a lock keeps others out until it is let go", "[files]") {
    const TemporaryFolder folder;
    auto first = lock_file(folder / "lock");
    REQUIRE(first);
    std::promise<void> waits;
    auto second = std::async(std::launch::async,
                             [&] { return static_cast<bool>(lock_file(folder / "lock", [&] { waits.set_value(); })); });
    waits.get_future().wait();
    SECTION("and then lets one in") {
        first->reset();
        CHECK(second.get());
    }
    SECTION("also when its file was removed with what it protected") {
        std::filesystem::remove(folder / "lock");
        first->reset();
        CHECK(second.get());
        CHECK(std::filesystem::exists(folder / "lock"));  // the second holds a lock others can see
    }
}
