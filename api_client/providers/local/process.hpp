// Finding, watching and ending the QEMU process of a machine, without ever touching another process.
//
// A pid in a file proves nothing: after a crash the number belongs to somebody else. What identifies a
// machine's QEMU is its command line, which names the machine's own pid file; and a pidfd, taken before the
// command line is read, keeps meaning that process even when it ends and its number is given away.
#pragma once

#include <filesystem>
#include <optional>

#include "api_client/base/handles.hpp"

namespace tnr::local {

struct Process {
    pid_t pid = 0;
    UniqueFd pidfd;
};

// The running QEMU whose `-pidfile` is this path. Looks at the pid in the file first, then at every process: a
// machine whose folder was deleted behind our back still runs, and must be found.
std::optional<Process> find_qemu(const std::filesystem::path& pid_file);

// Waits until it has ended; false: it still runs. Once `wake_fd` is readable it does not wait any longer.
bool wait_for_end(const Process& process, int limit_ms, int wake_fd = -1);

// SIGKILL, then waits for the kernel to have let go of its files and ports. False: it cannot be killed.
bool kill_process(const Process& process);

}  // namespace tnr::local
