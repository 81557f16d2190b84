// Dice trees, changed at random at both ends; and ends that are killed at random moments.
#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "tests/cli/sync/ends.hpp"

using namespace tnr;
using namespace tnr::test::ends;

namespace {

class Dice {
public:
    explicit Dice(unsigned seed) : engine_(seed) {}
    size_t below(size_t count) { return engine_() % count; }
    bool one_in(size_t count) { return below(count) == 0; }
    std::string name() {
        static const std::vector<std::string> plain = {"a",   "b",         "c",        "dir", "x y",
                                                       "-rf", "new\nline", "\xff\xfe", "é"};
        if (!one_in(4)) return plain[below(plain.size())];
        std::string name(1 + below(one_in(8) ? 255 : 6), 'n');
        for (char& letter : name)
            while ((letter = static_cast<char>(1 + below(255))) == '/') {
            }
        return name == "." || name == ".." ? "dots" : name;
    }
    std::string content() {
        static const size_t sizes[] = {0, 1, 100, 5'000, 131'071, 131'072, 131'073, 700'000, 3'000'000};
        size_t size = sizes[below(one_in(4) ? std::size(sizes) : 4)];
        std::string bytes = random_bytes(size, static_cast<unsigned>(engine_()));
        if (one_in(3)) std::fill(bytes.begin() + static_cast<long>(below(size + 1)), bytes.end(), '\0');
        return bytes;
    }

private:
    std::mt19937 engine_;
};

unsigned seed_of_this_run() {
    const char* given = std::getenv("TNR_TEST_SEED");
    return given ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
}

std::vector<std::string> everything(const std::string& root) {
    std::vector<std::string> paths;
    for (const auto& entry : fs::recursive_directory_iterator(root)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    return paths;
}

bool is_folder(const std::string& path) {
    return fs::is_directory(fs::symlink_status(path));
}

// What is as long and as old counts as unchanged, as with rsync, and the kernel's clock ticks every few milliseconds only.
void set_time_of_its_own(const std::string& path) {
    static time_t last = 1'700'000'000;
    const timespec time{++last, 0};
    const timespec both[2] = {time, time};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), both, AT_SYMLINK_NOFOLLOW) == 0);
}

void put_something(Dice& random, const std::string& path, bool links) {
    if (random.one_in(3))
        fs::create_directory(path);
    else if (links && random.one_in(6))
        fs::create_symlink(random.one_in(2) ? random.name() : "..", path);
    else if (random.one_in(20))
        REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    else {
        test::write_text(path, random.content());
        set_time_of_its_own(path);
    }
}

// In place, so that only a part of it is another one.
void change_content(Dice& random, const std::string& path) {
    UniqueFd fd{::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW)};
    struct stat found;
    if (!fd || ::fstat(fd.get(), &found) != 0 || !S_ISREG(found.st_mode)) return;
    auto size = static_cast<size_t>(found.st_size);
    std::string piece = random_bytes(8 * (1 + random.below(300)), static_cast<unsigned>(random.below(1000)));
    size_t at = random.below(size + 1);
    REQUIRE(::pwrite(fd.get(), piece.data(), piece.size(), static_cast<off_t>(at)) > 0);
    if (random.one_in(4)) REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(random.below(size + 1))) == 0);
    set_time_of_its_own(path);
}

