// Trees that make trouble: paths that are too long, folders that cannot be read to their end, trees that go away, and others who
// copy into the same destination.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "cli/sync/engine/ignore.hpp"
#include "tests/cli/sync/ends.hpp"

using namespace tnr;
using namespace tnr::test::ends;

namespace {

// A folder that fails as it does on a failing disk or network.
std::atomic<ino_t> failing_folder{0};
std::atomic<int> entries_before{0};

}  // namespace

// Instead of the C library's.
extern "C" dirent* readdir(DIR* folder) {
    static auto real = reinterpret_cast<dirent* (*)(DIR*)>(::dlsym(RTLD_NEXT, "readdir"));
    struct stat own;
    if (::fstat(::dirfd(folder), &own) != 0 || own.st_ino != failing_folder || entries_before-- > 0)
        return real(folder);
    errno = EIO;
    return nullptr;
}

TEST_CASE("a folder that could not be read to its end is told of, and --delete removes nothing", "[sync][engine]") {
    test::TemporaryFolder from, to;
    fs::create_directories(from / "tree/sub");
    for (auto name : {"a", "b", "sub/c", "sub/d"}) test::write_text(from / ("tree/" + std::string(name)), name);
    sync::SyncSettings settings{from / "tree", to / "tree"};
    settings.remove_extra = true;
    downloaded(settings);
    std::string folder = from / GENERATE("tree", "tree/sub");
    struct stat found;
    REQUIRE(::stat(folder.c_str(), &found) == 0);
    entries_before = GENERATE(0, 3);
    failing_folder = found.st_ino;
    auto tally = download(settings);
    failing_folder = 0;
    REQUIRE(tally);
    REQUIRE(tally->unreadable.size() == 1);
    CHECK(tally->unreadable[0].what == "cannot read m:" + folder + ": Input/output error");
    CHECK(tally->nothing_removed);
    for (auto name : {"a", "b", "sub/c", "sub/d"}) CHECK(fs::exists(to / ("tree/" + std::string(name))));
}

TEST_CASE("paths that are longer than a path can be are told of, and all others are copied", "[sync][engine]") {
    test::TemporaryFolder from, to;
    fs::create_directories(from / "tree");
    test::write_text(from / "tree/file", "content");
    UniqueFd at{::open((from / "tree").c_str(), O_RDONLY | O_DIRECTORY)};
    const std::string name(100, 'd');
    for (int depth = 0; depth < 60; ++depth) {  // 6,060 letters
        REQUIRE(::mkdirat(at.get(), name.c_str(), 0755) == 0);
        at.reset(::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY));
        UniqueFd file{::openat(at.get(), std::string(250, 'f').c_str(), O_WRONLY | O_CREAT, 0644)};
        REQUIRE(::write(file.get(), "x", 1) == 1);
    }
    auto tally = download({from / "tree", to / "tree"});
    if (!tally) FAIL(tally.error().what);
    CHECK(tally->files > 30);
    REQUIRE_FALSE(tally->unreadable.empty());
    for (const auto& error : tally->unreadable) CHECK(error.what.find("File name too long") != std::string::npos);
    CHECK(test::read_text(to / "tree/file") == "content");
    at.reset();
    for (const auto& root : {from / "tree", to / "tree"})  // longer than std::filesystem likes
        REQUIRE(std::system(("rm -rf '" + root + "'").c_str()) == 0);
}

