// `tnr sync`, whichever way files go: what --delete and --dry-run do, links, read-only folders, and a machine that lies.
#include <algorithm>

#include "tests/cli/sync_world.hpp"

using namespace tnr;
using namespace tnr::test::sync_world;

TEST_CASE("deleting and dry runs, whichever way files go", "[sync]") {
    World world(each_way());
    bool up = GENERATE(true, false);
    auto& from = up ? world.here : world.there;
    auto& to = up ? world.there : world.here;
    const std::string root = from / "tree", copy = to / "tree";
    const std::string source = (up ? "" : "demo:") + root, place = (up ? "demo:" : "") + copy;
    fs::create_directories(root + "/sub/inner");
    fs::create_directories(root + "/later a file");
    for (auto name : {"a", "sub/b", "sub/inner/c", "later a folder", "main.o", "sub/keep.o", "later a link"})
        test::write_text(root + "/" + name, name);
    test::write_text(root + "/.gitignore", "*.o\ncache/\n/sub/kept\n");
    test::write_text(root + "/sub/.tnrignore", "!keep.o\n");
    fs::create_symlink("a", root + "/link");
    auto first = world.copied(source, place);
    CHECK(first.ignored == 1);
    CHECK_FALSE(fs::exists(copy + "/main.o"));
    CHECK(fs::exists(copy + "/sub/keep.o"));

    fs::create_directories(copy + "/old/deep/cache");
    fs::create_directories(copy + "/gone/deep");
    for (auto name : {"extra", "main.o", "old/file", "old/deep/cache/thing", "gone/deep/file", ".tnr-abcdefgh-12",
                      "gone/.tnr-abcdefgh-12", "sub/x.o", "sub/kept", "sub/extra\nof two lines"})
        test::write_text(copy + "/" + name, "x");
    fs::create_symlink(root, copy + "/link to the source");
    test::write_text(root + "/new", "n");
    test::write_text(root + "/a", "changed");
    fs::remove(root + "/link");
    fs::create_symlink("sub", root + "/link");
    for (auto name : {"later a folder", "later a file", "later a link"}) fs::remove_all(root + "/" + name);
    fs::create_directory(root + "/later a folder");
    test::write_text(root + "/later a folder/x", "x");
    test::write_text(root + "/later a file", "x");
    fs::create_symlink("a", root + "/later a link");
    test::write_text(copy + "/sub/inner/c", "changed there");  // so that it has another size

    world.options.dry_run = true;
    auto refused = world.copy(source, place);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().hint.find("--delete") != std::string::npos);
    world.options.remove_extra = true;
    auto would = world.copied(source, place);
    auto sorted = [](std::vector<std::string> list) {
        std::sort(list.begin(), list.end());
        return list;
    };
    const std::vector<std::string> going = {"extra", "gone", "link to the source", "old", "sub/extra\nof two lines"};
    CHECK(sorted(would.removals) == going);
    CHECK(sorted(would.copies) == sorted({copy + "/a", copy + "/new", copy + "/link", copy + "/later a folder/x",
                                          copy + "/later a file", copy + "/later a link", copy + "/sub/inner/c"}));
    CHECK(would.files == 7);
    CHECK(fs::is_directory(copy + "/later a file"));
    CHECK(fs::exists(copy + "/extra"));
    CHECK_FALSE(fs::exists(copy + "/new"));

    world.options.dry_run = false;
    auto tally = world.copied(source, place);
    CHECK(tally.files == 7);
    CHECK(tally.removed == 4);  // of `old` what is protected stays
    CHECK(tally.unreadable.empty());
    for (auto name : {"extra", "gone", "old/file", "link to the source", "sub/extra\nof two lines"})
        CHECK_FALSE(fs::exists(fs::symlink_status(copy + "/" + name)));
    for (auto name : {"main.o", "sub/x.o", "sub/kept", "old/deep/cache/thing", ".tnr-abcdefgh-12"})
        CHECK(fs::exists(copy + "/" + name));
    CHECK(test::read_text(copy + "/later a file") == "x");
    CHECK(test::read_text(copy + "/later a folder/x") == "x");
    CHECK(fs::read_symlink(copy + "/later a link") == "a");
    CHECK(fs::exists(root + "/a"));
    CHECK(world.copied(source, place).files == 0);

    fs::remove_all(root);
    fs::create_directory(root);
    auto empty = world.copy(source, place);
    REQUIRE_FALSE(empty);
    CHECK(empty.error().what.find("the source is empty") != std::string::npos);
    CHECK(fs::exists(copy + "/a"));
}

