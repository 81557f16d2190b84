// Both ends of a sync: what arrives, what travels, what stays.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "cli/sync/engine/temporary.hpp"
#include "tests/cli/sync/ends.hpp"

using namespace tnr;
using namespace tnr::test::ends;

TEST_CASE("odd names, hard links, holes and changes of kind arrive as they are", "[sync][engine]") {
    test::TemporaryFolder from, to;
    const std::string root = from / "tree", copy = to / "tree";
    fs::create_directories(root + "/dir");
    for (const auto& name :
         std::vector<std::string>{"new\nline", "not utf-8 \xff\xfe", "-rf", "*", std::string(255, 'n'), " ", "\\"})
        test::write_text(root + "/" + name, name);
    test::write_text(root + "/dir/linked", "content");
    fs::create_hard_link(root + "/dir/linked", root + "/hard");
    {
        UniqueFd sparse{::open((root + "/sparse").c_str(), O_WRONLY | O_CREAT, 0600)};
        REQUIRE(::ftruncate(sparse.get(), 8 << 20) == 0);
        REQUIRE(::pwrite(sparse.get(), "x", 1, 4 << 20) == 1);
    }
    auto tally = downloaded({root, copy});
    CHECK(tally.files == 10);
    CHECK(tally.unreadable.empty());
    for (const auto& file : fs::directory_iterator(root))
        if (file.is_regular_file())
            CHECK(test::read_text(file.path()) == test::read_text(copy + "/" + file.path().filename().string()));
    struct stat found;
    REQUIRE(::stat((copy + "/sparse").c_str(), &found) == 0);
    CHECK(found.st_blocks * 512 < 1 << 20);
    CHECK(downloaded({root, copy}).files == 0);

    SECTION("a folder where a file was, and the other way round: only with --delete") {
        fs::remove(root + "/hard");
        fs::create_directories(root + "/hard/inner");
        fs::remove_all(root + "/dir");
        test::write_text(root + "/dir", "a file now");
        auto refused = download({root, copy});
        REQUIRE_FALSE(refused);
        CHECK(refused.error().what.find(" here, and ") != std::string::npos);
        CHECK(test::read_text(copy + "/dir/linked") == "content");
        sync::SyncSettings replace{root, copy};
        replace.remove_extra = true;
        downloaded(replace);
        CHECK(test::read_text(copy + "/dir") == "a file now");
        CHECK(fs::is_directory(copy + "/hard/inner"));
    }
}

