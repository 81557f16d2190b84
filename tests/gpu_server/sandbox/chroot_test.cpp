// Workers of a server in a chroot: no filesystem of their own, and all else that there is.
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

#include "gpu_server/worker/limits.hpp"
#include "gpu_server/worker/sandbox.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/files.hpp"

using namespace tnr::test;
using namespace tnr::worker;

namespace {

// In a folder that nothing is mounted at, as in a chroot that holds a system, nobody has a private filesystem.
int in_a_chroot(const char* folder, const SandboxOptions& options, const std::function<int()>& attempt) {
    pid_t pid = fork();
    if (pid == 0) {
        if (chroot(folder) != 0 || chdir("/") != 0) _exit(101);
        _exit(enter_sandbox(options) ? attempt() : 100);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int threads_end_in_time() {
    std::vector<std::thread> threads;
    try {
        while (threads.size() < 2 * threads_max) threads.emplace_back([] { pause(); });
    } catch (const std::system_error&) {
        _exit(threads.size() < threads_max ? 7 : 8);  // nobody joins them
    }
    _exit(9);
}

bool acts_as(uid_t wanted_real_min, bool root) {
    uid_t real = 0, effective = 0, saved = 0;
    getresuid(&real, &effective, &saved);
    return real > wanted_real_min && (root ? effective == 0 && saved == 0 : effective == real && saved == real);
}

}  // namespace

TEST_CASE("without a private filesystem a worker of root's is somebody else too, and makes no thread beyond its limit",
          "[sandbox]") {
    if (geteuid() != 0) return;
    TemporaryFolder folder;
    const std::string root = folder / "root";
    for (const auto& made : {root, root + "/driver"}) std::filesystem::create_directory(made);
    const SandboxOptions options{.readable = {"/driver"}, .writable = {}, .devices = {}};
    constexpr uid_t first_user = 0x70000000;
    SECTION("who finds the driver is that user alone") {
        CHECK(in_a_chroot(root.c_str(), options, [] { return acts_as(first_user, false) ? 7 : 8; }) == 7);
        CHECK(in_a_chroot(root.c_str(), options, threads_end_in_time) == 7);
    }
    SECTION("where only root finds it, it stays root without capabilities, and cannot be counted as root") {
        std::filesystem::permissions(root + "/driver", std::filesystem::perms(0700));
        CHECK(in_a_chroot(root.c_str(), options, [] { return acts_as(first_user, true) ? 7 : 8; }) == 7);
        CHECK(in_a_chroot(root.c_str(), options,
                          [] { return faccessat(AT_FDCWD, "/driver", R_OK | X_OK, AT_EACCESS) == 0 ? 7 : 8; }) == 7);
        CHECK(in_a_chroot(root.c_str(), options, threads_end_in_time) == 7);
        for (auto number : {SYS_setuid, SYS_setreuid, SYS_setresuid, SYS_setfsuid, SYS_setgid, SYS_setresgid})
            CHECK(in_a_chroot(root.c_str(), options, [number] { return syscall(number, 0, 0, 0) < 0 ? errno : 0; }) ==
                  EPERM);
    }
}
