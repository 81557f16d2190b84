// What git says of a folder from outside of it: git itself is asked whether we have understood.
#include "cli/sync/engine/repository.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "cli/sync/engine/ignore.hpp"
#include "tests/cli/sync/ends.hpp"
#include "tests/cli/sync/random_rules.hpp"

using namespace tnr;
using namespace tnr::test::ends;
using namespace tnr::test::random_rules;

namespace {

using PathSet = std::set<std::string>;

// A repository whose user has a home of the test's own.
struct GitWorld {
    test::TemporaryFolder folder;
    const std::string tree = folder / "tree";
    // The environment is put back: other tests of this process have theirs.
    struct Variable {
        std::string name, before;
        bool was_set;
        Variable(std::string variable, const std::string& value) : name(std::move(variable)) {
            const char* found = std::getenv(name.c_str());
            was_set = found;
            before = found ? found : "";
            ::setenv(name.c_str(), value.c_str(), 1);
        }
        ~Variable() { was_set ? ::setenv(name.c_str(), before.c_str(), 1) : ::unsetenv(name.c_str()); }
    };
    Variable home{"HOME", folder / "home"}, config{"XDG_CONFIG_HOME", folder / "home/.config"};

    GitWorld() {
        fs::create_directories(folder / "home/.config/git");
        fs::create_directories(tree);
    }
    int git(const std::string& words, const std::string& where) const {
        const std::string command = "git -C '" + where + "' " + words + " >" + (folder / "said") + " 2>/dev/null";
        const int code = std::system(command.c_str());
        return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
    }
    void write(const std::string& path, const std::string& text = "x") const {
        fs::create_directories(fs::path(tree + "/" + path).parent_path());
        test::write_text(tree + "/" + path, text);
    }
    PathSet said(char end = '\0') const {
        PathSet paths;
        const std::string text = test::read_text(folder / "said");
        for (size_t at = 0, next; at < text.size(); at = next + 1) {
            next = std::min(text.find(end, at), text.size());
            paths.insert(text.substr(at, next - at));
        }
        return paths;
    }
};

bool there_is_git() {
    if (std::system("git --version >/dev/null 2>&1") == 0) return true;
    WARN("there is no git to compare with");
    return false;
}

// Files and links; git knows of no folders.
PathSet walked_files(const std::string& root) {
    PathSet paths;
    REQUIRE(sync::walk_tree(root, {}, [&](const sync::Item& item, const auto&) {
        if (item.kind != sync::Kind::folder && item.path.compare(0, 5, ".git/") != 0) paths.insert(item.path);
        return true;
    }));
    return paths;
}

PathSet there_by_git(const GitWorld& world, const std::string& root) {
    REQUIRE(world.git("ls-files -z -c -o --exclude-standard", root) == 0);
    PathSet paths = world.said();
    std::erase_if(paths, [&](const std::string& path) {
        struct stat found;  // tracked, and removed since
        return ::lstat((root + "/" + path).c_str(), &found) != 0;
    });
    return paths;
}

}  // namespace

TEST_CASE("of a repository's folder that is copied which git lists, whatever its rules and its index are",
          "[sync][ignore]") {
    if (!there_is_git()) return;
    unsigned seed = std::random_device{}();
    if (const char* given = std::getenv("TNR_TEST_SEED")) seed = static_cast<unsigned>(std::atoi(given));
    size_t tracked = 0, from_above = 0, whole = 0;
    // Chance may give few of a kind: then there are more rounds.
    const auto enough = [&] { return tracked > 10 && from_above > 10 && whole > 0; };
    for (unsigned round = 0; round < 40 || (round < 400 && !enough()); ++round) {
        GitWorld world;
        Random random(seed + round);
        random_tree(random, world.tree, 3);
        std::string rules;
        for (const auto& each : some_folders(random, world.tree)) {
            test::write_text(each + "/.gitignore", random_rules_text(random));
            rules += each + ":\n" + test::read_text(each + "/.gitignore");
        }
        REQUIRE(world.git("init -q", world.tree) == 0);
        test::write_text(world.tree + "/.git/info/exclude", random_rules_text(random));
        const std::string excludes = world.folder / (random.one_in(2) ? "home/.config/git/ignore" : "home/own");
        test::write_text(excludes, random_rules_text(random));
        if (excludes.ends_with("own")) REQUIRE(world.git("config --global core.excludesFile '~/own'", world.tree) == 0);
        rules += "exclude:\n" + test::read_text(world.tree + "/.git/info/exclude") + excludes + ":\n" +
                 test::read_text(excludes);
        std::vector<std::string> folders = {world.tree};
        for (const auto& entry : fs::recursive_directory_iterator(world.tree)) {
            if (entry.path().string().find("/.git/") != std::string::npos || entry.path().filename() == ".git")
                continue;
            if (entry.is_directory() && !entry.is_symlink())
                folders.push_back(entry.path());
            else if (random.one_in(3))
                (void)world.git("--literal-pathspecs add -f -- '" + entry.path().string() + "'", world.tree);
        }
        const std::string root = folders[random.below(folders.size())];
        INFO("TNR_TEST_SEED=" << seed + round << "\n" << root << "\n" << rules);
        const auto found = sync::repository_of(root);
        REQUIRE(found);
        const sync::Repository& repository = *found;
        if (root != world.tree && world.git("check-ignore --no-index -q -- '" + root + "'", world.tree) == 0) {
            CHECK(repository.rules == nullptr);
            ++whole;
            continue;
        }
        CHECK(walked_files(root) == there_by_git(world, root));
        tracked += repository.tracked.size();
        from_above += repository.rules != nullptr;
    }
    CHECK(enough());
}