void change_times_or_mode(Dice& random, const std::string& path) {
    static const time_t times[] = {-5'000'000'000, -1, 0, 1, 1'000'000'000, 4'294'967'297, 8'000'000'000};
    timespec time{times[random.below(std::size(times))], static_cast<long>(random.below(1'000'000'000))};
    timespec both[2] = {time, time};
    if (random.one_in(2))
        ::utimensat(AT_FDCWD, path.c_str(), both, AT_SYMLINK_NOFOLLOW);
    else if (!fs::is_symlink(fs::symlink_status(path)))
        ::chmod(path.c_str(), static_cast<mode_t>(random.below(0777) | (is_folder(path) ? 0700 : 0)));
}

void change(Dice& random, const std::string& root, bool links) {
    auto all = everything(root);
    std::string path = all.empty() || random.one_in(4) ? root : all[random.below(all.size())];
    std::string folder = is_folder(path) ? path : fs::path(path).parent_path().string();
    std::string fresh = folder + "/" + random.name();
    if (folder.size() < root.size() + 1500 && !fs::exists(fs::symlink_status(fresh)) && random.one_in(2))
        return put_something(random, fresh, links);
    if (path == root) return;
    if (random.one_in(4))
        change_times_or_mode(random, path);
    else if (random.one_in(4))
        fs::remove_all(path), put_something(random, path, links);
    else if (random.one_in(5))
        fs::remove_all(path);
    else
        change_content(random, path);
}

// What must be the same of one thing in both trees.
std::string told(const std::string& path) {
    struct stat found;
    REQUIRE(::lstat(path.c_str(), &found) == 0);
    std::string time = std::to_string(found.st_mtim.tv_sec) + "." + std::to_string(found.st_mtim.tv_nsec);
    if (S_ISLNK(found.st_mode)) return "link " + fs::read_symlink(path).string();
    std::string kind = std::to_string(found.st_mode);
    return S_ISREG(found.st_mode) ? kind + " " + time + " " + sync::digest_of(test::read_text(path))
                                  : kind + " " + time;
}

// Without FIFOs, which are left out, and what is in their places at the other end, which stays.
std::map<std::string, std::string> told_of_tree(const std::string& root, const std::string& source) {
    std::map<std::string, std::string> all;
    for (const auto& path : everything(root)) {
        std::string below = path.substr(root.size());
        bool pipe = false;
        for (fs::path above = below; above.has_relative_path(); above = above.parent_path())
            pipe = pipe || fs::is_fifo(fs::symlink_status(source + above.string()));
        if (!pipe) all[below] = told(path);
    }
    return all;
}

// The server's end receives: an upload.
Result<sync::Tally> upload(sync::SyncSettings settings) {
    Pair pair;
    sync::SyncSettings there = settings;
    there.here = false;
    there.machine = settings.machine = "m";
    auto received = std::async(std::launch::async, [&] { return run_end(&sync::receive_tree, pair.one, there); });
    auto sent = run_end(&sync::send_tree, pair.other, settings);
    (void)received.get();
    return sent;
}

// At once: test::read_text goes byte by byte, which takes a while with so many megabytes.
std::string digest_of_file(const std::string& path) {
    std::string content(fs::file_size(path), '\0');
    REQUIRE(std::ifstream(path, std::ios::binary).read(content.data(), static_cast<std::streamsize>(content.size())));
    return sync::digest_of(content);
}

// A tree whose files change all at once, and a copy of it that may be cut off anywhere.
class ChangingTree {
public:
    ChangingTree(Dice& random, const sync::SyncSettings& settings)
        : random_(random), from_(settings.from), to_(settings.to) {
        fs::create_directories(from_ + "/sub");
    }
    void change() {
        for (int i = 0; i < 60; ++i) next_version((i % 2 ? "sub/" : "") + std::to_string(i), 3000);
        next_version("large", 3 << 20);
        next_version("sub/larger", 10 << 20);  // what has come of it is used again
    }
    void forget_copy() {
        fs::remove_all(to_);
        copied_.clear();
    }
    // Each file is what it once was; one that is not there has not been there before, either.
    void check_whole() {
        for (const auto& [name, versions] : versions_) {
            INFO(name);
            const std::string copy = to_ + "/" + name;
            if (!fs::exists(copy) && !copied_.count(name)) continue;
            copied_.insert(name);
            CHECK(versions.count(digest_of_file(copy)) == 1);
        }
    }
    void check_newest() {
        for (const auto& [name, content] : newest_) {
            INFO(name);
            copied_.insert(name);
            CHECK((digest_of_file(to_ + "/" + name) == sync::digest_of(content)));
        }
    }

private:
    // Longer than all before it: what is as long and as old counts as unchanged, and two changes may come within one
    // tick of the kernel's clock.
    void next_version(const std::string& name, size_t size) {
        std::string& content = newest_[name];
        if (content.empty()) content = random_bytes(size);
        for (int i = 0; i < 5; ++i) content[random_.below(content.size())] ^= 1;
        content += random_bytes(8 * (1 + random_.below(200)), static_cast<unsigned>(random_.below(1000)));
        test::write_text(from_ + "/" + name, content);
        versions_[name].insert(sync::digest_of(content));
    }

    Dice& random_;
    const std::string from_, to_;
    std::map<std::string, std::string> newest_;
    std::map<std::string, std::set<std::string>> versions_;  // of each file, the digests of all that it ever was
    std::set<std::string> copied_;
};

// Both ends of a download, each a process of its own.
class Processes {
public:
    explicit Processes(sync::SyncSettings settings) {
        Pair pair;
        settings.machine = "m";
        settings.here = false;
        children_[0] = begin(&sync::send_tree, pair.one, pair.other, settings);
        settings.here = true;
        children_[1] = begin(&sync::receive_tree, pair.other, pair.one, settings);
    }
    void kill(size_t end) const { REQUIRE(::kill(children_[end], SIGKILL) == 0); }
    // True: both ended by themselves, with all done. False: one was killed, and the other ended by itself.
    bool wait() const {
        bool killed = false, done = true;
        for (pid_t child : children_) {
            int status = 0;
            REQUIRE(::waitpid(child, &status, 0) == child);
            bool by_kill = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
            CHECK((by_kill || WIFEXITED(status)));
            killed = killed || by_kill;
            done = done && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
        CHECK((killed || done));
        return !killed;
    }

private:
    static pid_t begin(EndRun run, UniqueFd& own, UniqueFd& others, const sync::SyncSettings& settings) {
        pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child > 0) return child;
        others.reset();
        ::signal(SIGPIPE, SIG_IGN);  // as both programs do
        ::_exit(run_end(run, own, settings) ? 0 : 1);
    }

    pid_t children_[2];
};

using std::chrono::microseconds;
using std::chrono::steady_clock;

microseconds since(steady_clock::time_point begun) {
    return std::chrono::duration_cast<microseconds>(steady_clock::now() - begun);
}

microseconds time_of_sync(const sync::SyncSettings& settings) {
    auto begun = steady_clock::now();
    REQUIRE(Processes(settings).wait());
    return since(begun);
}

// Kills either end at some moment within that time. True: both had ended before.
bool done_before_kill(Dice& random, const sync::SyncSettings& settings, microseconds within) {
    Processes ends(settings);
    std::this_thread::sleep_for(microseconds(random.below(static_cast<size_t>(within.count()))));
    ends.kill(random.below(2));
    return ends.wait();
}

// Kills syncs within the time that one takes. What goes on after a kill has less to do, and may be done before the next
// one: then all files change again, so that there is always work. With `anew` the copy then begins with nothing, too.
void kill_syncs(Dice& random, const sync::SyncSettings& settings, ChangingTree& tree, bool anew) {
    if (anew) tree.forget_copy();
    tree.change();
    auto whole = time_of_sync(settings);
    tree.check_newest();
    bool done = true;
    for (int killed = 0, rounds = 0; killed < 15; ++rounds) {
        INFO("round " << rounds << ", a sync takes " << whole.count() << " us");
        REQUIRE(rounds < 1000);
        bool changed = done || random.one_in(4);
        if (done && anew) tree.forget_copy();
        if (changed) tree.change();
        auto begun = steady_clock::now();
        done = done_before_kill(random, settings, whole);
        if (done && changed) whole = since(begun);  // the machine may have been busy when it was measured
        killed += !done;
        done ? tree.check_newest() : tree.check_whole();
    }
}

}  // namespace

TEST_CASE("after a sync with --delete both trees are the same, whatever they were", "[sync][engine][random]") {
    const unsigned seed = seed_of_this_run();
    for (unsigned round = 0; round < 12; ++round) {
        INFO("TNR_TEST_SEED=" << seed << ", round " << round);
        Dice random(seed + round);
        test::TemporaryFolder world;
        sync::SyncSettings settings{world / "from", world / "to"};
        settings.remove_extra = true;
        fs::create_directory(world / "from");
        fs::create_directory(world / "to");
        bool up = round % 2;
        for (int change_round = 0; change_round < 3; ++change_round) {
            for (int i = 0; i < 30; ++i) change(random, world / "from", true);
            // On a machine a link to a folder stands for the folder.
            for (int i = 0; i < 10; ++i) change(random, world / "to", !up);
            bool empty = fs::is_empty(world / "from");
            auto tally = up ? upload(settings) : download(settings);
            if (!tally && empty) continue;
            if (!tally) FAIL(tally.error().what);
            CHECK(tally->unreadable.empty());
            auto left = told_of_tree(world / "from", world / "from"),
                 right = told_of_tree(world / "to", world / "from");
            for (const auto& [path, what] : left) {
                INFO(path);
                CHECK(right[path] == what);
            }
            CHECK(left.size() == right.size());
            sync::SyncSettings dry = settings;
            dry.dry_run = true;
            auto again = up ? upload(dry) : download(dry);
            REQUIRE(again);
            CHECK(again->files + again->removed == 0);
        }
    }
}

TEST_CASE("either end killed at any moment leaves only whole files, and the next sync goes on",
          "[sync][engine][kill]") {
    const unsigned seed = seed_of_this_run();
    Dice random(seed);
    INFO("TNR_TEST_SEED=" << seed);
    test::TemporaryFolder world;
    const sync::SyncSettings settings{world / "from", world / "to"};
    ChangingTree tree(random, settings);
    for (int turn = 0; turn < 6; ++turn) {
        INFO("turn " << turn);
        kill_syncs(random, settings, tree, turn % 2 == 0);
    }
    downloaded(settings);
    tree.check_newest();
}