TEST_CASE("of a changed file only what changed travels", "[sync][engine]") {
    test::TemporaryFolder from, to;
    const std::string before = random_bytes(8 << 20);
    std::string after = before;
    uint64_t most = 0;
    SECTION("in place") {
        for (size_t at = 100'000; at < after.size(); at += 1 << 20) after[at] ^= 1;
        most = 100'000;
    }
    SECTION("appended") {
        after += random_bytes(50'000, 2);
        most = 60'000;
    }
    SECTION("inserted at the beginning, so that nothing is at its place") {
        after.insert(0, random_bytes(10'000, 2));
        most = 60'000;
    }
    SECTION("a piece cut out of the middle") {
        after.erase(3'000'000, 12'345);
        most = 60'000;
    }
    SECTION("shorter") {
        after.resize(5'000'000);
        most = 60'000;
    }
    SECTION("all of it") {
        after = random_bytes(8 << 20, 3);
        most = (8 << 20) + 10'000;
    }
    test::write_text(from / "file", before);
    CHECK(downloaded({from / "file", to / "file"}).bytes == before.size());
    test::write_text(from / "file", after);
    auto tally = downloaded({from / "file", to / "file"});
    CHECK(tally.files == 1);
    CHECK(tally.bytes <= most);
    CHECK(test::read_text(to / "file") == after);
    CHECK(names_in(to.path()) == 1);
}

TEST_CASE("a part that an earlier run has left is gone on with, and a wrong one does no harm", "[sync][engine]") {
    test::TemporaryFolder from, to;
    const std::string content = random_bytes(24 << 20);
    test::write_text(from / "file", content);
    struct stat found;
    REQUIRE(::stat((from / "file").c_str(), &found) == 0);
    sync::Item item{"file", sync::Kind::file, content.size()};
    item.mtime = found.st_mtim.tv_sec;
    std::string part = to / sync::temporary_name("", sync::identity("file", item), 7);
    bool right = GENERATE(true, false);
    test::write_text(part, right ? content.substr(0, 16 << 20) : random_bytes(16 << 20, 9));
    auto tally = downloaded({from / "file", to / "file"});
    CHECK(tally.bytes <= (right ? (8u << 20) : content.size() + 100'000));
    CHECK(test::read_text(to / "file") == content);
    CHECK(names_in(to.path()) == 1);
}

TEST_CASE("--delete removes what the source does not have, and only then", "[sync][engine]") {
    test::TemporaryFolder from, to;
    fs::create_directories(from / "tree/sub");
    test::write_text(from / "tree/a", "a");
    test::write_text(from / "tree/sub/b", "b");
    test::write_text(from / "tree/.gitignore", "*.o\ncache/\n");
    sync::SyncSettings settings{from / "tree", to / "tree"};
    downloaded(settings);
    fs::create_directories(to / "tree/old/deep");
    fs::create_directories(to / "tree/sub/cache");
    for (auto name : {"extra", "main.o", "old/deep/file", "sub/extra", "sub/cache/thing"})
        test::write_text(to / ("tree/" + std::string(name)), "x");
    fs::create_symlink(from / "tree", to / "tree/link");

    SECTION("not unless asked") {
        CHECK(downloaded(settings).removed == 0);
        CHECK(fs::exists(to / "tree/extra"));
    }
    settings.remove_extra = true;
    SECTION("a dry run only says so") {
        settings.dry_run = true;
        test::write_text(from / "tree/new", "n");
        auto tally = downloaded(settings);
        CHECK(tally.removed == 4);
        CHECK(tally.removals.size() == 4);
        CHECK(tally.copies == std::vector<std::string>{to / "tree/new"});
        CHECK(fs::exists(to / "tree/extra"));
        CHECK_FALSE(fs::exists(to / "tree/new"));
    }
    SECTION("all but what rules leave out; links are not followed") {
        CHECK(downloaded(settings).removed == 4);
        CHECK_FALSE(fs::exists(to / "tree/extra"));
        CHECK_FALSE(fs::exists(to / "tree/old"));
        CHECK_FALSE(fs::exists(to / "tree/sub/extra"));
        CHECK(fs::exists(to / "tree/main.o"));
        CHECK(fs::exists(to / "tree/sub/cache/thing"));
        CHECK(fs::exists(from / "tree/a"));
    }
    SECTION("an empty source is refused") {
        fs::remove_all(from / "tree");
        fs::create_directory(from / "tree");
        auto refused = download(settings);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().what.find("the source is empty") != std::string::npos);
        CHECK(fs::exists(to / "tree/extra"));
    }
    SECTION("what could not all be listed removes nothing") {
        // A listing that says so; root is denied nothing.
        std::vector<sync::Message> messages = {entry(0, "", sync::Kind::folder), entry(1, "a", sync::Kind::other),
                                               message(sync::Says::list_end).number(1).number(0)};
        Pair pair;
        auto other = std::async(std::launch::async, [&] {
            sync::Outbox outbox(pair.one.get());
            for (const auto& each : messages) outbox.send(each);
            outbox.finish();
            char bytes[4096];
            while (::read(pair.one.get(), bytes, sizeof bytes) > 0) {
            }
        });
        auto tally = run_end(&sync::receive_tree, pair.other, settings);
        other.get();
        REQUIRE(tally);
        CHECK(tally->nothing_removed);
        CHECK(fs::exists(to / "tree/extra"));
    }
}

TEST_CASE("a file that changes while it is read never arrives mixed", "[sync][engine]") {
    test::TemporaryFolder from, to;
    const std::string one(6 << 20, 'a'), other(6 << 20, 'b');
    test::write_text(from / "file", one);
    std::atomic<bool> over{false};
    std::thread writer([&] {
        for (bool a = false; !over; a = !a) {
            UniqueFd fd{::open((from / "file").c_str(), O_WRONLY)};
            const std::string& content = a ? one : other;
            for (size_t at = 0; at < content.size() && !over; at += 4096)
                (void)!::pwrite(fd.get(), content.data() + at, 4096, static_cast<off_t>(at));
        }
    });
    for (int i = 0; i < 5; ++i) {
        auto tally = download({from / "file", to / "file"});
        if (!tally) FAIL(tally.error().what);
        if (fs::exists(to / "file")) CHECK(fs::file_size(to / "file") == one.size());
        // A copy that was taken while the writer wrote is told as such and not kept.
        CHECK(tally->files + tally->unreadable.size() + tally->unchanged == 1);
    }
    over = true;
    writer.join();
    auto tally = download({from / "file", to / "file"});
    REQUIRE(tally);
    CHECK(test::read_text(to / "file") == test::read_text(from / "file"));
}

TEST_CASE("of a large file that changes on the way, or goes away, no part is left", "[sync][engine]") {
    test::TemporaryFolder to;
    const uint64_t size = sync::resume_bytes_min + 9;
    auto begin = [&] { return message(sync::Says::begin).number(1).number(size).number(0644).time(1, 0); };
    std::vector<sync::Message> messages = {entry(0, "", sync::Kind::folder),
                                           entry(1, "log", sync::Kind::file, "", size),
                                           message(sync::Says::list_end).number(0).number(0), begin(),
                                           message(sync::Says::zeros).number(sync::resume_bytes_min)};
    SECTION("it is begun anew, and given up") {
        messages.push_back(begin());
        messages.push_back(message(sync::Says::zeros).number(sync::resume_bytes_min));
        messages.push_back(message(sync::Says::dropped).number(1));
        REQUIRE(receive_from(messages, to / "copy"));
        CHECK(names_in(to / "copy") == 0);
    }
    SECTION("it has become small") {
        messages.push_back(small(1, "short"));
        REQUIRE(receive_from(messages, to / "copy"));
        CHECK(names_in(to / "copy") == 1);
        CHECK(test::read_text(to / "copy/log") == "short");
    }
    SECTION("but when the connection breaks the next run goes on with it") {
        REQUIRE_FALSE(receive_from(messages, to / "copy"));
        CHECK(names_in(to / "copy") == 1);
        CHECK_FALSE(fs::exists(to / "copy/log"));
    }
}

namespace {

int mode_at(const std::string& path) {
    struct stat found;
    return ::stat(path.c_str(), &found) == 0 ? static_cast<int>(found.st_mode & 0777) : -1;
}

// A receiver in a process of its own that has got these messages, and waits for more.
pid_t receiver_of(const std::vector<sync::Message>& messages, const std::string& to, const Pair& pair) {
    const pid_t child = ::fork();
    if (child == 0) {
        (void)run_end(&sync::receive_tree, pair.other, {"source", to, "m"});
        ::_exit(0);
    }
    sync::Outbox outbox(pair.one.get());
    for (const auto& each : messages) outbox.send(each);
    outbox.finish();
    return child;
}

}  // namespace

TEST_CASE("the next sync closes a read-only folder that one killed midway has left open", "[sync][engine]") {
    test::TemporaryFolder world;
    // The source tells what the mode of a folder below is; of the destination itself only its owner can.
    const std::string shut = GENERATE("/shut", "");
    CAPTURE(shut);
    const std::string source = world / "from/tree", copy = world / "to/tree";
    fs::create_directories(source + "/shut");
    fs::create_directories(copy + "/shut");
    test::write_text(source + "/shut/file", "new");
    test::write_text(source + "/file", "new");
    if (!shut.empty()) REQUIRE(::chmod((source + shut).c_str(), 0555) == 0);
    REQUIRE(::chmod((copy + shut).c_str(), 0555) == 0);
    const Pair pair;
    const uint64_t parent = shut.empty() ? 1 : 2;
    const pid_t killed =
        receiver_of({entry(0, "", sync::Kind::folder), entry(1, "shut", sync::Kind::folder),
                     entry(parent, "file", sync::Kind::file, "", 3), entry(parent, "never", sync::Kind::file),
                     message(sync::Says::list_end).number(0).number(0), small(2, "new")},
                    copy, pair);
    REQUIRE(killed > 0);
    for (int i = 0; i < 60'000 && !fs::exists(copy + shut + "/file"); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(killed, SIGKILL);
    ::waitpid(killed, nullptr, 0);
    REQUIRE(test::read_text(copy + shut + "/file") == "new");
    CHECK(mode_at(copy + shut) == 0755);
    downloaded({source, copy});
    CHECK(mode_at(copy + shut) == 0555);
    std::set<std::string> names;
    for (const auto& each : fs::directory_iterator(copy)) names.insert(each.path().filename());
    CHECK(names == std::set<std::string>{"file", "shut"});
    for (const auto& folder : {source, copy}) ::chmod((folder + shut).c_str(), 0755);  // to be removed
}
