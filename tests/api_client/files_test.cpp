// Atomic writes and locks.
#include "api_client/base/files.hpp"
#include "api_client/base/file_lock.hpp"
#include "api_client/base/interrupt.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <atomic>
#include <fstream>
#include <future>
#include <thread>
#include <vector>

#include "api_client/tool_files.hpp"
#include "tests/support/catch.hpp"
#include "world.hpp"

using namespace tnr;
using namespace tnr::local;
using namespace tnr::test;

TEST_CASE("a file is written whole, private, and sparse", "[files]") {
    const TemporaryFolder folder;
    const std::string content = "begin" + std::string(1 << 20, '\0') + "end";
    REQUIRE(write_file(folder / "file", content));
    CHECK(test::read_text(folder / "file") == content);
    struct stat status {};
    ::stat((folder / "file").c_str(), &status);
    CHECK((status.st_mode & 0777) == 0600);
    CHECK(status.st_blocks * 512 < 100'000);
}

TEST_CASE("a file that cannot be written is an error that names it, and the old one stays", "[files]") {
    const TemporaryFolder folder;
    test::write_text(folder / "file", "old");
    auto result = write_file(folder / "file/below", "x");
    REQUIRE(!result);
    CHECK(result.error().what.find(folder / "file") != std::string::npos);
    CHECK(test::read_text(folder / "file") == "old");
}

TEST_CASE("Ctrl-C ends the waiting for a lock in any thread, but what is free is still locked", "[files]") {
    const TemporaryFolder folder;
    auto held = lock_file(folder / "lock");
    REQUIRE(held);
    std::promise<void> waits;
    auto second = std::async(std::launch::async, [&] {
        const interrupt::SignalsBlocked deaf;
        return lock_file(folder / "lock", [&] { waits.set_value(); });
    });
    waits.get_future().wait();
    interrupt::raise_for_test();
    const auto ended = second.get();
    const auto free = lock_file(folder / "other");
    const auto tried = try_lock_file(folder / "lock");
    const auto changed = change_file(folder / "third", [&] { return write_file(folder / "third", "x"); });
    interrupt::clear_for_test();
    REQUIRE_FALSE(ended);
    CHECK(ended.error().what == "interrupted");
    CHECK(free);
    REQUIRE(tried);
    CHECK_FALSE(*tried);
    CHECK(changed);
}

// One that has no name takes no locks: as every file of a file system without locks.
TEST_CASE("where there are no locks everybody is let in", "[files]") {
    const UniqueFd without(::open("/", O_PATH | O_CLOEXEC));
    REQUIRE(without);
    CHECK(try_lock(without.get()) == Lock::none);
    CHECK(lock_within(without.get(), std::chrono::hours(1)) == Lock::none);
    CHECK(wait_for_lock(without.get()));
}

TEST_CASE("a lock keeps others out until it is let go", "[files]") {
    const TemporaryFolder folder;
    auto first = lock_file(folder / "lock");
    REQUIRE(first);
    std::promise<void> waits;
    auto second = std::async(std::launch::async,
                             [&] { return static_cast<bool>(lock_file(folder / "lock", [&] { waits.set_value(); })); });
    waits.get_future().wait();
    SECTION("and then lets one in") {
        first->reset();
        CHECK(second.get());
    }
    SECTION("also when its file was removed with what it protected") {
        std::filesystem::remove(folder / "lock");
        first->reset();
        CHECK(second.get());
        CHECK(std::filesystem::exists(folder / "lock"));  // the second holds a lock others can see
    }
}

TEST_CASE("what is no file is refused by name, and nobody waits for it", "[files]") {
    const TemporaryFolder folder;
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    (folder / "socket").copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    const std::pair<std::string, std::string> no_files[] = {{folder / "pipe", "a pipe"},
                                                            {folder / "socket", "a socket"},
                                                            {"/dev/zero", "a device"},
                                                            {folder.path(), "a folder"}};
    for (const auto& [path, kind] : no_files) {
        const auto text = read_file(path);
        REQUIRE_FALSE(text);
        CHECK(text.error().what.find(path) != std::string::npos);
        CHECK(text.error().what.find("it is " + kind) != std::string::npos);
        CHECK_FALSE(open_file(path, O_RDWR | O_CREAT));
    }
    CHECK(read_file(folder / "none").error().kind == Error::Kind::not_found);
    test::write_text(folder / "file", "text");
    std::filesystem::create_symlink("file", folder / "link");
    CHECK(*read_file(folder / "link") == "text");
    REQUIRE(write_file(folder / "pipe", "a file"));  // which comes in its place
    CHECK(*read_file(folder / "pipe") == "a file");
}

TEST_CASE("a pipe that the user names is read to its end, and one of a password manager's, if it speaks", "[files]") {
    const TemporaryFolder folder;
    const std::string pipe = folder / "pipe", text(200'000, 'x');
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    auto speaks = [&] { return std::async(std::launch::async, [&] { std::ofstream(pipe) << text; }); };
    auto speaker = speaks();
    CHECK(*read_users_file(pipe, {}) == text);
    speaker.get();
    speaker = speaks();
    CHECK(small_file(pipe) == text);
    speaker.get();
    CHECK(small_file(pipe).empty());
    CHECK(small_file(folder.path()).empty());
    CHECK(small_file("/dev/zero").empty());
}

TEST_CASE("a pipe that nobody writes into is told, and Ctrl-C ends the waiting for it", "[files]") {
    const TemporaryFolder folder;
    const std::string pipe = folder / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    int told = 0;
    const auto text = read_users_file(pipe, [&] {
        ++told;
        interrupt::raise_for_test();
    });
    interrupt::clear_for_test();
    CHECK(told == 1);
    REQUIRE_FALSE(text);
    CHECK(text.error().what == "interrupted");
}

TEST_CASE("the first line of a pipe is had before its writer ends, and of a file without one all", "[files]") {
    const TemporaryFolder folder;
    const std::string pipe = folder / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    const UniqueFd stays(::open(pipe.c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(::write(stays.get(), "one\ntwo", 7) == 7);
    CHECK(*read_users_line(pipe, {}) == "one");
    test::write_text(folder / "file", "all");
    interrupt::raise_for_test();  // no reason not to read what is there
    CHECK(*read_users_line(folder / "file", {}) == "all");
    CHECK(*read_file(folder / "file") == "all");
    interrupt::clear_for_test();
    CHECK(read_users_line(folder / "none", {}).error().kind == Error::Kind::not_found);
}

namespace {

std::vector<std::string> names_in_folder(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
}

using FileNames = std::vector<std::string>;

// A process that has been stopped in the middle of writing the folder's file "key". It goes with this.
class StoppedWriter {
public:
    explicit StoppedWriter(const TemporaryFolder& folder) {
        const std::string large(size_t{64} << 20, 'k');
        for (FileNames names; names.size() != 1 || names[0] == "key"; names = names_in_folder(folder.path())) {
            kill();
            for (const auto& name : names) std::filesystem::remove(folder / name);
            process_ = ::fork();
            REQUIRE(process_ >= 0);
            if (process_ == 0) ::_exit(write_file(folder / "key", large) ? 0 : 1);
            for (int i = 0; !has_bytes(folder) && i < 60'000; ++i)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            ::kill(process_, SIGSTOP);
            ::waitpid(process_, nullptr, WUNTRACED);
        }
    }
    ~StoppedWriter() { kill(); }
    void kill() {
        if (process_ < 0) return;
        ::kill(process_, SIGKILL);
        ::waitpid(process_, nullptr, 0);
        process_ = -1;
    }

private:
    // Before it has written any the writer may not hold its lock yet.
    static bool has_bytes(const TemporaryFolder& folder) {
        std::error_code gone;
        for (const auto& name : names_in_folder(folder.path()))
            if (const auto bytes = std::filesystem::file_size(folder / name, gone); !gone && bytes > 0) return true;
        return false;
    }

    pid_t process_ = -1;
};

}  // namespace

TEST_CASE("what a killed writer has left goes with the next write there, and what one is writing stays", "[files]") {
    const TemporaryFolder folder;
    StoppedWriter writer(folder);
    const std::string unfinished = names_in_folder(folder.path()).front();
    CHECK(unfinished.find("key.tnr-") == 0);
    REQUIRE(write_file(folder / "key", "mine"));
    CHECK(names_in_folder(folder.path()) == FileNames{"key", unfinished});  // it may go on
    writer.kill();
    SECTION("with a write") {
        REQUIRE(write_file(folder / "key", "mine, too"));
    }
    SECTION("with a removal") {
        REQUIRE(remove_file(folder / "other"));
    }
    CHECK(names_in_folder(folder.path()) == FileNames{"key"});
}

TEST_CASE("a sweep takes nothing that is somebody else's", "[files]") {
    const TemporaryFolder folder;
    const FileNames others = {"key.XXXXXX", "key.backup", "key.tnr-", "key.tnr-123", "key.tnr-a.b-cd", "tnr-AbCdEf"};
    for (const auto& name : others) test::write_text(folder / name, "x");
    test::write_text(folder / "other.tnr-AbCdEf", "x");
    std::filesystem::create_symlink("key.backup", folder / "link.tnr-AbCdEf");
    REQUIRE(remove_file(folder / "none"));
    FileNames left = others;
    left.insert(std::find(left.begin(), left.end(), "tnr-AbCdEf"), "link.tnr-AbCdEf");
    CHECK(names_in_folder(folder.path()) == left);
}

TEST_CASE("many who write into one folder at once sweep nothing of each other's", "[files]") {
    const TemporaryFolder folder;
    std::atomic<int> failures{0};
    std::vector<std::thread> writers;
    for (int writer = 0; writer < 6; ++writer)
        writers.emplace_back([&, writer] {
            for (int turn = 0; turn < 60; ++turn)
                failures += !write_file(folder / std::to_string(writer), std::to_string(turn));
        });
    for (auto& writer : writers) writer.join();
    CHECK(failures == 0);
    CHECK(names_in_folder(folder.path()) == FileNames{"0", "1", "2", "3", "4", "5"});
}
