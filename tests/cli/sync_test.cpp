// Copying trees over SFTP to and from a real sshd.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include "tests/support/catch.hpp"

#include "api_client/base/interrupt.hpp"
#include "cli/commands/sync.hpp"
#include "tests/cli/sshd.hpp"

using namespace tnr;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

struct World {
    test::Sshd sshd;
    std::unique_ptr<ssh::Client> client;
    std::unique_ptr<ssh::Sftp> sftp;
    test::TemporaryFolder here, there;

    World() {
        auto connected = ssh::Client::connect(sshd.target(), ssh::Clock::now() + 30s);
        if (!connected) FAIL(connected.error().what);
        client = std::move(*connected);
        auto opened = ssh::Sftp::open(*client);
        if (!opened) FAIL(opened.error().what);
        sftp = std::move(*opened);
    }
    Result<sync::Tally> copy(
        const std::string& from, const std::string& to, const sync::Watch& watch = [](auto&) {}) {
        return cli::sync_over(*sftp, {from, to}, watch);
    }
    sync::Tally copied(const std::string& from, const std::string& to) {
        auto tally = copy(from, to);
        if (!tally) FAIL(tally.error().what);
        return *tally;
    }
};

void age(const std::string& path, time_t mtime) {
    timespec times[2] = {{mtime, 0}, {mtime, 0}};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
}

struct stat look(const std::string& path) {
    struct stat found {};
    INFO(path);
    REQUIRE(::lstat(path.c_str(), &found) == 0);
    return found;
}

// Names with spaces and letters of all sorts, an empty file, a large one, links good and broken, modes and times.
void fill(const test::TemporaryFolder& folder) {
    fs::create_directories(folder / "tree/a b/ünïcode 日本");
    fs::create_directories(folder / "tree/empty");
    std::string large(3'000'001, 'x');
    for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 31 + i / 977);
    test::write_text(folder / "tree/large", large);
    test::write_text(folder / "tree/a b/ünïcode 日本/it's \"quoted\"", "content");
    test::write_text(folder / "tree/nothing", "");
    test::write_text(folder / "tree/program", "#!/bin/sh\n");
    REQUIRE(::chmod((folder / "tree/program").c_str(), 0755) == 0);
    test::write_text(folder / "tree/locked", "secret");
    REQUIRE(::chmod((folder / "tree/locked").c_str(), 0400) == 0);
    fs::create_symlink("a b", folder / "tree/link");
    fs::create_symlink("no such thing", folder / "tree/broken");
    age(folder / "tree/large", 1'000'000'000);
    age(folder / "tree/a b", 1'100'000'000);
}

void check_same(const std::string& one, const std::string& other) {
    for (const auto& entry : fs::recursive_directory_iterator(one)) {
        std::string path = entry.path().string().substr(one.size());
        struct stat left = look(one + path), right = look(other + path);
        INFO(path);
        CHECK(left.st_mode == right.st_mode);
        if (S_ISLNK(left.st_mode))
            CHECK(fs::read_symlink(one + path) == fs::read_symlink(other + path));
        else
            CHECK(left.st_mtime == right.st_mtime);
        if (S_ISREG(left.st_mode)) CHECK(test::read_text(one + path) == test::read_text(other + path));
    }
    auto count = [](const std::string& root) {
        return std::distance(fs::recursive_directory_iterator(root), fs::recursive_directory_iterator());
    };
    CHECK(count(one) == count(other));  // no temporary files were left either
}

}  // namespace

TEST_CASE("a tree goes up and comes down again with names, modes, times and links, and only once", "[sync]") {
    World world;
    fill(world.here);
    auto up = world.copied(world.here / "tree", "demo:" + (world.there / "deep/tree"));
    CHECK(up.files == 7);
    CHECK(up.bytes > 3'000'000);
    check_same(world.here / "tree", world.there / "deep/tree");

    auto again = world.copied(world.here / "tree", "demo:" + (world.there / "deep/tree"));
    CHECK(again.files == 0);
    CHECK(again.unchanged == 7);
    CHECK(again.bytes == 0);

    auto down = world.copied("demo:" + (world.there / "deep/tree"), world.here / "new/back");
    CHECK(down.files == 7);
    check_same(world.here / "tree", world.here / "new/back");
    CHECK(world.copied("demo:" + (world.there / "deep/tree"), world.here / "new/back").files == 0);
}

