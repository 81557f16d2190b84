// Tries something inside the sandbox: in a child that has just entered it.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "gpu_server/worker/sandbox.hpp"

namespace tnr::worker {

// In a child: what `attempt` returns, 100 when the sandbox could not be entered, 128 + n for a signal.
inline int inside(const SandboxOptions& options, bool as_root, const std::function<int()>& attempt) {
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        if (!as_root && geteuid() == 0 && (setresgid(4242, 4242, 4242) != 0 || setresuid(4242, 4242, 4242) != 0))
            _exit(101);
        prctl(PR_SET_DUMPABLE, 1);  // as after exec: giving up root has cleared it
        auto entered = enter_sandbox(options);
        _exit(entered ? attempt() : 100);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// The errno of a call that failed, 0 of one that did not.
inline int errno_of(long result) {
    return result < 0 ? errno : 0;
}

inline bool namespaces_work(bool as_root) {
    pid_t pid = fork();
    if (pid == 0) {
        if (!as_root && geteuid() == 0 && setresuid(4242, 4242, 4242) != 0) _exit(1);
        if (unshare(as_root ? CLONE_NEWNS | CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET) != 0) _exit(1);
        // Ubuntu's AppArmor lets an ordinary user have namespaces that nothing can be mounted in.
        _exit(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return status == 0;
}

// As the supervisor starts workers: the first process of its own ids.
inline int as_first_process(const std::function<void()>& act) {
    auto pid = static_cast<pid_t>(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    if (pid == 0) {
        for (int number : {SIGABRT, SIGILL}) signal(number, SIG_DFL);  // Catch's handlers
        act();
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace tnr::worker
