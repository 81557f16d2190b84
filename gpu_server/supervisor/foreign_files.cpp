// See foreign_files.hpp.
#include "gpu_server/supervisor/foreign_files.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "gpu_server/pool/log.hpp"

namespace tnr::server {

bool is_file_or_device(const UniqueFd& file) {
    struct stat status {};
    return fstat(file.get(), &status) == 0 && (S_ISREG(status.st_mode) || S_ISCHR(status.st_mode));
}

// In the child, which libc does not know of: nothing but system calls. It ends once the parent has closed its own.
[[noreturn]] static void end_with_parents(int line, int parents_end) {
    char none = 0;
    syscall(SYS_close, parents_end);
    syscall(SYS_read, line, &none, sizeof none);
    syscall(SYS_exit_group, 0);
    __builtin_unreachable();
}

// All that is left where this host lacks a process or a descriptor: whoever has it, too, may set it again.
static void do_not_linger(const std::vector<UniqueFd>& files) {
    log(LogLevel::warning, "no process for closing what a worker has sent");
    linger none{};
    for (auto& file : files) setsockopt(file.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

void lay_aside(std::vector<UniqueFd> files, Reaper& reaper) {
    if (files.empty()) return;
    int ends[2] = {-1, -1};
    bool has_line = pipe2(ends, O_CLOEXEC) == 0;
    UniqueFd theirs(ends[0]), ours(ends[1]);
    pid_t pid = has_line ? static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr)) : -1;
    if (pid == 0) end_with_parents(theirs.get(), ours.get());
    if (pid < 0) do_not_linger(files);
    if (pid > 0) reaper.expect(pid, [](int) {});
    files.clear();
}  // and `ours`, which tells the child

}  // namespace tnr::server