TEST_CASE("only what changed is sent, over what was there", "[sync]") {
    World world;
    fill(world.here);
    world.copied(world.here / "tree", "demo:" + world.there.path() + "/");
    test::write_text(world.here / "tree/program", "#!/bin/bash\n");
    REQUIRE(::chmod((world.here / "tree/large").c_str(), 0600) == 0);
    test::write_text(world.there / "tree/only there", "kept");
    auto tally = world.copied(world.here / "tree", "demo:" + world.there.path() + "/");
    CHECK(tally.files == 1);
    CHECK(test::read_text(world.there / "tree/program") == "#!/bin/bash\n");
    CHECK((look(world.there / "tree/large").st_mode & 0777) == 0600);
    CHECK(test::read_text(world.there / "tree/only there") == "kept");
}

TEST_CASE("a thousand small files keep the line busy instead of waiting for each answer", "[sync]") {
    World world;
    fs::create_directory(world.here / "many");
    for (int i = 0; i < 1000; ++i) test::write_text(world.here / ("many/" + std::to_string(i)), std::to_string(i));
    CHECK(world.copied(world.here / "many", "demo:" + (world.there / "many")).files == 1000);
    CHECK(world.copied("demo:" + (world.there / "many"), world.here / "back").files == 1000);
    check_same(world.here / "many", world.here / "back");
}

TEST_CASE("what is neither file, folder nor link is left out and counted", "[sync]") {
    World world;
    fill(world.here);
    REQUIRE(::mkfifo((world.here / "tree/pipe").c_str(), 0600) == 0);
    CHECK(world.copied(world.here / "tree", "demo:" + (world.there / "tree")).others == 1);
    REQUIRE(::mkfifo((world.there / "tree/other pipe").c_str(), 0600) == 0);
    CHECK(world.copied("demo:" + (world.there / "tree"), world.here / "back").others == 1);
}

TEST_CASE("an existing destination folder keeps its own mode", "[sync]") {
    World world;
    fill(world.here);
    REQUIRE(::chmod((world.here / "tree").c_str(), 0777) == 0);
    REQUIRE(::chmod(world.there.path().c_str(), 0700) == 0);
    world.copied((world.here / "tree") + "/", "demo:" + world.there.path());
    CHECK((look(world.there.path()).st_mode & 0777) == 0700);
}

TEST_CASE("what cannot be copied says which place and why", "[sync]") {
    World world;
    fill(world.here);
    auto missing = world.copy("demo:" + (world.there / "no such"), world.here.path());
    REQUIRE_FALSE(missing);
    CHECK(missing.error().kind == Error::Kind::not_found);
    CHECK(missing.error().what.find("demo:" + (world.there / "no such")) != std::string::npos);

    fs::create_directories(world.there / "tree/program");
    auto clash = world.copy(world.here / "tree", "demo:" + (world.there / "tree"));
    REQUIRE_FALSE(clash);
    CHECK(clash.error().what.find("is a folder there") != std::string::npos);

    if (::geteuid() == 0) return;  // root is denied nothing
    REQUIRE(::chmod(world.there.path().c_str(), 0500) == 0);
    auto denied = world.copy(world.here / "tree", "demo:" + (world.there / "other"));
    REQUIRE(::chmod(world.there.path().c_str(), 0700) == 0);
    REQUIRE_FALSE(denied);
    CHECK(denied.error().what.find("permission denied") != std::string::npos);
}

TEST_CASE("an interrupted upload leaves the old file whole and no half one", "[sync]") {
    World world;
    test::write_text(world.here / "file", std::string(30'000'000, 'n'));
    test::write_text(world.there / "file", "old");
    auto tally = world.copy(world.here / "file", "demo:" + (world.there / "file"), [](const sync::Tally& now) {
        if (now.bytes > 1'000'000 && !interrupt::interrupted()) interrupt::raise_for_test();
    });
    interrupt::clear_for_test();
    REQUIRE_FALSE(tally);
    CHECK(tally.error().what == "interrupted");
    CHECK(test::read_text(world.there / "file") == "old");
    CHECK(std::distance(fs::directory_iterator(world.there.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("a full disk over there is called that, and keeps no half file", "[sync]") {
    World world;
    if (::mount("tmpfs", world.there.path().c_str(), "tmpfs", 0, "size=2m") != 0) {
        WARN("not allowed to mount a small file system: the full disk is not tested here");
        return;
    }
    test::write_text(world.here / "file", std::string(8'000'000, 'n'));
    auto tally = world.copy(world.here / "file", "demo:" + (world.there / "file"));
    auto left = std::distance(fs::directory_iterator(world.there.path()), fs::directory_iterator());
    ::umount2(world.there.path().c_str(), MNT_DETACH);
    REQUIRE_FALSE(tally);
    CHECK(tally.error().what.find("disk there is full") != std::string::npos);
    CHECK(left == 0);
}