TEST_CASE("read-only folders are copied into again, by who is not root", "[sync]") {
    if (::geteuid() != 0) {
        WARN("only root can log in as somebody else: not tested");
        return;
    }
    World world(Way::server, true);
    fs::create_directories(world.here / "tree/locked/inner");
    test::write_text(world.here / "tree/locked/a", "1");
    test::write_text(world.here / "tree/locked/inner/extra", "1");
    auto lock = [&](mode_t mode) {
        for (auto name : {"tree/locked/inner", "tree/locked", "tree"})
            REQUIRE(::chmod((world.here / name).c_str(), mode) == 0);
    };
    lock(0555);
    world.copied(world.here / "tree", "demo:" + (world.there / "tree"));
    lock(0755);
    test::write_text(world.here / "tree/locked/a", "22");
    fs::remove_all(world.here / "tree/locked/inner");
    fs::create_directory(world.here / "tree/locked/new");
    fs::create_symlink("a", world.here / "tree/locked/link");
    REQUIRE(::chmod((world.here / "tree/locked").c_str(), 0555) == 0);
    REQUIRE(::chmod((world.here / "tree").c_str(), 0555) == 0);
    world.options.remove_extra = true;
    auto tally = world.copied(world.here / "tree", "demo:" + (world.there / "tree"));
    CHECK(tally.unreadable.empty());
    CHECK(tally.removed == 1);
    CHECK(test::read_text(world.there / "tree/locked/a") == "22");
    CHECK(fs::is_directory(world.there / "tree/locked/new"));
    CHECK((look(world.there / "tree/locked").st_mode & 0777) == 0555);
    // The destination itself keeps its own mode, also where it has been opened for a moment.
    CHECK((look(world.there / "tree").st_mode & 0777) == 0555);
}

TEST_CASE("a device, a pipe or a socket is not replaced by a file or a link, unless --delete says so", "[sync]") {
    World world(each_way());
    fs::create_directories(world.here / "tree");
    fs::create_directories(world.there / "tree");
    const std::string place = world.there / "tree/name", source = world.here / "tree",
                      to = "m:" + (world.there / "tree");
    if (GENERATE(false, true))
        fs::create_symlink("nowhere", world.here / "tree/name");
    else
        test::write_text(world.here / "tree/name", "content");
    REQUIRE(::mkfifo(place.c_str(), 0600) == 0);
    for (bool dry : {true, false}) {
        world.options.dry_run = dry;
        auto refused = world.copy(source, to);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().what.find("m:" + place + " is a device, pipe or socket there") == 0);
        CHECK(S_ISFIFO(look(place).st_mode));
    }
    world.options.remove_extra = true;
    CHECK(world.copied(source, to).files == 1);
    CHECK_FALSE(S_ISFIFO(look(place).st_mode));
}

TEST_CASE("what --delete cannot remove is told", "[sync]") {
    if (::geteuid() != 0) {
        WARN("only root can log in as somebody else: not tested");
        return;
    }
    World world(each_way(), true);
    fs::create_directory(world.here / "tree");
    test::write_text(world.here / "tree/a", "a");
    world.copied(world.here / "tree", "demo:" + (world.there / "tree"));
    fs::create_directories(world.there / "tree/of root");
    test::write_text(world.there / "tree/of root/file", "x");
    test::write_text(world.there / "tree/extra", "x");
    world.options.remove_extra = true;
    auto tally = world.copied(world.here / "tree", "demo:" + (world.there / "tree"));
    CHECK(tally.removed == 1);
    CHECK_FALSE(fs::exists(world.there / "tree/extra"));
    CHECK(fs::exists(world.there / "tree/of root/file"));
    REQUIRE_FALSE(tally.unreadable.empty());
    CHECK(tally.unreadable[0].what.find("cannot remove demo:" + (world.there / "tree/of root")) != std::string::npos);
}

