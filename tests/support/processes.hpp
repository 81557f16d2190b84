// Processes of one test.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

namespace tnr::test {

// To a child. After SIGSTOP it stands still: kill() returns before the last of its threads does, and one that still runs
// answers what is asked meanwhile.
inline void send_signal(pid_t child, int number) {
    siginfo_t stopped;
    if (kill(child, number) == 0 && number == SIGSTOP) waitid(P_PID, id_t(child), &stopped, WSTOPPED);
}

}  // namespace tnr::test
