// Images that users bring, good and bad.
#include "api_client/providers/local/image.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "api_client/base/interrupt.hpp"
#include "tests/support/catch.hpp"

#include "api_client/providers/local/build_script.hpp"
#include "api_client/providers/local/child.hpp"
#include "world.hpp"

using namespace tnr;
using namespace tnr::local;
using namespace tnr::test;

TEST_CASE("an image that cannot boot is refused before anything is made of it", "[image]") {
    const TemporaryFolder folder;
    SECTION("it does not exist") {
        auto image = image_at(folder / "missing.qcow2");
        REQUIRE(!image);
        CHECK(image.error().kind == Error::Kind::usage);
    }
    SECTION("it is no disk") {
        test::write_text(folder / "letter.txt", std::string(4096, 'x'));
        auto image = image_at(folder / "letter.txt");
        REQUIRE(!image);
        CHECK(image.error().kind == Error::Kind::usage);
        CHECK(image.error().what.find("is not a disk that boots") != std::string::npos);
    }
    SECTION("it is empty") {
        test::write_text(folder / "empty.img", "");
        CHECK(!image_at(folder / "empty.img"));
    }
    SECTION("it is a folder that lacks the kernel") {
        REQUIRE(run({.argv = {"qemu-img", "create", "-f", "qcow2", folder / "disk.qcow2", "1M"}})->exit_code == 0);
        auto image = image_at(folder.path());
        REQUIRE(!image);
        CHECK(image.error().what.find("has no vmlinuz") != std::string::npos);
    }
    SECTION("its header is damaged") {
        REQUIRE(run({.argv = {"qemu-img", "create", "-f", "qcow2", folder / "disk.qcow2", "1M"}})->exit_code == 0);
        std::string bytes = test::read_text(folder / "disk.qcow2");
        bytes.replace(4, 4, "\xff\xff\xff\xff");  // the version
        test::write_text(folder / "disk.qcow2", bytes);
        CHECK(!image_at(folder / "disk.qcow2"));
    }
}

TEST_CASE("a pipe is no image, and nobody waits for it", "[image]") {
    const TemporaryFolder folder;
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    auto image = image_at(folder / "pipe");
    REQUIRE(!image);
    CHECK(image.error().what.find("is neither a file nor a disk") != std::string::npos);
}

TEST_CASE("a pipe in the place of the build's log gives way to the log", "[image]") {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "cache/images");
    const std::string log = folder / "cache/images/build.log";
    REQUIRE(::mkfifo(log.c_str(), 0600) == 0);
    const std::string tools = folder / "tools";
    std::filesystem::create_directory(tools);
    for (const char* tool : {"mmdebstrap", "qemu-img", "mke2fs"}) {
        test::write_text(tools + "/" + tool, "#!/bin/sh\necho 'E: it cannot be'\nexit 1\n");
        std::filesystem::permissions(tools + "/" + tool, std::filesystem::perms::owner_all);
    }
    const Environment path("PATH", (tools + ":" + std::getenv("PATH")).c_str());
    const Environment mirror("TNR_APT_MIRROR", "http://127.0.0.1:1/");
    REQUIRE_FALSE(default_image(folder / "cache", {}));
    REQUIRE(std::filesystem::is_regular_file(log));
    CHECK(test::read_text(log).find("E: it cannot be") != std::string::npos);
}

TEST_CASE("a machine's disk has the size that was ordered and needs nothing outside its folder", "[image]") {
    const TemporaryFolder folder;
    std::string sector(512, '\0');
    sector.replace(510, 2, "\x55\xaa");
    test::write_text(folder / "boots.img", sector);
    auto image = image_at(folder / "boots.img");
    REQUIRE(image);
    std::filesystem::create_directory(folder / "machine");
    REQUIRE(install(*image, folder / "machine", 3));
    std::filesystem::remove(folder / "boots.img");

    auto info = run({.argv = {"qemu-img", "info", "--backing-chain", folder / "machine/disk.qcow2"}});
    CHECK(info->exit_code == 0);
    CHECK(info->output.find("virtual size: 3 GiB") != std::string::npos);
}

TEST_CASE("a shared image is linked, not copied, and survives the cache", "[image]") {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder / "cache");
    std::filesystem::create_directory(folder / "machine");
    REQUIRE(run({.argv = {"qemu-img", "create", "-f", "qcow2", folder / "cache/disk.qcow2", "1M"}})->exit_code == 0);
    test::write_text(folder / "cache/vmlinuz", "kernel");
    test::write_text(folder / "cache/initrd.img", "initrd");
    auto image = image_at(folder / "cache");
    REQUIRE(image);
    image->ours_to_share = true;
    REQUIRE(install(*image, folder / "machine", 2));
    CHECK(std::filesystem::hard_link_count(folder / "machine/base.qcow2") == 2);

    std::filesystem::remove_all(folder / "cache");
    auto info = run({.argv = {"qemu-img", "info", "--backing-chain", folder / "machine/disk.qcow2"}});
    CHECK(info->exit_code == 0);
    CHECK(info->output.find("virtual size: 2 GiB") != std::string::npos);
    CHECK(test::read_text(folder / "machine/vmlinuz") == "kernel");
}

