// Copying trees over SFTP to and from a real sshd.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include "tests/support/catch.hpp"

#include <ctime>
#include "api_client/base/interrupt.hpp"

#include "cli/commands/sync.hpp"
#include "tests/cli/fakes.hpp"
#include "tests/cli/sshd.hpp"
#include "tests/cli/sync_world.hpp"

using namespace tnr;
using namespace tnr::test::sync_world;

namespace {

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
    World world(each_way());
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
    World world(each_way());
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
    World world(each_way());
    fs::create_directory(world.here / "many");
    for (int i = 0; i < 1000; ++i) test::write_text(world.here / ("many/" + std::to_string(i)), std::to_string(i));
    CHECK(world.copied(world.here / "many", "demo:" + (world.there / "many")).files == 1000);
    CHECK(world.copied("demo:" + (world.there / "many"), world.here / "back").files == 1000);
    check_same(world.here / "many", world.here / "back");
}

TEST_CASE("what is neither file, folder nor link is left out and counted", "[sync]") {
    World world(each_way());
    fill(world.here);
    REQUIRE(::mkfifo((world.here / "tree/pipe").c_str(), 0600) == 0);
    CHECK(world.copied(world.here / "tree", "demo:" + (world.there / "tree")).others == 1);
    REQUIRE(::mkfifo((world.there / "tree/other pipe").c_str(), 0600) == 0);
    CHECK(world.copied("demo:" + (world.there / "tree"), world.here / "back").others == 1);
}

TEST_CASE("an existing destination folder keeps its own mode", "[sync]") {
    World world(each_way());
    fill(world.here);
    REQUIRE(::chmod((world.here / "tree").c_str(), 0777) == 0);
    REQUIRE(::chmod(world.there.path().c_str(), 0700) == 0);
    world.copied((world.here / "tree") + "/", "demo:" + world.there.path());
    CHECK((look(world.there.path()).st_mode & 0777) == 0700);
}

