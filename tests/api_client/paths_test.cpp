// The XDG folders.
#include "api_client/base/paths.hpp"

#include <sys/stat.h>

#include "tests/support/catch.hpp"

#include "world.hpp"

using namespace tnr;
using namespace tnr::test;

namespace {

unsigned mode(const std::filesystem::path& path) {
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return status.st_mode & 0777;
}

}  // namespace

TEST_CASE("tnr's folders follow the XDG variables and are the owner's alone", "[paths]") {
    const TemporaryFolder home;
    const std::string config = home / "a/b/config";
    const Environment config_home("XDG_CONFIG_HOME", config.c_str());
    const Environment home_variable("HOME", home.path().c_str());

    SECTION("a variable that is set wins") {
        CHECK(config_dir() == config + "/tnr");
        CHECK(mode(config_dir()) == 0700);
        CHECK(mode(home / "a") == 0700);
    }
    SECTION("without one they are below the home") {
        const Environment state("XDG_STATE_HOME", nullptr), cache("XDG_CACHE_HOME", nullptr);
        CHECK(state_dir() == home / ".local/state/tnr");
        CHECK(cache_dir() == home / ".cache/tnr");
        CHECK(std::filesystem::is_directory(state_dir()));
        CHECK(mode(cache_dir()) == 0700);
    }
    SECTION("a relative value is ignored, as the specification wants it") {
        const Environment state("XDG_STATE_HOME", "somewhere");
        CHECK(state_dir() == home / ".local/state/tnr");
    }
    SECTION("a folder that is there keeps its mode") {
        std::filesystem::create_directories(config + "/tnr");
        ::chmod((config + "/tnr").c_str(), 0750);
        CHECK(mode(config_dir()) == 0750);
    }
    SECTION("one that cannot be made is still named") {
        test::write_text(home / "a", "a file where a folder should be");
        CHECK(config_dir() == config + "/tnr");
        CHECK(!std::filesystem::exists(config_dir()));
    }
}
