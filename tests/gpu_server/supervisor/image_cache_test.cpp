// The files of the cache of code images: whose they are, which go first, and what a crash leaves.
#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "gpu_server/supervisor/image_cache.hpp"
#include "server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;
namespace fs = std::filesystem;

static wire::ImageHash hash_number(int number) {
    wire::ImageHash hash{};
    hash[0] = static_cast<std::byte>(number);
    return hash;
}

static const std::string alice = image_tenant("alice", ""), bob = image_tenant("bob", "");
static constexpr uint64_t image_bytes = 1000;

struct Cache {
    tnr::test::Folder folder;
    ImageCacheLimits limits{.bytes = 10'000, .tenant_bytes = 5'000, .tenant_images = 100, .disk_bytes_free = 0};
    std::optional<ImageCache> cache;

    Cache() { open(); }
    void open() {
        auto opened = ImageCache::open(path(), limits);
        REQUIRE(opened);
        cache.emplace(std::move(*opened));
    }
    fs::path path() const { return folder.path + "/images"; }
    fs::path file(const std::string& tenant, int number) const {
        return path() / tenant / wire::to_hex(hash_number(number));
    }
    // As the helper process would.
    bool store(const std::string& tenant, int number, uint64_t bytes = image_bytes) {
        auto target = cache->begin(tenant, hash_number(number), bytes);
        if (target.empty()) return false;
        std::ofstream(target) << std::string(bytes, 'x');
        fs::rename(target, file(tenant, number));
        cache->end(tenant, hash_number(number), bytes, true);
        return true;
    }
    bool has(const std::string& tenant, int number, uint64_t bytes = image_bytes) {
        return static_cast<bool>(cache->find(tenant, hash_number(number), bytes));
    }
    // The order of use is the files' times; these are seconds since 1970.
    void set_used(const std::string& tenant, int number, time_t when) const {
        const timespec times[] = {{when, 0}, {when, 0}};
        REQUIRE(utimensat(AT_FDCWD, file(tenant, number).c_str(), times, 0) == 0);
    }
};

TEST_CASE("an image is found by its tenant alone, and only in its full length", "[images]") {
    Cache world;
    CHECK_FALSE(world.has(alice, 1));
    REQUIRE(world.store(alice, 1));
    CHECK(world.has(alice, 1));
    CHECK_FALSE(world.has(bob, 1));
    CHECK_FALSE(world.has(image_tenant("", "alice"), 1));
    CHECK_FALSE(world.has(alice, 2));
    CHECK_FALSE(world.has(alice, 1, image_bytes + 1));
    CHECK_FALSE(world.has("", 1));

    auto file = world.cache->find(alice, hash_number(1), image_bytes);
    CHECK((fcntl(file.get(), F_GETFL) & O_ACCMODE) == O_RDONLY);
    struct stat folder {};
    REQUIRE(stat((world.path() / alice).c_str(), &folder) == 0);
    CHECK((folder.st_mode & 0777) == 0700);
}

TEST_CASE("a tenant's name is fit for a folder, and nobody can take another's", "[images]") {
    CHECK(image_tenant("alice", "trainer") == image_tenant("alice", "notebook"));
    CHECK(image_tenant("", "alice") != image_tenant("alice", ""));
    CHECK(image_tenant("", "").empty());
    CHECK(image_tenant("../bob", "x").empty());
    CHECK(image_tenant("", "a/b").empty());
    CHECK(fs::path(image_tenant("", "..")).filename() == image_tenant("", ".."));
    CHECK(image_tenant("", "..") != "..");
    CHECK(account_of_tenant(alice) == "alice");
    CHECK(account_of_tenant(image_tenant("", "alice")).empty());
}

TEST_CASE("a tenant that is full loses what it used longest ago, and nobody else does", "[images]") {
    Cache world;
    REQUIRE(world.store(bob, 1));
    for (int number = 1; number <= 5; ++number) REQUIRE(world.store(alice, number));
    CHECK(world.has(alice, 1));  // used: 2 is the oldest now
    REQUIRE(world.store(alice, 6));
    CHECK(world.has(alice, 1));
    CHECK_FALSE(world.has(alice, 2));
    CHECK_FALSE(fs::exists(world.file(alice, 2)));
    CHECK(world.has(alice, 6));
    CHECK(world.has(bob, 1));
    CHECK(world.cache->bytes() == 6 * image_bytes);
}

TEST_CASE("a full cache loses what anybody used longest ago", "[images]") {
    Cache world;
    REQUIRE(world.store(bob, 1));
    for (auto& tenant : {alice, image_tenant("carol", "")})
        for (int number = 1; number <= 5; ++number) world.store(tenant, number);
    CHECK_FALSE(world.has(bob, 1));
    CHECK(world.cache->bytes() == 10 * image_bytes);
}

