// The operator's commands with what nobody should give them, and two at once.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <thread>

#include "gpu_server/pool/clock.hpp"
#include "gpu_server/pool/sqlite.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/supervisor/state_folder.hpp"
#include "server.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::test;

namespace {

class Operator {
public:
    Operator() { REQUIRE(mkdir(state.c_str(), 0700) == 0); }
    Output command(std::vector<std::string> words) const {
        words.insert(words.end(), {"--state", state});
        return run_server_command(words);
    }
    Folder folder;
    const std::string state = folder.path + "/state";
};

bool says(const std::string& text, const std::string& what) {
    return text.find(what) != std::string::npos;
}

// A file system of its own at a folder, where we may make one.
class SmallDisk {
public:
    explicit SmallDisk(const std::string& path)
        : path_(path),
          is_there_(mkdir(path.c_str(), 0700) == 0 &&
                    mount("tmpfs", path.c_str(), "tmpfs", 0, "size=4m,mode=0700") == 0) {}
    ~SmallDisk() {
        while (is_there_ && umount2(path_.c_str(), MNT_DETACH) == 0) {
        }
    }
    bool is_there() const { return is_there_; }
    bool fill() const {
        UniqueFd file(open((path_ + "/others").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        const std::string block(4096, 'x');
        while (write(file.get(), block.data(), block.size()) > 0) {
        }
        return file && errno == ENOSPC;
    }
    // For files that are opened from now on.
    bool make_read_only() const {
        return mount(path_.c_str(), path_.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
               mount(nullptr, path_.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0;
    }

private:
    const std::string path_;
    const bool is_there_;
};

std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("of several rotations at once one makes a new key, and the old one is the one that everybody has", "[odd]") {
    Server server({"--emulate", "h100"});
    auto rotate = [&] { return run_server_command({"rotate-key", "--state", server.folder->path + "/state"}); };
    for (int round = 0; round < 5; ++round) {
        auto known = enroll(server, "user" + std::to_string(round));
        std::vector<std::future<Output>> all;
        for (int i = 0; i < 8; ++i) all.push_back(std::async(std::launch::async, rotate));
        int made = 0, refused = 0;
        std::string fresh;
        for (auto& one : all) {
            auto output = one.get();
            INFO(output.err);
            made += output.code == 0;
            refused += output.code == 2 && says(output.err, "the last rotation's old key is good until");
            if (output.code == 0) fresh = output.out;
        }
        CHECK(made == 1);
        CHECK(refused == 7);
        REQUIRE(server.wait_for_log("the server's key is another now", round + 1));
        CHECK(ask(*client_of(server, known), {{"op", "hello"}})["role"] == "account");
        CHECK(says(fresh, enroll(server, "later" + std::to_string(round)).server_public));
        REQUIRE(run_server_command({"rotate-key", "--drop-old", "--state", server.folder->path + "/state"}).code == 0);
    }
}

TEST_CASE("a weight is a number", "[odd]") {
    Server server({"--emulate", "h100"});
    enroll(server, "alice");
    auto weigh = [&](const std::string& weight) {
        return run_server_command(
            {"user", "limit", "alice", "--weight", weight, "--state", server.folder->path + "/state"});
    };
    for (const char* wrong : {"nan", "-nan", "NAN", "inf", "0", "-1", "101", "x", ""}) {
        CAPTURE(wrong);
        CHECK(weigh(wrong).code == 2);
    }
    CHECK(says(weigh("2.5").out, "its weight in the queue is 2.5"));
}

TEST_CASE("what is restored is a file", "[odd]") {
    Operator one;
    const auto pipe = one.folder.path + "/pipe";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);  // nobody writes to it, so whoever reads waits for ever
    for (auto& wrong : {pipe, one.folder.path, std::string("/dev/zero")}) {
        auto output = one.command({"restore", wrong});
        CHECK(output.code == 2);
        CHECK(says(output.err, wrong + " is no file"));
    }
    auto nothing = one.command({"restore", one.folder.path + "/nothing"});
    CHECK(says(nothing.err, "there is no file " + one.folder.path + "/nothing"));
    CHECK(says(nothing.err, "hint: `tnr-gpu-server backup FILE` makes one"));
}

TEST_CASE("before a server has run, commands say how to start one, and `check` looks at the disk that it will be on",
          "[odd]") {
    Folder folder;
    setenv("XDG_STATE_HOME", (folder.path + "/none/yet").c_str(), 1);
    auto status = run_server_command({"status"}), check = run_server_command({"check", "--emulate", "h100"});
    unsetenv("XDG_STATE_HOME");
    CHECK(says(status.err, "there is no server's folder at " + folder.path + "/none/yet/tnr/server"));
    CHECK(says(status.err, "hint: start the server first (tnr-gpu-server serve)"));
    CHECK(says(check.out, "free for " + folder.path + "/none/yet/tnr\n"));
}

TEST_CASE("a newer server's backup is refused, and leaves a folder as it was", "[odd]") {
    Operator one;
    REQUIRE(one.command({"user", "add", "alice", "--address", "tcp://127.0.0.1:1"}).code == 0);
    const auto file = one.folder.path + "/backup";
    sqlite3* opened = nullptr;
    REQUIRE(sqlite3_open((one.state + "/pool.db").c_str(), &opened) == SQLITE_OK);
    CHECK(sqlite3_exec(opened, "PRAGMA user_version = 1000", nullptr, nullptr, nullptr) == SQLITE_OK);
    REQUIRE(one.command({"backup", file}).code == 0);
    auto checked = one.command({"check", "--emulate", "h100", "--listen", "tcp://127.0.0.1:0"});
    CHECK(checked.code == 1);  // before `serve` refuses it
    CHECK(says(checked.out, "/pool.db was written by a newer tnr-gpu-server"));
    CHECK(sqlite3_exec(opened, "PRAGMA user_version = 0", nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(opened);
    const auto restore = [&] {
        auto refused = one.command({"restore", file, "--replace"});
        CHECK(refused.code == 2);
        CHECK(says(refused.err, file + " was written by a newer tnr-gpu-server"));
    };
    SECTION("one that is in use") {
        std::set<std::string> before, after;
        for (auto& entry : std::filesystem::directory_iterator(one.state)) before.insert(entry.path().filename());
        restore();
        for (auto& entry : std::filesystem::directory_iterator(one.state)) after.insert(entry.path().filename());
        CHECK(after == before);
        CHECK(says(one.command({"user", "list"}).out, "alice"));
    }
    SECTION("one that is empty") {
        std::filesystem::remove_all(one.state);
        restore();
        CHECK(one.command({"user", "add", "bob", "--address", "tcp://127.0.0.1:1"}).code == 0);
    }
}

TEST_CASE("a backup in which a bit has flipped is refused, wherever it is, and leaves a folder as it was", "[odd]") {
    Operator one;
    REQUIRE(one.command({"user", "add", "alice", "--address", "tcp://127.0.0.1:1"}).code == 0);
    const auto file = one.folder.path + "/backup", other = one.folder.path + "/other";
    REQUIRE(one.command({"backup", file}).code == 0);
    REQUIRE(one.command({"user", "add", "later", "--address", "tcp://127.0.0.1:1"}).code == 0);
    const auto whole = content_of(file);
    const auto restore = [&](const std::string& content) {
        std::ofstream(other, std::ios::binary) << content;
        return one.command({"restore", other, "--replace"});
    };
    const auto seal = whole.rfind("tnr-gpu-server backup ");
    REQUIRE(seal != std::string::npos);
    SECTION("flipped") {
        const size_t in_a_row = whole.find("alice");
        for (size_t at :
             {size_t{0}, size_t{20}, in_a_row, in_a_row + 2000, seal - 1, seal, seal + 30, whole.size() - 1}) {
            CAPTURE(at);
            auto damaged = whole;
            damaged.at(at) ^= 1;
            CHECK(restore(damaged).code == 2);
        }
        auto another_key = whole;  // of which nothing tells but the checksum
        another_key.at(whole.find(content_of(one.state + "/server.key"))) ^= 1;
        CHECK(says(restore(another_key).err, other + " is damaged: it is not what was written"));
        CHECK(restore(whole.substr(0, whole.size() - 1)).code == 2);
        CHECK(restore(whole + "x").code == 2);
        for (size_t kept : {whole.size() - 1, whole.size() / 2, whole.size() / 3})
            CHECK(says(restore(whole.substr(0, kept)).err, other + " is damaged"));
        CHECK_FALSE(std::filesystem::exists(one.state + "/pool.db.before-restore"));
        CHECK(says(one.command({"user", "list"}).out, "later"));
    }
    SECTION("whole") {
        auto restored = restore(whole);
        CHECK(restored.code == 0);
        CHECK_FALSE(says(restored.out, "checksum"));
        CHECK_FALSE(says(one.command({"user", "list"}).out, "later"));
    }
    SECTION("of an older server, which had none") {
        auto restored = restore(whole.substr(0, seal));
        CHECK(restored.code == 0);
        CHECK(says(restored.out, "without a checksum"));
        CHECK(says(one.command({"user", "list"}).out, "alice"));
    }
}

TEST_CASE("a restore for which the disk has no room leaves a folder as it was", "[odd]") {
    Operator one;
    REQUIRE(one.command({"user", "add", "alice", "--address", "tcp://127.0.0.1:1"}).code == 0);
    const auto file = one.folder.path + "/backup", disk = one.folder.path + "/disk";
    REQUIRE(one.command({"backup", file}).code == 0);
    SmallDisk small(disk);
    if (!small.is_there()) return;  // only root may make one
    const auto command = [&](std::vector<std::string> words) {
        words.insert(words.end(), {"--state", disk});
        return run_server_command(words);
    };
    REQUIRE(command({"user", "add", "bob", "--address", "tcp://127.0.0.1:1"}).code == 0);
    const auto key = content_of(disk + "/server.key");
    REQUIRE(small.fill());
    int refused = 0;
    for (auto room = std::filesystem::file_size(disk + "/others");; ++refused) {
        if (command({"restore", file, "--replace"}).code == 0) break;
        CAPTURE(refused);
        REQUIRE(content_of(disk + "/server.key") == key);
        REQUIRE(std::filesystem::exists(disk + "/pool.db"));
        CHECK_FALSE(std::filesystem::exists(disk + "/pool.db.before-restore"));
        CHECK_FALSE(std::filesystem::exists(disk + "/pool.db.new"));
        REQUIRE(room > 0);
        std::filesystem::resize_file(disk + "/others", room -= 4096);
    }
    CHECK(refused > 2);
    std::filesystem::remove(disk + "/others");
    CHECK(content_of(disk + "/server.key.before-restore") == key);
    CHECK(says(command({"user", "list"}).out, "alice"));
}

TEST_CASE("what a restore has put aside is not overwritten by the next one", "[odd]") {
    Operator one;
    REQUIRE(one.command({"user", "add", "alice", "--address", "tcp://127.0.0.1:1"}).code == 0);
    const auto file = one.folder.path + "/backup";
    REQUIRE(one.command({"backup", file}).code == 0);
    REQUIRE(one.command({"user", "add", "later", "--address", "tcp://127.0.0.1:1"}).code == 0);
    REQUIRE(one.command({"restore", file, "--replace"}).code == 0);
    const auto first = content_of(one.state + "/pool.db.before-restore");
    CHECK(says(first, "later"));
    auto again = one.command({"restore", file, "--replace"});
    CHECK(again.code == 2);
    CHECK(says(again.err, "hint: move the files *.before-restore elsewhere, or remove them"));
    CHECK(content_of(one.state + "/pool.db.before-restore") == first);
}

TEST_CASE("a damaged key or database is told before it is needed, and is no backup", "[odd]") {
    Operator one;
    REQUIRE(one.command({"user", "add", "alice", "--address", "tcp://127.0.0.1:1"}).code == 0);
    const auto file = one.folder.path + "/backup", key = one.state + "/server.key";
    const auto check = [&] { return one.command({"check", "--emulate", "h100", "--listen", "tcp://127.0.0.1:0"}); };
    CHECK(says(check().out, "ok    key"));
    std::string told;
    SECTION("the key") {
        std::filesystem::resize_file(key, 0);
        told = "server.key holds no key";
        CHECK(says(check().out, "fail  key"));
    }
    SECTION("the database") {
        auto content = content_of(one.state + "/pool.db");
        content.replace(content.size() / 2, 3000, std::string(3000, 'x'));
        std::ofstream(one.state + "/pool.db", std::ios::binary) << content;
        told = "pool.db is damaged: ";
        CHECK(says(check().out, "fail  store"));
    }
    auto backup = one.command({"backup", file});
    CHECK(backup.code != 0);
    CHECK(says(backup.err, told));
    CHECK(says(backup.err, "hint: restore"));
    CHECK_FALSE(std::filesystem::exists(file));
    CHECK_FALSE(std::filesystem::exists(file + ".new"));
}

// A pipe that nobody writes to: whoever opens one as a file waits for ever.
TEST_CASE("a pipe in the place of one of a server's files ends the command or is told, and stops nothing", "[odd]") {
    Operator one;
    REQUIRE(one.command({"user", "add", "alice", "--address", "tcp://127.0.0.1:1"}).code == 0);
    const auto replace = [&](const std::string& name) {
        std::filesystem::remove(one.state + "/" + name);
        REQUIRE(mkfifo((one.state + "/" + name).c_str(), 0600) == 0);
    };
    SECTION("the audit log: what was to be in it is in the server's log") {
        replace("audit.log");
        auto added = one.command({"user", "add", "bob", "--address", "tcp://127.0.0.1:1"});
        CHECK(added.code == 0);
        CHECK(says(added.err, "the audit log is not written: "));
        CHECK(says(one.command({"audit"}).err, "it is a pipe"));
    }
    SECTION("the key") {
        replace("server.key");
        auto refused = one.command({"user", "add", "bob", "--address", "tcp://127.0.0.1:1"});
        CHECK(refused.code != 0);
        CHECK(says(refused.err, "server.key: it is a pipe"));
    }
    SECTION("which store it is: not taken for a server that has none") {
        replace("store");
        auto refused = one.command({"user", "list"});
        CHECK(refused.code != 0);
        CHECK(says(refused.err, "store: it is a pipe"));
    }
    SECTION("the pool's name: nobody makes another one") {
        replace("identity");
        auto refused = one.command({"serve", "--plain", "--emulate", "h100", "--listen", "tcp://127.0.0.1:0"});
        CHECK(refused.code != 0);
        CHECK(says(refused.err, "identity: it is a pipe"));
    }
}

TEST_CASE("a price from a clock that was ahead is told, and gives way to who says that the clock is right", "[odd]") {
    constexpr int64_t year_ms = int64_t{365} * 24 * 3600 * 1000;
    Operator one;
    CHECK(says(one.command({"prices", "set", "h100", "1/h"}).out, "From now on an hour of h100 costs 1.00 USD"));
    auto store = server::open_sqlite_store(one.state + "/pool.db");
    REQUIRE(store);
    auto set_ahead = [&] { return (*store)->set_price("h100", "USD", 2'000'000, server::now_ms() + year_ms); };
    for (auto& words : {std::vector<std::string>{"prices", "set", "h100", "3/h"}, {"prices", "remove", "h100"}}) {
        CAPTURE(words[1]);
        REQUIRE(set_ahead());
        auto refused = one.command(words);
        CHECK(refused.code == 2);
        CHECK(says(refused.err, "there is a price for h100 from 20"));
        CHECK(says(refused.err, "--clock-is-right"));
        CHECK(refused.out.empty());
        auto sure = words;
        sure.push_back("--clock-is-right");
        auto done = one.command(sure);
        CHECK(done.code == 0);
        CHECK(says(done.out, "From now on"));
    }
    CHECK(says(one.command({"prices", "set", "a100", "1/h"}).out, "From now on"));
    CHECK_FALSE(says(one.command({"prices"}).out, "h100"));
}

TEST_CASE("a database that is none is told with what helps", "[odd]") {
    Operator one;
    std::ofstream(one.state + "/pool.db") << std::string(8192, 'x');
    for (auto& words : {std::vector<std::string>{"user", "list"}, {"prices", "list"}, {"nodes"}}) {
        auto output = one.command(words);
        CHECK(output.code == 1);
        CHECK(says(output.err, "not a database"));
        CHECK(says(output.err, "hint: restore a backup: tnr-gpu-server restore FILE --replace"));
    }
}

TEST_CASE("a server whose folder is taken from under it keeps its key, and is not replaced by one that could not go on",
          "[odd]") {
    Server server({"--emulate", "h100"});
    const auto folder = server.folder->path + "/state";
    const auto keys = enroll(server, "alice");
    auto program = client_of(server, keys);
    auto connection = connect_to(ask(*program, session_request("trainer"))["endpoint"]);
    std::string why;
    SECTION("its key") {
        std::filesystem::remove(folder + "/server.key");
        REQUIRE(server.wait_for_log("the keys that were read last go on to hold"));
        CHECK(access((folder + "/server.key").c_str(), F_OK) != 0);  // another would lock out everybody
        CHECK(ask(*client_of(server, keys), {{"op", "hello"}})["role"] == "account");
        why = "server.key holds no key";
    }
    SECTION("its database") {
        for (auto name : {"/pool.db", "/pool.db-wal"}) {
            std::fstream file(folder + name, std::ios::binary | std::ios::in | std::ios::out);
            const auto size = std::filesystem::file_size(folder + name);
            for (std::streamoff at = 0; at < static_cast<std::streamoff>(size); at += 512)
                file.seekp(at).write(std::string(64, 'x').data(), 64);
        }
        why = "pool.db in the server's database failed";
    }
    auto refused = run_server_command({"reload", "--state", folder});
    CHECK(refused.code == 1);
    CHECK(says(refused.err, "it cannot take over: "));
    CHECK(says(refused.err, why));
    uint64_t bytes = 0;  // the program goes on
    REQUIRE(send(connection.get(), "m", 1, 0) == 1);
    REQUIRE(recv(connection.get(), &bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes);
}

TEST_CASE("a server whose disk takes nothing any more is not replaced, and its programs go on", "[odd]") {
    auto folder = std::make_shared<Folder>();
    SmallDisk disk(folder->path + "/state");
    if (!disk.is_there()) return;  // nobody else than root can make one
    Server server({"--emulate", "h100"}, {}, folder);
    auto program = client_of(server, enroll(server, "alice"));
    auto connection = connect_to(ask(*program, session_request("trainer"))["endpoint"]);
    std::string why;
    SECTION("it is full") {
        REQUIRE(disk.fill());
        why = "No space left on device";
    }
    SECTION("it is read-only") {
        REQUIRE(disk.make_read_only());
        why = "Read-only file system";
    }
    auto refused = run_server_command({"reload", "--state", folder->path + "/state"});
    CHECK(refused.code == 1);
    CHECK(says(refused.err, "it cannot take over: "));
    CHECK(says(refused.err, why));
    uint64_t bytes = 0;  // the program goes on
    REQUIRE(send(connection.get(), "m", 1, 0) == 1);
    REQUIRE(recv(connection.get(), &bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes);
}

TEST_CASE("who may not look into a server's folder is told so, not that nothing is there", "[odd]") {
    Folder folder;
    const auto state = folder.path + "/state";
    REQUIRE(mkdir(state.c_str(), 0700) == 0);
    const bool behind_another = GENERATE(false, true);
    CAPTURE(behind_another);
    REQUIRE(chmod(folder.path.c_str(), behind_another ? 0 : 0755) == 0);
    if (!behind_another) REQUIRE(chmod(state.c_str(), 0) == 0);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {  // root may look everywhere
        if (geteuid() == 0 && setresuid(4242, 4242, 4242) != 0) _exit(1);
        auto found = tnr::server::StateFolder::find(state);
        const std::string told = found ? "it was found" : found.error().what + found.error().hint;
        _exit(write(ends[1], told.data(), told.size()) < 0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    char told[4096];
    const auto size = read(ends[0], told, sizeof told);
    close(ends[0]);
    close(ends[1]);
    chmod(folder.path.c_str(), 0700);
    chmod(state.c_str(), 0700);
    REQUIRE(size > 0);
    CHECK(says(std::string(told, static_cast<size_t>(size)), "this user may not look into " + state));
}

TEST_CASE("a server that is there and does not answer for a moment, as while it is replaced, is asked again", "[odd]") {
    Server server({"--plain", "--emulate", "h100"});
    const auto state = server.folder->path + "/state", socket = state + "/watch.sock", aside = state + "/aside";
    const std::string command = GENERATE("status", "reload");
    CAPTURE(command);
    std::filesystem::rename(socket, aside);
    auto answer = std::async(std::launch::async, [&] { return run_server_command({command, "--state", state}); });
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::filesystem::rename(aside, socket);
    auto output = answer.get();
    INFO(output.err);
    CHECK(output.code == 0);
    server.signal(SIGKILL);
    server.wait_for_exit();
    output = run_server_command({command, "--state", state});
    CHECK(output.code == 2);
    CHECK(says(output.err, "no server runs on " + state));
}
