// Where a program remembers that its pool has a new key: in the machine's file if it may, else in one of its user's own.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "api_client/base/files.hpp"
#include "gpu_client/protocol/gpu_config.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;

TEST_CASE("a pool's new key is remembered for the next program", "[config]") {
    std::string name = (std::filesystem::temp_directory_path() / "tnr-config-XXXXXX").string();
    const std::string folder = mkdtemp(name.data()), path = folder + "/gpu.json";
    const auto old = wire::make_key_pair().public_key, second = wire::make_key_pair().public_key,
               third = wire::make_key_pair().public_key;
    setenv("TNR_CONFIG", path.c_str(), 1);
    setenv("XDG_STATE_HOME", (folder + "/state").c_str(), 1);
    GpuConfig config{"tcp://gpu.example:14900", "h100", 1, "trainer", {old, wire::make_key_pair()}};
    REQUIRE(write_file(path, to_json_text(config), 0644));
    auto known = [] { return load_gpu_config()->keys.server_public; };
    auto in_file = [&] { return parse_gpu_config(*read_file(path))->keys.server_public; };
    CHECK(known() == old);
    SECTION("in the file itself, which stays as it was otherwise") {
        remember_pool_key(old, second);
        CHECK(in_file() == second);
        CHECK(known() == second);
        CHECK(load_gpu_config()->keys.own.secret_key == config.keys.own.secret_key);
        struct stat status {};
        REQUIRE(stat(path.c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0644);
    }
    SECTION("elsewhere, where the file is not ours to change: it names another key, as if another had written it") {
        remember_pool_key(second, third);
        CHECK(known() == old);
        CHECK(in_file() == old);
        REQUIRE(write_file(
            path, to_json_text({"tcp://gpu.example:14900", "h100", 1, "trainer", {second, config.keys.own}}), 0644));
        CHECK(known() == third);
    }
    SECTION("a file of nonsense is no file, and keys that name each other come to an end") {
        remember_pool_key(second, third);
        remember_pool_key(third, second);
        REQUIRE(write_file(
            path, to_json_text({"tcp://gpu.example:14900", "h100", 1, "trainer", {second, config.keys.own}}), 0644));
        auto now = known();
        CHECK((now == second || now == third));
        REQUIRE(write_file(folder + "/state/tnr/pool_keys.json", "[1", 0600));
        CHECK(known() == second);
    }
    unsetenv("TNR_CONFIG");
    unsetenv("XDG_STATE_HOME");
    std::filesystem::remove_all(folder);
}