TEST_CASE("what cannot be copied says which place and why", "[sync]") {
    World world(each_way());
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

TEST_CASE("an interrupted upload leaves the old file whole and, of a large one, a part to go on with", "[sync]") {
    World world(each_way());
    test::write_text(world.here / "file", std::string(30'000'000, 'n'));
    test::write_text(world.there / "file", "old");
    auto interrupt_it = [](const sync::Tally& now) {
        if (now.bytes > 1'000'000 && !interrupt::interrupted()) interrupt::raise_for_test();
    };
    auto tally = world.copy(world.here / "file", "demo:" + (world.there / "file"), interrupt_it);
    interrupt::clear_for_test();
    REQUIRE_FALSE(tally);
    CHECK(tally.error().what == "interrupted");
    CHECK(test::read_text(world.there / "file") == "old");
    if (world.way == Way::sftp) CHECK(count_in(world.there.path()) == 1);
    CHECK(world.copied(world.here / "file", "demo:" + (world.there / "file")).files == 1);
    CHECK(test::read_text(world.there / "file") == test::read_text(world.here / "file"));
}

TEST_CASE("new folders of an upload that was cut off have their own modes", "[sync]") {
    World world(each_way());
    fs::create_directories(world.here / "tree/open");
    test::write_text(world.here / "tree/open/file", many_bytes(30'000'000));
    for (auto [name, mode] : {std::pair{"tree", 0750}, {"tree/open", 0755}})
        REQUIRE(::chmod((world.here / name).c_str(), static_cast<mode_t>(mode)) == 0);
    auto interrupt_it = [](const sync::Tally& now) {
        if (now.bytes > 1'000'000 && !interrupt::interrupted()) interrupt::raise_for_test();
    };
    auto tally = world.copy(world.here / "tree", "demo:" + (world.there / "tree"), interrupt_it);
    interrupt::clear_for_test();
    REQUIRE_FALSE(tally);
    CHECK((look(world.there / "tree").st_mode & 0777) == 0750);
    CHECK((look(world.there / "tree/open").st_mode & 0777) == 0755);
}

TEST_CASE("a full disk over there is called that, and keeps no half file", "[sync]") {
    World world(each_way());
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

TEST_CASE("a file that goes away while others are copied is told of, up or down", "[sync]") {
    World world(Way::sftp);  // the server has read all of them by then
    for (bool up : {true, false}) {
        auto& from = up ? world.here : world.there;
        auto& to = up ? world.there : world.here;
        std::string name = up ? "up" : "down";
        fs::create_directory(from / name);
        for (int i = 100; i < 200; ++i) test::write_text(from / (name + "/" + std::to_string(i)), "content");
        // It goes away after it was listed, and before it is opened: root is denied nothing else.
        auto tally = world.copy((up ? "" : "demo:") + (from / name), (up ? "demo:" : "") + (to / name),
                                [&](auto&) { fs::remove(from / (name + "/199")); });
        if (!tally) FAIL(tally.error().what);
        CHECK(tally->files == 99);
        REQUIRE(tally->unreadable.size() == 1);
        CHECK(tally->unreadable[0].what.find("199") != std::string::npos);
        CHECK(std::distance(fs::directory_iterator(to / name), fs::directory_iterator()) == 99);
    }
}

TEST_CASE("what is denied to the login user is passed over, with a hint for reading", "[sync]") {
    if (::geteuid() != 0) {
        WARN("only root can log in as somebody else: not tested");
        return;
    }
    bool by_server = GENERATE(true, false);
    test::TemporaryFolder cache, etc;
    REQUIRE(::chown(cache.path().c_str(), nobody, nobody) == 0);
    test::Sshd sshd{cache_at(cache), shell_for_nobody(etc)};
    auto target = sshd.target();
    target.user = "nobody";
    auto client = ssh::Client::connect(target, ssh::Clock::now() + 30s);
    REQUIRE(client);
    auto sftp = ssh::Sftp::open(**client);
    REQUIRE(sftp);
    test::TemporaryFolder here, there;
    REQUIRE(::chmod(there.path().c_str(), 0755) == 0);
    fs::create_directories(there / "tree/locked folder");
    test::write_text(there / "tree/locked folder/file", "secret");
    test::write_text(there / "tree/locked", "secret");
    test::write_text(there / "tree/open", "content");
    REQUIRE(::chmod((there / "tree/locked folder").c_str(), 0700) == 0);
    REQUIRE(::chmod((there / "tree/locked").c_str(), 0600) == 0);
    auto copy = [&](const std::string& from, const std::string& to) {
        cli::SyncOptions options;
        options.paths = {"demo:" + from, to};
        auto none = [](const sync::Tally&) {};
        auto never = [](const std::string& note) { FAIL(note); };
        return by_server ? cli::sync_over(**client, options, none, never) : cli::sync_by_sftp(**sftp, options, none);
    };
    auto tally = copy(there / "tree", here / "tree");
    if (!tally) FAIL(tally.error().what);
    CHECK(test::read_text(here / "tree/open") == "content");
    REQUIRE(tally->unreadable.size() == 2);
    for (const auto& error : tally->unreadable) {
        CHECK(error.what.find("permission denied") != std::string::npos);
        CHECK(error.hint.find("sudo chmod a+rX") != std::string::npos);
    }
    auto root = copy(there / "tree/locked", here / "x");
    REQUIRE(root);
    CHECK(root->unreadable.size() == 1);
    CHECK_FALSE(fs::exists(here / "x"));
}

TEST_CASE("sync tells what changes on the way", "[cli][sync]") {
    bool noexec = GENERATE(false, true);  // a home without programs: then SFTP does it
    test::FakeSession fake;
    fake.start_demo();
    test::TemporaryFolder cache, there;
    test::Sshd sshd{cache_at(cache), noexec ? "mount -t tmpfs -o noexec tmpfs " + cache.path() : ""};
    fake.put_demo_at(sshd);
    fs::create_directory(fake.folder / "tree");
    test::write_text(fake.folder / "tree/set", "x");
    REQUIRE(::chmod((fake.folder / "tree/set").c_str(), 04755) == 0);
    test::write_text(fake.folder / "tree/old", "x");
    age(fake.folder / "tree/old", -5'000'000'000);
    if (look(fake.folder / "tree/old").st_mtime >= 0) return;  // a file system without such times
    CHECK(fake.tnr({"sync", "-v", fake.folder / "tree", "demo:" + there.path() + "/"}) == 0);
    INFO(fake.err.str());
    CHECK(fake.err.str().find("note: 1 file lost setuid, setgid or sticky bits") != std::string::npos);
    CHECK((fake.err.str().find("note: 1 file got another time") != std::string::npos) == noexec);
    CHECK((fake.err.str().find("cannot run there") != std::string::npos) == noexec);
    CHECK((look(there / "tree/set").st_mode & 07777) == 0755);
    CHECK(look(there / "tree/old").st_mtime == (noexec ? 0 : look(fake.folder / "tree/old").st_mtime));
    CHECK(fake.tnr({"sync", fake.folder / "tree", "demo:" + there.path() + "/"}) == 0);
    CHECK(fake.err.str().find("cannot run there") == std::string::npos);  // only who asks hears it
    test::write_text(there / "tree/extra", "x");
    CHECK(fake.tnr({"sync", "--delete", "-n", fake.folder / "tree/", "demo:" + there.path() + "/tree"}) == 0);
    CHECK(fake.out.str().find("remove extra\n") != std::string::npos);
    CHECK(fs::exists(there / "tree/extra"));
    CHECK(fake.tnr({"sync", "--delete", fake.folder / "tree/", "demo:" + there.path() + "/tree"}) == 0);
    CHECK_FALSE(fs::exists(there / "tree/extra"));
}

TEST_CASE("sync that could not read everything tells what, and ends with 1", "[cli][sync]") {
    test::FakeSession fake;
    fake.start_demo();
    test::TemporaryFolder cache;
    test::Sshd sshd{cache_at(cache)};
    fake.put_demo_at(sshd);
    // Reading a process's memory from its beginning fails, for root as well.
    test::TemporaryFolder here;
    CHECK(fake.tnr({"sync", "demo:/proc/self/mem", here.path() + "/"}) == 1);
    CHECK(fake.err.str().find("cannot read demo:/proc/self/mem") != std::string::npos);
    CHECK(fake.err.str().find("sudo mv") == std::string::npos);  // which would be an upload's hint
    // What a name holds does nothing on the terminal.
    CHECK(fake.tnr({"sync", "demo:/no\033]0;such\007", here.path() + "/"}) == 1);
    CHECK(fake.err.str().find("/no\\033]0;such\\007") != std::string::npos);
    CHECK(std::distance(fs::directory_iterator(here.path()), fs::directory_iterator()) == 0);
}

TEST_CASE("what killed runs have left is removed, and never copied", "[sync]") {
    World world(each_way());
    fill(world.here);
    world.copied(world.here / "tree", "demo:" + (world.there / "tree"));
    std::string left = ".tnr-abcdefgh-12", young = ".tnr-abcdefgh-13", users = ".tnr-notes";
    auto litter = [&](const test::TemporaryFolder& folder) {
        for (const auto& name : {left, young, users})
            for (const std::string& path : {"tree/" + name, "tree/a b/" + name}) {
                test::write_text(folder / path, "half");
                if (name != young) age(folder / path, std::time(nullptr) - 4000);
            }
    };
    auto there_are = [&](const test::TemporaryFolder& folder, const std::string& name) {
        return fs::exists(folder / ("tree/" + name)) + fs::exists(folder / ("tree/a b/" + name));
    };
    litter(world.there);
    auto up = world.copied(world.here / "tree", "demo:" + (world.there / "tree"));
    CHECK(there_are(world.there, left) == 0);
    CHECK(there_are(world.there, young) == 2);  // another tnr may be at work on it
    CHECK(there_are(world.there, users) == 2);
    CHECK(up.files == 0);

    litter(world.here);
    world.copied("demo:" + (world.there / "tree"), world.here / "tree");
    CHECK(there_are(world.here, left) == 0);
    CHECK(there_are(world.here, young) == 2);
    litter(world.here);
    fs::remove_all(world.there / "tree");
    world.copied(world.here / "tree", "demo:" + (world.there / "tree"));
    CHECK(there_are(world.there, left) + there_are(world.there, young) == 0);
    CHECK(there_are(world.there, users) == 2);
}

TEST_CASE("a large file whose copying was cut off goes on where it stopped, up and down", "[sync]") {
    Way way = each_way();
    const std::string content = many_bytes(way == Way::sftp ? 40'000'000 : 80'000'000);
    for (bool up : {true, false}) {
        test::TemporaryFolder from, to;
        test::write_text(from / "large", content);
        const std::string source = (up ? "" : "demo:") + (from / "large"), place = (up ? "demo:" : "") + (to / "large");
        // What is still on its way counts as sent, so what has arrived is asked.
        auto is_worth_keeping = [&] {
            auto first = fs::directory_iterator(to.path());
            return first != fs::end(first) && first->file_size() > 20'000'000;
        };
        std::string failure;
        {
            World cut(way);
            auto tally = cut.copy(source, place, [&](const sync::Tally&) {
                if (is_worth_keeping()) cut.sshd.kill_connections();
            });
            REQUIRE_FALSE(tally);
            failure = tally.error().what;
        }
        INFO((up ? "up: " : "down: ") << failure);
        REQUIRE(count_in(to.path()) == 1);
        SECTION(up ? "up: as it was" : "down: as it was") {
            World world(way);
            auto tally = world.copied(source, place);
            CHECK(tally.bytes < (way == Way::sftp ? 25'000'000 : 72'000'000));
            CHECK(tally.bytes > 1'000'000);
        }
        SECTION(up ? "up: a part that is not right" : "down: a part that is not right") {
            const std::string part = fs::directory_iterator(to.path())->path().string();
            std::fstream file(part, std::ios::in | std::ios::out | std::ios::binary);
            file.seekp(1'000'000).put('!').flush();
            World world(way);
            auto tally = world.copied(source, place);
            if (way == Way::sftp) CHECK(tally.bytes == content.size());
        }
        if (fs::exists(to / "large")) {
            CHECK(test::read_text(to / "large") == content);
            CHECK(count_in(to.path()) == 1);
        }
    }
}