TEST_CASE("two syncs into one destination at once both come to their end", "[sync][engine]") {
    test::TemporaryFolder from, to;
    for (int i = 0; i < 20; ++i) {
        std::string folder = from / ("tree/" + std::to_string(i) + "/a/b/c");
        fs::create_directories(folder);
        fs::create_symlink("nowhere", folder + "/link");
        for (int k = 0; k < 10; ++k) test::write_text(folder + "/" + std::to_string(k), random_bytes(1000));
    }
    const std::string large = random_bytes(12 << 20);
    test::write_text(from / "tree/large", large);
    for (int round = 0; round < 8; ++round) {
        auto other = std::async(std::launch::async, [&] {
            Pair pair;
            return both_ends({from / "tree", to / "tree"}, pair.one, pair.other).receiver;
        });
        if (round % 2) ::usleep(30'000);
        auto one = download({from / "tree", to / "tree"});
        auto two = other.get();
        INFO((one ? "" : one.error().what) << (two ? "" : two.error().what));
        CHECK(one);
        CHECK(two);
        CHECK(test::read_text(to / "tree/large") == large);
        CHECK(names_in(to / "tree") == 21);
        CHECK(names_in(to / "tree/19/a/b/c") == 11);
        fs::remove_all(to / "tree");
    }
}

TEST_CASE("a tree that goes away while it is copied ends the sync, and leaves only whole files", "[sync][engine]") {
    for (int round = 0; round < 8; ++round) {
        test::TemporaryFolder from, to;
        for (int i = 0; i < 20; ++i) {
            fs::create_directories(from / ("tree/" + std::to_string(i)));
            for (int k = 0; k < 20; ++k)
                test::write_text(from / ("tree/" + std::to_string(i) + "/" + std::to_string(k)), "content");
        }
        std::thread remover([&] {
            ::usleep(static_cast<useconds_t>(round * 2000));
            fs::remove_all(from / "tree");
        });
        auto tally = download({from / "tree", to / "tree"});
        remover.join();
        if (!tally) CHECK(tally.error().what.find("cannot read") == 0);
        if (!fs::exists(to / "tree")) continue;
        for (const auto& entry : fs::recursive_directory_iterator(to / "tree"))
            if (entry.is_regular_file()) CHECK(test::read_text(entry.path()) == "content");
    }
}

TEST_CASE("rules that are long are heeded, and none that was cut off", "[sync][engine]") {
    test::TemporaryFolder from, to;
    fs::create_directories(from / "tree");
    std::string rules;
    for (int i = 0; i < 6000; ++i) rules += "/folder/of/objects/" + std::to_string(i) + ".o\n";
    test::write_text(from / "tree/.tnrignore", rules + "*.log\n");
    while (rules.size() < sync::ignore_bytes_max - 2) rules += "#";
    test::write_text(from / "tree/.gitignore", rules + "\n*.o\n");  // the limit is behind the star
    for (auto name : {"a.log", "b.o", "c"}) test::write_text(from / ("tree/" + std::string(name)), name);
    CHECK(downloaded({from / "tree", to / "tree"}).files == 4);
    CHECK_FALSE(fs::exists(to / "tree/a.log"));
    CHECK(fs::exists(to / "tree/b.o"));
    CHECK(fs::exists(to / "tree/c"));
}

TEST_CASE("a tree of more levels than a process may open files comes and goes", "[sync][engine]") {
    test::TemporaryFolder from, to;
    fs::create_directories(from / "tree");
    UniqueFd at{::open((from / "tree").c_str(), O_RDONLY | O_DIRECTORY)};
    for (int depth = 0; depth < 900; ++depth) {
        REQUIRE(::mkdirat(at.get(), "d", 0755) == 0);
        at.reset(::openat(at.get(), "d", O_RDONLY | O_DIRECTORY));
    }
    ::close(::openat(at.get(), "file", O_WRONLY | O_CREAT, 0644));
    at.reset();
    test::write_text(from / "tree/stays", "x");
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit few = before;
    few.rlim_cur = 200;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    sync::SyncSettings settings{from / "tree", to / "tree"};
    settings.remove_extra = true;
    auto came = download(settings);
    REQUIRE(std::system(("rm -rf '" + (from / "tree/d") + "'").c_str()) == 0);
    auto went = download(settings);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    REQUIRE(came);
    CHECK(came->files == 2);
    REQUIRE(went);
    CHECK(went->removed == 1);
    CHECK(went->unreadable.empty());
    CHECK(names_in(to / "tree") == 1);
    REQUIRE(std::system(("rm -rf '" + (to / "tree/d") + "'").c_str()) == 0);
}
