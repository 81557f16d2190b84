// The seed, read back by tools that nobody here wrote (mtools, dosfstools, blkid).
#include "api_client/providers/local/seed.hpp"

#include "tests/support/catch.hpp"

#include "api_client/providers/local/child.hpp"
#include "world.hpp"

using namespace tnr;
using namespace tnr::local;
using namespace tnr::test;

namespace {

std::string said(const std::vector<std::string>& argv, int expected_code = 0) {
    auto finished = run({.argv = argv});
    REQUIRE(finished);
    INFO(argv[0] << ": " << finished->output);
    REQUIRE(finished->exit_code == expected_code);
    return finished->output;
}

}  // namespace

TEST_CASE("cloud-init finds its two files on the seed", "[seed]") {
    const TemporaryFolder folder;
    // Sizes around a sector's, and one that takes hundreds of them.
    for (size_t size : {size_t{0}, size_t{1}, size_t{511}, size_t{512}, size_t{513}, size_t{300'000}}) {
        std::string user_data;
        while (user_data.size() < size) user_data += "line " + std::to_string(user_data.size()) + "\n";
        user_data.resize(size);
        auto seed = seed_image("demo", "demo-17", user_data);
        REQUIRE(seed);
        const std::string path = folder / "seed.img";
        test::write_text(path, *seed);

        CHECK(said({"mtype", "-i", path, "::meta-data"}) == "instance-id: demo-17\nlocal-hostname: demo\n");
        said({"mcopy", "-n", "-o", "-i", path, "::user-data", folder / "copy"});
        CHECK(test::read_text(folder / "copy") == user_data);
        said({"fsck.vfat", "-n", path});
        CHECK(said({"blkid", "-p", "-o", "value", "-s", "LABEL", path}) == "CIDATA\n");
        CHECK(said({"blkid", "-p", "-o", "value", "-s", "TYPE", path}) == "vfat\n");
    }
}

TEST_CASE("the largest user data fits, and more is refused", "[seed]") {
    CHECK(seed_image("demo", "demo-17", std::string(user_data_bytes_max, 'x')));
    auto refused = seed_image("demo", "demo-17", std::string(user_data_bytes_max + 1, 'x'));
    REQUIRE(!refused);
    CHECK(refused.error().kind == Error::Kind::usage);
}
