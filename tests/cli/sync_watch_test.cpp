// `tnr sync --watch`, and the other options of the command line.
#include "tests/cli/watch_world.hpp"

using namespace tnr;
using namespace tnr::test::watch_world;

TEST_CASE("sync --watch brings every change until Ctrl-C", "[cli][sync][watch]") {
    SyncWorld world;
    int code = -1;
    std::thread watching([&] { code = world.fake.tnr({"sync", "--watch", "--delete", world.tree, world.to()}); });
    auto end = [&] {
        interrupt::raise_for_test();
        watching.join();
        interrupt::clear_for_test();
    };
    bool first = comes_true([&] { return says(world.copy + "/sub/b", "b"); });
    // As editors do: beside it, and renamed over it; then a copy of the old one kept.
    test::write_text(world.tree + "/.a.swp", "new content");
    fs::rename(world.tree + "/a", world.tree + "/a~");
    fs::rename(world.tree + "/.a.swp", world.tree + "/a");
    bool renamed =
        first && comes_true([&] { return says(world.copy + "/a", "new content") && says(world.copy + "/a~", "a"); });
    // A folder that is new, with what is in it, and what comes into it later.
    fs::create_directories(world.tree + "/new/deep");
    test::write_text(world.tree + "/new/deep/file", "1");
    bool added = renamed && comes_true([&] { return says(world.copy + "/new/deep/file", "1"); });
    test::write_text(world.tree + "/new/deep/later", "2");
    bool later = added && comes_true([&] { return says(world.copy + "/new/deep/later", "2"); });
    fs::remove_all(world.tree + "/sub");
    bool removed = later && comes_true([&] { return !fs::exists(world.copy + "/sub"); });
    // The connection goes, and comes back.
    world.sshd.kill_connections();
    test::write_text(world.tree + "/a", "after the cut");
    bool again = removed && comes_true([&] { return says(world.copy + "/a", "after the cut"); });
    end();
    INFO(world.fake.out.str() << world.fake.err.str());
    CHECK(first);
    CHECK(renamed);
    CHECK(added);
    CHECK(later);
    CHECK(removed);
    CHECK(again);
    CHECK(code == 0);
}

TEST_CASE("sync --watch of one file", "[cli][sync][watch]") {
    SyncWorld world;
    int code = -1;
    std::thread watching([&] { code = world.fake.tnr({"sync", "-w", world.tree + "/a", world.to()}); });
    bool first = comes_true([&] { return says(world.copy, "a"); });
    test::write_text(world.tree + "/beside", "b");
    fs::rename(world.tree + "/beside", world.tree + "/a");
    bool renamed = first && comes_true([&] { return says(world.copy, "b"); });
    interrupt::raise_for_test();
    watching.join();
    interrupt::clear_for_test();
    CHECK(first);
    CHECK(renamed);
    CHECK(code == 0);
}

TEST_CASE("sync --watch of two files in one folder, and of a folder and a file in it", "[cli][sync][watch]") {
    SyncWorld world;
    test::write_text(world.tree + "/c", "c");
    bool folder_too = GENERATE(false, true);
    std::string one = folder_too ? world.tree : world.tree + "/a",
                copy = folder_too ? world.copy + "/tree" : world.copy;
    Watching watching(world, {"sync", "-w", one, world.tree + "/c", world.to()});
    REQUIRE(comes_true([&] { return says(copy + "/a", "a") && says(world.copy + "/c", "c"); }));
    test::write_text(world.tree + "/a", "changed");
    CHECK(comes_true([&] { return says(copy + "/a", "changed"); }));
    test::write_text(world.tree + "/c", "changed");
    CHECK(comes_true([&] { return says(world.copy + "/c", "changed"); }));
}

TEST_CASE("sync --watch --no-ignore brings what is ignored, too", "[cli][sync][watch]") {
    SyncWorld world;
    fs::create_directory(world.tree + "/build");
    test::write_text(world.tree + "/.gitignore", "build\n");
    test::write_text(world.tree + "/build/x", "x");
    Watching watching(world, {"sync", "-w", "--no-ignore", world.tree, world.to()});
    REQUIRE(comes_true([&] { return says(world.copy + "/build/x", "x"); }));
    test::write_text(world.tree + "/build/x", "changed");
    CHECK(comes_true([&] { return says(world.copy + "/build/x", "changed"); }));
}