TEST_CASE("what git tracks is copied in spite of .gitignore, but not of .tnrignore", "[sync][ignore]") {
    if (!there_is_git()) return;
    GitWorld world;
    REQUIRE(world.git("init -q", world.tree) == 0);
    for (auto path : {"build/kept", "build/deep/kept", "build/x.o", "a.o", "b.o", "data/large", "src/own", "src/c.o"})
        world.write(path);
    REQUIRE(world.git("add build/kept build/deep/kept a.o data/large src/own", world.tree) == 0);
    world.write(".gitignore", "build/\n*.o\n");
    world.write(".tnrignore", "data\n");
    CHECK(walked_files(world.tree) ==
          PathSet{".gitignore", ".tnrignore", "a.o", "build/deep/kept", "build/kept", "src/own"});
    SECTION("--delete spares what the same folders have there") {
        sync::SyncSettings settings{world.tree, world.folder / "copy"};
        downloaded(settings);
        for (auto path : {"build/there", "build/deep/there", "b.o", "data/there", "src/there"}) {
            fs::create_directories(fs::path(settings.to + "/" + path).parent_path());
            test::write_text(settings.to + "/" + path, "x");
        }
        settings.remove_extra = true;
        CHECK(downloaded(settings).removed == 1);
        CHECK_FALSE(fs::exists(settings.to + "/src/there"));
        for (auto path : {"build/there", "build/deep/there", "b.o", "data/there"})
            CHECK(fs::exists(settings.to + "/" + path));
    }
}

TEST_CASE("rules above the source go with it, also for --delete", "[sync][ignore]") {
    if (!there_is_git()) return;
    GitWorld world;
    REQUIRE(world.git("init -q", world.tree) == 0);
    world.write(".gitignore", "*.log\n/app/src/made\n");
    world.write(".git/info/exclude", "private\n");
    world.write("app/.gitignore", "!keep.log\n");
    world.write("app/.tnrignore", "src/large\n");
    test::write_text(world.folder / "home/.config/git/ignore", "*~\n");
    for (auto path : {"a", "a~", "a.log", "keep.log", "made", "private", "large", "sub/made"})
        world.write(std::string("app/src/") + path);
    const std::string root = world.tree + "/app/src";
    CHECK(walked_files(root) == PathSet{"a", "keep.log", "sub/made"});
    sync::SyncSettings settings{root, world.folder / "copy"};
    downloaded(settings);
    for (auto name : {"b~", "b.log", "made", "private", "large", "extra"})
        test::write_text(settings.to + "/" + name, "x");
    settings.remove_extra = true;
    CHECK(downloaded(settings).removed == 1);
    CHECK(names_in(settings.to) == 8);
    SECTION("not when they leave out the source itself: who names it wants it") {
        world.write(".gitignore", "*\n");  // as who keeps their home in git has it
        CHECK(walked_files(root).count("a.log") == 1);
    }
    SECTION("not beyond the repository") {
        test::write_text(world.folder / ".gitignore", "*\n");
        CHECK(walked_files(root) == PathSet{"a", "keep.log", "sub/made"});
    }
    const PathSet everything = {"a", "a~", "a.log", "keep.log", "large", "made", "private", "sub/made"};
    SECTION("not where git is missing") {
        GitWorld::Variable path("PATH", "/nowhere");
        CHECK(walked_files(root) == everything);
    }
    SECTION("not where git refuses, as in a stranger's repository") {
        world.write(".git/config", "[core]\n\trepositoryformatversion = 99\n");
        CHECK(walked_files(root) == everything);
    }
}