TEST_CASE("images that nobody has used for a month leave the cache", "[image]") {
    const TemporaryFolder cache;
    const std::filesystem::path images = cache / "images";
    const auto days_ago = [&](const std::string& name, int days) {
        auto folder = images / name;
        std::filesystem::create_directories(folder);
        std::string sizes;
        for (const char* part : {"disk.qcow2", "vmlinuz", "initrd.img"}) {
            test::write_text(folder / part, "x");
            sizes += std::string(part) + " 1\n";
        }
        test::write_text(folder / "sizes", sizes);
        std::filesystem::last_write_time(folder,
                                         std::filesystem::file_time_type::clock::now() - std::chrono::hours(24 * days));
        return folder;
    };
    const auto ours = days_ago(std::string("debian-12-") + build_script_hash, 90);
    const auto last_week = days_ago("debian-12-of-last-week", 7);
    const auto forgotten = days_ago("debian-12-of-last-year", 90);

    REQUIRE(default_image(cache.path(), nullptr));
    CHECK(std::filesystem::exists(ours / "disk.qcow2"));
    CHECK(std::filesystem::exists(last_week / "disk.qcow2"));
    CHECK_FALSE(std::filesystem::exists(forgotten));
}

TEST_CASE("Ctrl-C ends the building of the image deep in a download, and nothing of it stays", "[image]") {
    const TemporaryFolder folder;
    const std::string tools = folder / "tools";
    std::filesystem::create_directory(tools);
    for (const char* tool : {"mmdebstrap", "qemu-img", "mke2fs"}) {
        test::write_text(tools + "/" + tool, "#!/bin/sh\necho $$ >" + (folder / "pid") +
                                                 "\necho 'I: downloading packages' >&2\nexec sleep 60\n");
        std::filesystem::permissions(tools + "/" + tool, std::filesystem::perms::owner_all);
    }
    const Environment path("PATH", (tools + ":" + std::getenv("PATH")).c_str());
    const Environment mirror("TNR_APT_MIRROR", "http://127.0.0.1:1/");
    auto image = default_image(folder / "cache", [](const std::string& step) {
        if (step.find("downloading") != std::string::npos && !interrupt::interrupted()) interrupt::raise_for_test();
    });
    interrupt::clear_for_test();
    REQUIRE(!image);
    CHECK(image.error().what == "interrupted");
    const int builder = std::stoi(test::read_text(folder / "pid"));
    const UniqueFd ended(static_cast<int>(::syscall(SYS_pidfd_open, builder, 0)));
    pollfd wait{ended.get(), POLLIN, 0};
    CHECK((!ended || ::poll(&wait, 1, 10'000) == 1));
    for (const auto& entry : std::filesystem::directory_iterator(folder / "cache/images"))
        CHECK(entry.path().filename().string().find(".building.") == std::string::npos);
}

TEST_CASE("a second Ctrl-C does not wait for a builder that does not hear the first", "[image]") {
    const TemporaryFolder folder;
    const std::string tools = folder / "tools";
    std::filesystem::create_directory(tools);
    for (const char* tool : {"mmdebstrap", "qemu-img", "mke2fs"}) {
        test::write_text(tools + "/" + tool, "#!/bin/sh\ntrap 'touch " + (folder / "deaf") + "' TERM\necho $$ >" +
                                                 (folder / "pid.new") + "\nmv " + (folder / "pid.new") + " " +
                                                 (folder / "pid") + "\nwhile :; do sleep 0.1; done\n");
        std::filesystem::permissions(tools + "/" + tool, std::filesystem::perms::owner_all);
    }
    const Environment path("PATH", (tools + ":" + std::getenv("PATH")).c_str());
    const Environment mirror("TNR_APT_MIRROR", "http://127.0.0.1:1/");
    const pid_t building = ::fork();
    REQUIRE(building >= 0);
    if (building == 0) {
        interrupt::install();
        (void)default_image(folder / "cache", {});
        ::_exit(1);
    }
    auto wait_for_file = [&](const char* name) {
        for (int i = 0; i < 60'000 && !std::filesystem::exists(folder / name); ++i) ::usleep(1000);
    };
    wait_for_file("pid");
    ::kill(building, SIGINT);
    wait_for_file("deaf");
    ::kill(building, SIGINT);
    int status = 0;
    ::waitpid(building, &status, 0);
    ::kill(std::stoi(test::read_text(folder / "pid")), SIGKILL);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 128 + SIGINT);
}
