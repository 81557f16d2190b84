// See child.hpp. Between fork and exec only async-signal-safe calls: ZeroMQ's threads may hold any lock at that moment.
#include "gpu_server/supervisor/child.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "gpu_server/pool/packet.hpp"
#include "gpu_server/supervisor/limits.hpp"

extern char** environ;

namespace tnr::server {

using nlohmann::json;

static std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> found;
    for (auto& text : texts) found.push_back(const_cast<char*>(text.c_str()));  // exec's signature; it does not write
    found.push_back(nullptr);
    return found;
}

// In the child. Descriptors first go above where they belong, so that placing one cannot close another.
[[noreturn]] static void become(const char* program, char** arguments, char** environment, int control, int listener,
                                int error, pid_t parent) {
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // it died before we asked to be told

    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    constexpr int above = 10;
    control = fcntl(control, F_DUPFD, above);
    if (listener >= 0) listener = fcntl(listener, F_DUPFD, above);
    dup2(error, STDERR_FILENO);
    int nothing = ::open("/dev/null", O_RDWR);
    dup2(nothing, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);  // our stdout is for results; a driver's chatter is none
    dup2(control, child_control_fd);
    if (listener >= 0) dup2(listener, child_listen_fd);
    syscall(SYS_close_range, listener >= 0 ? child_listen_fd + 1 : child_control_fd + 1, ~0U, 0);
    execve(program, arguments, environment);
    _exit(127);
}

Result<Child> start_child(const ChildPlan& plan) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return Error{Error::Kind::internal, std::string("cannot make a control socket: ") + std::strerror(errno)};
    UniqueFd ours(ends[0]), theirs(ends[1]);
    fcntl(ours.get(), F_SETFL, O_NONBLOCK);

    std::vector<std::string> command{plan.program};
    command.insert(command.end(), plan.arguments.begin(), plan.arguments.end());
    auto arguments = pointers(command);
    auto environment = pointers(plan.environment);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) return Error{Error::Kind::internal, std::string("cannot start a process: ") + std::strerror(errno)};
    if (pid == 0)
        become(plan.program.c_str(), arguments.data(), environment.data(), theirs.get(), plan.listen_fd, plan.error_fd,
               parent);
    return Child{pid, std::move(ours)};
}

void kill_child(pid_t pid) {
    kill(-pid, SIGKILL);  // its group, which does not exist until the child's setsid()
    kill(pid, SIGKILL);
}

std::string describe_exit(int status) {
    if (WIFSIGNALED(status))
        return "was killed by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
    return "exited with code " + std::to_string(WEXITSTATUS(status));
}

std::vector<std::string> inherited_environment() {
    // Of TNR_… by name only: there are secrets among them. Which GPUs a process sees, in which order, through no MPS
    // server and with a cache where it may write, is ours to set; the driver's other variables are the operator's.
    static constexpr std::string_view names[] = {"PATH=", "LANG=", "TZ=", "LD_LIBRARY_PATH=", "TNR_LOG=", "TNR_STATS="};
    static constexpr std::string_view prefixes[] = {"TNR_WORKER_", "LC_", "CUDA_", "ASAN_", "TSAN_", "UBSAN_", "LSAN_"};
    std::vector<std::string> kept;
    for (char** entry = environ; *entry; ++entry) {
        std::string_view text(*entry);
        bool wanted = false;
        for (auto name : names) wanted |= text.starts_with(name);
        for (auto prefix : prefixes) wanted |= text.starts_with(prefix);
        for (auto prefix : {"CUDA_VISIBLE_DEVICES=", "CUDA_DEVICE_ORDER=", "CUDA_MPS_", "CUDA_CACHE_PATH="})
            if (text.starts_with(prefix)) wanted = false;
        if (wanted) kept.emplace_back(text);
    }
    return kept;
}

bool send_message(int control, const json& message, int file) {
    std::string text = message.dump(-1, ' ', false, json::error_handler_t::replace);
    return send_packet(control, text, file) == static_cast<ssize_t>(text.size());
}

Received receive_message(int control) {
    static thread_local std::string buffer(worker_message_bytes_max, '\0');
    UniqueFd file;
    ssize_t size = receive_packet(control, buffer.data(), buffer.size(), file);
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {Received::What::nothing_now, {}};
    if (size <= 0) return {Received::What::closed, {}};
    if (static_cast<size_t>(size) > buffer.size()) return {Received::What::nonsense, {}};
    return {Received::What::message, buffer.substr(0, static_cast<size_t>(size)), std::move(file)};
}

}  // namespace tnr::server
