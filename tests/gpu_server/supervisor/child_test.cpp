// Children with process ids of their own, as root and as an ordinary user.
#include "gpu_server/supervisor/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::server;

namespace {

struct Ended {
    std::string said;
    int status = -1;
};

// What a shell that is started so prints to stderr, and how it ends.
Ended run(const std::string& script, bool own_process_ids, const std::function<void(pid_t)>& meanwhile = {}) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    UniqueFd ours(ends[0]), theirs(ends[1]);
    ChildPlan plan{.program = "/bin/sh", .arguments = {"-c", script}, .environment = {"PATH=/bin:/usr/bin"}};
    plan.error_fd = theirs.get();
    plan.own_process_ids = own_process_ids;
    auto child = start_child(plan);
    REQUIRE(child);
    theirs.reset();
    if (meanwhile) meanwhile(child->pid);
    Ended ended;
    char piece[1024];
    for (ssize_t size; (size = read(ours.get(), piece, sizeof piece)) > 0;)
        ended.said.append(piece, static_cast<size_t>(size));
    waitpid(child->pid, &ended.status, 0);
    return ended;
}

// `test` in a process that is an ordinary user's, and as the supervisor is: its memory is for nobody. Its exit code.
int as_ordinary_user(const std::function<bool()>& test) {
    pid_t pid = fork();
    if (pid == 0) {
        bool changed = setresgid(4242, 4242, 4242) == 0 && setresuid(4242, 4242, 4242) == 0;
        prctl(PR_SET_DUMPABLE, 0);
        _exit(changed && test() ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

// Some containers and kernels give an ordinary user no namespaces, or no /proc that goes with them.
bool users_get_namespaces() {
    return as_ordinary_user([] {
               if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS) != 0) return false;
               const pid_t first = fork();
               if (first == 0) _exit(mount("proc", "/proc", "proc", 0, nullptr) == 0 ? 0 : 1);
               int status = 1;
               return waitpid(first, &status, 0) == first && status == 0;
           }) == 0;
}

}  // namespace

TEST_CASE("a child with process ids of its own is the first of them, and reaches no other", "[server]") {
    if (geteuid() != 0) return;  // only root may always have namespaces
    CHECK(run("echo $$ >&2", true).said == "1\n");
    CHECK(run("echo $$ >&2", false).said != "1\n");
    auto reach = "kill -0 " + std::to_string(getpid()) + " 2>/dev/null && echo reached >&2";
    CHECK(run(reach, true).said.empty());
    CHECK(run(reach, false).said == "reached\n");
}

TEST_CASE("an ordinary user's child has process ids of its own, too, and is root of nothing", "[server]") {
    if (geteuid() != 0 || !users_get_namespaces()) {
        WARN("no namespaces for ordinary users here");
        return;
    }
    CHECK(as_ordinary_user([] { return run("echo $$ $(id -u) >&2", true).said == "1 1\n"; }) == 0);
    CHECK(as_ordinary_user(
              [] { return run("cat /root/. 2>/dev/null || echo refused >&2", true).said == "refused\n"; }) == 0);
}

TEST_CASE("a child ends with all it has started, however it is ended", "[server]") {
    for (bool own : {true, false}) {
        CAPTURE(own);
        auto killed = run("sleep 1000 & echo >&2; wait", own, [](pid_t pid) {
            poll(nullptr, 0, 100);
            kill_child(pid);
        });  // returns: nobody holds the pipe any more
        CHECK(ending_signal(killed.status) == SIGKILL);
        CHECK(describe_exit(killed.status) == "was killed by signal 9 (Killed)");
    }
}

TEST_CASE("what ended a child is told alike, whether the kernel or its own handler ended it", "[server]") {
    CHECK(describe_exit(run("exit 134", false).status) == "was killed by signal 6 (Aborted)");
    CHECK(describe_exit(run("exit 3", false).status) == "exited with code 3");
    CHECK_FALSE(ending_signal(run("exit 0", false).status));
}
