// pidfds and /proc.
#include "api_client/providers/local/process.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <string>
#include <string_view>

#include "api_client/base/files.hpp"

namespace tnr::local {
namespace {

namespace fs = std::filesystem;

// A killed QEMU is gone in milliseconds; only a disk that hangs in the kernel takes longer.
constexpr int kill_limit_ms = 10'000;

// Nothing where there is none: processes end.
std::string text_of(const fs::path& path) {
    auto text = read_file(path);
    return text ? *text : "";
}

// The executable must be a QEMU too: an editor or a shell may have the same words on its command line.
bool is_qemu_of(pid_t pid, const fs::path& pid_file) {
    const fs::path proc = "/proc/" + std::to_string(pid);
    const std::string words = std::string("-pidfile") + '\0' + pid_file.string() + '\0';
    if (text_of(proc / "cmdline").find('\0' + words) == std::string::npos) return false;
    std::error_code failed;
    const fs::path program = fs::read_symlink(proc / "exe", failed);
    return !failed && program.filename().string().rfind("qemu-system", 0) == 0;
}

std::optional<Process> open_if_qemu(pid_t pid, const fs::path& pid_file) {
    if (pid <= 0 || !is_qemu_of(pid, pid_file)) return std::nullopt;  // cheap, and often the answer
    Process process{pid, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))};
    // Again, now that the number cannot change hands without the pidfd knowing.
    if (!process.pidfd || !is_qemu_of(pid, pid_file)) return std::nullopt;
    return process;
}

pid_t parse_pid(std::string_view text) {
    pid_t pid = 0;
    std::from_chars(text.data(), text.data() + text.size(), pid);
    return pid;
}

}  // namespace

std::optional<Process> find_qemu(const fs::path& pid_file) {
    if (auto process = open_if_qemu(parse_pid(text_of(pid_file)), pid_file)) return process;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator("/proc", failed)) {
        const pid_t pid = parse_pid(entry.path().filename().string());
        if (auto process = open_if_qemu(pid, pid_file)) return process;
    }
    return std::nullopt;
}

bool wait_for_end(const Process& process, int limit_ms, int wake_fd) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        pollfd waits[] = {{process.pidfd.get(), POLLIN, 0}, {wake_fd, POLLIN, 0}};
        (void)::poll(waits, 2, left.count() > 0 ? static_cast<int>(left.count()) : 0);
        if (waits[0].revents) return true;
        if (waits[1].revents) return false;
        if (left.count() <= 0) return false;
    }
}

bool kill_process(const Process& process) {
    ::syscall(SYS_pidfd_send_signal, process.pidfd.get(), SIGKILL, nullptr, 0);
    return wait_for_end(process, kill_limit_ms);
}

}  // namespace tnr::local