TEST_CASE("a file that changes while it goes over SFTP is not copied, and told of", "[sync]") {
    World world(Way::sftp);
    bool up = GENERATE(true, false);
    auto& from = up ? world.here : world.there;
    auto& to = up ? world.there : world.here;
    test::write_text(from / "file", many_bytes(6'000'000));
    age(from / "file", 1'000'000'000);
    test::write_text(to / "file", "old");
    bool touched = false;
    auto tally = world.copy((up ? "" : "demo:") + (from / "file"), (up ? "demo:" : "") + (to / "file"),
                            [&](const sync::Tally& now) {
                                if (now.bytes < 1'000'000 || touched) return;
                                touched = true;
                                test::write_text(from / "file", std::string(6'000'000, 'x'));
                            });
    REQUIRE(tally);
    REQUIRE(tally->unreadable.size() == 1);
    CHECK(tally->unreadable[0].what.find("changes while it is read") != std::string::npos);
    CHECK(test::read_text(to / "file") == "old");
    CHECK(count_in(to.path()) == 1);
}

TEST_CASE("a machine that lies over SFTP writes nothing outside of a download's destination", "[sync][hostile]") {
    test::TemporaryFolder world;
    fs::create_directories(world / "to");
    test::write_text(world / "victim", "mine");
    REQUIRE(::chmod(world.path().c_str(), 0700) == 0);
    age(world / "victim", 1'000'000'000);
    const std::string trick =
        GENERATE(as<std::string>{}, "dots", "dots_nul", "slash", "absolute", "empty", "link_then_folder",
                 "folder_then_link", "endless_file", "endless_depth", "long_name", "huge_packet");
    INFO(trick);
    test::Sshd sshd{"ForceCommand " TNR_TEST_PYTHON " " TNR_CLI_TESTS "/hostile_sftp.py " + trick + "\n"};
    auto client = ssh::Client::connect(sshd.target(), ssh::Clock::now() + 30s);
    REQUIRE(client);
    auto sftp = ssh::Sftp::open(**client);
    REQUIRE(sftp);
    cli::SyncOptions options;
    options.paths = {"demo:source", world / "to/copy"};
    options.remove_extra = GENERATE(false, true);
    auto tally = cli::sync_by_sftp(**sftp, options, [](const sync::Tally&) {});
    CHECK((!tally || !tally->unreadable.empty() || tally->files == 0));
    CHECK(test::read_text(world / "victim") == "mine");
    CHECK(look(world / "victim").st_mtime == 1'000'000'000);
    CHECK((look(world.path()).st_mode & 0777) == 0700);
    CHECK(count_in(world.path()) == 2);
    CHECK(count_in(world / "to") <= 1);
}

TEST_CASE("a link on a machine stands for a folder elsewhere, and never for another one of the same tree", "[sync]") {
    World world(each_way());
    const std::string root = world.here / "tree", copy = world.there / "tree";
    fs::create_directories(root + "/v1");
    test::write_text(root + "/v1/file", "one");
    fs::create_symlink("v1", root + "/latest");
    world.copied(root, "demo:" + copy);
    fs::remove(root + "/latest");
    fs::create_directory(root + "/latest");
    test::write_text(root + "/latest/file", "two!");
    fs::copy_file(root + "/v1/file", root + "/latest/same");
    fs::rename(root + "/latest/same", root + "/latest/other");
    auto refused = world.copy(root, "demo:" + copy);
    REQUIRE_FALSE(refused);
    CHECK(test::read_text(copy + "/v1/file") == "one");
    world.options.remove_extra = true;
    world.copied(root, "demo:" + copy);
    CHECK(test::read_text(copy + "/v1/file") == "one");
    CHECK(test::read_text(copy + "/latest/file") == "two!");
    CHECK(fs::exists(copy + "/latest/other"));
    CHECK_FALSE(fs::is_symlink(copy + "/latest"));

    fs::rename(copy + "/latest", world.there / "elsewhere");
    fs::create_symlink(world.there / "elsewhere", copy + "/latest");
    test::write_text(root + "/latest/file", "three");
    world.copied(root, "demo:" + copy);
    CHECK(fs::is_symlink(copy + "/latest"));
    CHECK(test::read_text(world.there / "elsewhere/file") == "three");
}

TEST_CASE("a link to a folder above is never a way out for --delete", "[sync]") {
    World world(each_way());
    const std::string root = world.here / "tree", copy = world.there / "tree";
    fs::create_directory(root);
    fs::create_symlink("..", root + "/up");
    world.copied(root, "demo:" + copy);
    test::write_text(world.there / "neighbour", "kept");
    fs::remove(root + "/up");
    fs::create_directory(root + "/up");
    test::write_text(root + "/up/file", "mine");
    world.options.remove_extra = true;
    world.copied(root, "demo:" + copy);
    CHECK(test::read_text(world.there / "neighbour") == "kept");
    CHECK(test::read_text(copy + "/up/file") == "mine");
    CHECK_FALSE(fs::is_symlink(copy + "/up"));
}