TEST_CASE("what can never have room is not begun, and drops nothing", "[images]") {
    Cache world;
    REQUIRE(world.store(alice, 1));
    CHECK_FALSE(world.store(alice, 2, 5'001));
    CHECK(world.has(alice, 1));
    world.limits.disk_bytes_free = uint64_t{1} << 60;
    world.open();
    CHECK_FALSE(world.store(alice, 2));
}

TEST_CASE("room that was made is held until the image is there, and given back if it never comes", "[images]") {
    Cache world;
    for (int number = 1; number <= 5; ++number)
        REQUIRE_FALSE(world.cache->begin(alice, hash_number(number), image_bytes).empty());
    CHECK(world.cache->begin(alice, hash_number(6), image_bytes).empty());
    world.cache->end(alice, hash_number(1), image_bytes, false);
    CHECK_FALSE(world.has(alice, 1));
    CHECK(world.store(alice, 6));
}

TEST_CASE("the number of a tenant's images is limited, too", "[images]") {
    Cache world;
    world.limits.tenant_images = 2;
    world.open();
    for (int number = 1; number <= 3; ++number) REQUIRE(world.store(alice, number, 1));
    CHECK_FALSE(world.has(alice, 1, 1));
    CHECK(world.has(alice, 3, 1));
}

TEST_CASE("images survive a restart with their order of use; what a crash left does not", "[images]") {
    Cache world;
    for (int number = 1; number <= 5; ++number) REQUIRE(world.store(alice, number));
    for (int number = 1; number <= 5; ++number) world.set_used(alice, number, 1'000'000 - number);
    auto unfinished = world.file(alice, 7).string() + ".new", stray = (world.path() / alice / "stray").string();
    std::ofstream(unfinished) << "half";
    std::ofstream(stray) << "what is this";
    fs::create_symlink("/etc/passwd", world.file(alice, 8));
    world.open();
    CHECK_FALSE(fs::exists(unfinished));
    CHECK_FALSE(fs::exists(stray));
    CHECK_FALSE(fs::is_symlink(world.file(alice, 8)));
    CHECK(fs::exists("/etc/passwd"));
    CHECK(world.cache->bytes() == 5 * image_bytes);
    REQUIRE(world.store(alice, 6));
    CHECK_FALSE(world.has(alice, 5));
    CHECK(world.has(alice, 1));
    SECTION("a smaller limit is kept at once") {
        world.limits.bytes = 2'000;
        world.open();
        CHECK(world.cache->bytes() == 2 * image_bytes);
        CHECK(world.has(alice, 6));
    }
    SECTION("none at all empties it") {
        world.limits.bytes = 0;
        world.open();
        CHECK_FALSE(fs::exists(world.path()));
        CHECK_FALSE(world.store(alice, 1));
    }
}

TEST_CASE("files that an operator removed or a power cut has cut short are not there", "[images]") {
    Cache world;
    REQUIRE(world.store(alice, 1));
    REQUIRE(world.store(alice, 2));
    fs::remove(world.file(alice, 1));
    fs::resize_file(world.file(alice, 2), 10);
    CHECK_FALSE(world.has(alice, 1));
    CHECK_FALSE(world.has(alice, 2));
    CHECK(world.cache->bytes() == 0);
    CHECK(world.store(alice, 1));
    CHECK(world.has(alice, 1));
    fs::remove_all(world.path() / alice);
    CHECK(world.store(alice, 2));
}

TEST_CASE("a tenant's images go with it, and unused ones after a time", "[images]") {
    Cache world;
    REQUIRE(world.store(alice, 1));
    REQUIRE(world.store(bob, 1));
    REQUIRE(world.store(bob, 2));
    world.set_used(bob, 2, time(nullptr) - 3 * 3600);
    world.open();
    SECTION("forgotten") {
        world.cache->forget(alice);
        CHECK_FALSE(fs::exists(world.path() / alice));
        CHECK(world.has(bob, 1));
    }
    SECTION("not known any more") {
        world.cache->tidy([&](const std::string& tenant) { return tenant == bob; }, std::chrono::hours(24));
        CHECK_FALSE(fs::exists(world.path() / alice));
        CHECK(world.has(bob, 2));
    }
    SECTION("not used") {
        world.cache->tidy([](const std::string&) { return true; }, std::chrono::hours(2));
        CHECK(world.has(alice, 1));
        CHECK(world.has(bob, 1));
        CHECK_FALSE(world.has(bob, 2));
    }
    SECTION("while one is being written") {
        auto target = world.cache->begin(alice, hash_number(2), image_bytes);
        REQUIRE_FALSE(target.empty());
        std::ofstream(target) << "half";
        world.cache->forget(alice);
        CHECK_FALSE(world.has(alice, 1));
        world.cache->end(alice, hash_number(2), image_bytes, false);
        CHECK(world.cache->bytes() == 2 * image_bytes);
    }
}