TEST_CASE("of .git .gitignore leaves out nothing, as git does", "[sync][ignore]") {
    GitWorld world;
    world.write(".git/logs/HEAD");
    world.write("sub/.git/config");
    for (auto path : {"logs/a", "sub/config", "src/a"}) world.write(path);
    world.write(".gitignore", "*\n!src\n!src/a\n!sub\n");
    const auto all = [&] {
        PathSet paths;
        REQUIRE(sync::walk_tree(world.tree, {}, [&](const sync::Item& item, const auto&) {
            if (item.kind == sync::Kind::file) paths.insert(item.path);
            return true;
        }));
        return paths;
    };
    CHECK(all() == PathSet{".git/logs/HEAD", "src/a", "sub/.git/config"});
    world.write(".tnrignore", "logs\nsub/.git\n");
    CHECK(all() == PathSet{"src/a"});
}

TEST_CASE("where git is killed or takes too long nothing is copied, as nobody knows what it leaves out",
          "[sync][ignore]") {
    GitWorld world;
    world.write(".git/HEAD");
    world.write("a");
    world.write("programs/git", "#!/bin/sh\nexec sleep 60\n");
    const std::string program = world.tree + "/programs/git";
    REQUIRE(::chmod(program.c_str(), 0755) == 0);
    const GitWorld::Variable path("PATH", world.tree + "/programs:" + std::getenv("PATH"));
    auto slow = sync::repository_of(world.tree, std::chrono::milliseconds(50));
    REQUIRE(!slow);
    CHECK(slow.error().what == "git does not say what it leaves out of " + world.tree + ": it takes too long");
    world.write("programs/git", "#!/bin/sh\nkill -9 $$\n");
    auto killed = sync::walk_tree(world.tree, {}, [](const sync::Item&, const auto&) { return true; });
    REQUIRE(!killed);
    CHECK(killed.error().what == "git does not say what it leaves out of " + world.tree + ": it was killed");
    CHECK(killed.error().hint == "--no-ignore copies without asking it");
    CHECK(sync::walk_tree(world.tree, {false, {}}, [](const sync::Item&, const auto&) { return true; }));
}

TEST_CASE("what a repository names elsewhere is not read: rules go to the machine", "[sync][ignore]") {
    if (!there_is_git()) return;
    GitWorld world;
    REQUIRE(world.git("init -q", world.tree) == 0);
    test::write_text(world.folder / "secret", "a\n");
    REQUIRE(world.git("config core.excludesFile " + (world.folder / "secret"), world.tree) == 0);
    fs::remove(world.tree + "/.git/info/exclude");
    fs::create_symlink(world.folder / "secret", world.tree + "/.git/info/exclude");
    world.write("a");
    CHECK(walked_files(world.tree) == PathSet{"a"});
    auto repository = sync::repository_of(world.tree);
    REQUIRE(repository);
    CHECK(repository->rules == nullptr);
}

TEST_CASE("worktrees are known, and what points git elsewhere is not heeded", "[sync][ignore]") {
    if (!there_is_git()) return;
    GitWorld world;
    REQUIRE(world.git("init -q", world.tree) == 0);
    REQUIRE(world.git("-c user.name=n -c user.email=e commit -q --allow-empty -m m", world.tree) == 0);
    REQUIRE(world.git("worktree add -q " + (world.folder / "second"), world.tree) == 0);
    world.write(".git/info/exclude", "private\n");
    for (auto name : {"private", "a"}) test::write_text(world.folder / "second/" + name, "x");
    const GitWorld::Variable elsewhere("GIT_DIR", world.folder / "nowhere");
    CHECK(walked_files(world.folder / "second") == PathSet{".git", "a"});
}

TEST_CASE("nothing that a repository's settings name is run", "[sync][ignore]") {
    if (!there_is_git()) return;
    GitWorld world;
    REQUIRE(world.git("init -q", world.tree) == 0);
    const std::string ran = world.folder / "ran", program = world.folder / "program";
    test::write_text(program, "#!/bin/sh\ntouch " + ran + "\n");
    REQUIRE(::chmod(program.c_str(), 0755) == 0);
    for (std::string name : {"core.fsmonitor", "core.pager", "core.editor", "pager.ls-files", "alias.ls-files"})
        REQUIRE(world.git("config " + name + " " + program, world.tree) == 0);
    world.write("a.o");
    REQUIRE(world.git("-c core.fsmonitor=false add a.o", world.tree) == 0);
    world.write(".gitignore", "*.o\n");
    CHECK(walked_files(world.tree) == PathSet{".gitignore", "a.o"});
    CHECK_FALSE(fs::exists(ran));
}