TEST_CASE("sync --watch of a folder that goes away and comes back goes on", "[cli][sync][watch]") {
    SyncWorld world;
    Watching watching(world, {"sync", "-w", "--delete", world.tree + "/", world.to()});
    REQUIRE(comes_true([&] { return says(world.copy + "/sub/b", "b"); }));
    fs::rename(world.tree, world.tree + ".old");
    std::this_thread::sleep_for(1s);  // so that it is seen gone
    CHECK(says(world.copy + "/sub/b", "b"));
    fs::create_directory(world.tree);
    test::write_text(world.tree + "/a", "from anew");
    CHECK(comes_true([&] { return says(world.copy + "/a", "from anew") && !fs::exists(world.copy + "/sub"); }));
    test::write_text(world.tree + "/a", "and later");
    CHECK(comes_true([&] { return says(world.copy + "/a", "and later"); }));
}

TEST_CASE("sync takes several sources, says what it would do, and leaves out what is ignored", "[cli][sync]") {
    SyncWorld world;
    test::write_text(world.tree + "/.gitignore", "*.o\n");
    test::write_text(world.tree + "/main.o", "object");
    CHECK(world.fake.tnr({"sync", "-n", world.tree, world.to()}) == 0);
    CHECK(world.fake.out.str().find("copy   " + world.copy + "/sub/b\n") != std::string::npos);
    CHECK(world.fake.out.str().find("Would copy 3 files") != std::string::npos);
    CHECK(world.fake.err.str().find("left out 1 that git or .tnrignore ignores") != std::string::npos);
    CHECK_FALSE(fs::exists(world.copy));

    CHECK(world.fake.tnr({"sync", world.tree, world.fake.folder / "tree/a", "demo:" + (world.there / "both")}) == 0);
    CHECK(fs::exists(world.there / "both/tree/sub/b"));
    CHECK(fs::exists(world.there / "both/a"));
    CHECK_FALSE(fs::exists(world.there / "both/tree/main.o"));
    CHECK(world.fake.tnr({"sync", "--no-ignore", world.tree, world.to()}) == 0);
    CHECK(fs::exists(world.copy + "/main.o"));

    test::write_text(world.copy + "/extra", "x");
    auto document = world.fake.document({"sync", "--delete", "--dry-run", world.tree, world.to()});
    CHECK(document["to_remove"] == nlohmann::json{"extra"});
    CHECK(document["dry_run"] == true);
    CHECK(fs::exists(world.copy + "/extra"));
    document = world.fake.document({"sync", "--delete", world.tree, world.to()});
    CHECK(document["removed"] == 1);
    CHECK_FALSE(fs::exists(world.copy + "/extra"));
    CHECK(fs::exists(world.copy + "/main.o"));  // ignored: not removed either

    for (const auto& wrong :
         std::vector<std::vector<std::string>>{{"sync", world.tree},
                                               {"sync", world.tree, world.tree},
                                               {"sync", "demo:a", "demo:b"},
                                               {"sync", world.tree, "demo:a", "demo:b"},
                                               {"sync", "-w", "demo:a", world.tree},
                                               {"sync", "--delete", world.tree, world.tree + "/sub", "demo:b"},
                                               {"sync", "--delete", world.tree + "/a", world.to()}}) {
        CHECK(world.fake.tnr(wrong) == 2);
    }
}

TEST_CASE("a server that somebody has changed on the machine is not run, but brought anew", "[cli][sync]") {
    SyncWorld world;
    CHECK(world.fake.tnr({"sync", world.tree, world.to()}) == 0);
    std::string server = fs::directory_iterator(world.cache / "tnr")->path();
    std::string proof = world.there / "was run";
    test::write_text(server, "#!/bin/sh\ntouch " + proof + "\n");
    test::write_text(world.tree + "/a", "changed");
    CHECK(world.fake.tnr({"sync", world.tree, world.to()}) == 0);
    CHECK(test::read_text(world.copy + "/a") == "changed");
    CHECK_FALSE(fs::exists(proof));
    CHECK(fs::file_size(server) > 1'000'000);
}

TEST_CASE("a login shell that talks is listened past", "[cli][sync]") {
    SyncWorld world;
    test::Sshd talking{"SetEnv XDG_CACHE_HOME=" + world.cache.path() +
                       "\nForceCommand echo Welcome to the machine; exec $SHELL -c \"$SSH_ORIGINAL_COMMAND\"\n"};
    world.fake.put_demo_at(talking);
    CHECK(world.fake.tnr({"sync", "-v", world.tree, world.to()}) == 0);
    INFO(world.fake.err.str());
    CHECK(world.fake.err.str().find("SFTP") == std::string::npos);
    CHECK(says(world.copy + "/sub/b", "b"));
}
