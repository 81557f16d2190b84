// Only a machine's own QEMU is ever taken for it.
#include "api_client/providers/local/process.hpp"

#include <signal.h>
#include <sys/wait.h>

#include "tests/support/catch.hpp"

#include "api_client/providers/local/child.hpp"
#include "world.hpp"

using namespace tnr;
using namespace tnr::local;
using namespace tnr::test;

namespace {

// A QEMU with no machine in it, as a daemon; gone with the object.
class Daemon {
public:
    explicit Daemon(std::string pid_file) : pid_file_(std::move(pid_file)) {
        auto finished = run({.argv = {"qemu-system-x86_64", "-machine", "none", "-nodefaults", "-display", "none",
                                      "-daemonize", "-pidfile", pid_file_}});
        INFO(finished->output);
        REQUIRE(finished->exit_code == 0);
        pid = std::stoi(test::read_text(pid_file_));
    }
    ~Daemon() {
        if (auto process = find_qemu(pid_file_)) kill_process(*process);
    }
    pid_t pid = 0;

private:
    std::string pid_file_;
};

// A shell with these words on its command line, which waits until the object goes.
class Stranger {
public:
    explicit Stranger(const std::string& pid_file) {
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        pid = ::fork();
        if (pid == 0) {
            ::dup2(ends[0], 0);
            ::close(ends[1]);
            ::execlp("sh", "sh", "-c", "read line", "-pidfile", pid_file.c_str(), nullptr);
            ::_exit(127);
        }
        ::close(ends[0]);
        open_.reset(ends[1]);
    }
    ~Stranger() {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
    }
    bool runs() const { return ::waitpid(pid, nullptr, WNOHANG) == 0; }
    pid_t pid = 0;

private:
    UniqueFd open_;
};

}  // namespace

TEST_CASE("a machine's QEMU is found, by its pid file or without it", "[process]") {
    const TemporaryFolder folder;
    const Daemon daemon(folder / "qemu.pid");
    const Daemon other(folder / "other.pid");
    auto process = find_qemu(folder / "qemu.pid");
    REQUIRE(process);
    CHECK(process->pid == daemon.pid);

    SECTION("its pid file was deleted") {
        std::filesystem::remove(folder / "qemu.pid");
    }
    SECTION("its pid file names another machine's QEMU") {
        test::write_text(folder / "qemu.pid", std::to_string(other.pid));
    }
    SECTION("its pid file is garbage") {
        test::write_text(folder / "qemu.pid", "-1 \xff");
    }
    process = find_qemu(folder / "qemu.pid");
    REQUIRE(process);
    CHECK(process->pid == daemon.pid);
    CHECK(!find_qemu(folder / "third.pid"));

    CHECK(!wait_for_end(*process, 0));
    CHECK(kill_process(*process));
    CHECK(wait_for_end(*process, 0));
    CHECK(!find_qemu(folder / "qemu.pid"));
    CHECK(find_qemu(folder / "other.pid"));
}

TEST_CASE("a process that was given a dead machine's pid is left alone", "[process]") {
    const TemporaryFolder folder;
    const Stranger stranger(folder / "another.pid");
    test::write_text(folder / "qemu.pid", std::to_string(stranger.pid) + "\n");
    CHECK(!find_qemu(folder / "qemu.pid"));
    CHECK(stranger.runs());
}

TEST_CASE("a process that only speaks of the pid file is left alone", "[process]") {
    const TemporaryFolder folder;
    const Stranger stranger(folder / "qemu.pid");
    test::write_text(folder / "qemu.pid", std::to_string(stranger.pid) + "\n");
    // Until the child has become `sh`, its command line is ours.
    while (test::read_text("/proc/" + std::to_string(stranger.pid) + "/cmdline").find("qemu.pid") ==
           std::string::npos) {
    }
    CHECK(!find_qemu(folder / "qemu.pid"));
    CHECK(stranger.runs());
}
