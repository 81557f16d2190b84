// See child.hpp. Between fork and exec only system calls: ZeroMQ's threads may hold any lock at that moment.
#include "gpu_server/supervisor/child.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
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

// What to do in the child, made before it is: it can allocate nothing.
struct Becoming {
    const char* program;
    char** arguments;
    char** environment;
    int control, listener, error;
    pid_t parent;
    std::string user_map, group_map;  // "1 1000 1"
};

// fork() as the system call, which can also make namespaces. 0 in the child.
static pid_t fork_into(unsigned long namespaces) {
    return static_cast<pid_t>(syscall(SYS_clone, namespaces | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

static void write_in_proc(const char* path, std::string_view text) {
    int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC));
    syscall(SYS_write, file, text.data(), text.size());
    syscall(SYS_close, file);
}

// What its namespace lets it do exec would take from it, since it is not that one's user 0: that one may write every file below
// /proc/self, how readily it is ended for want of memory among them.
static void keep_rights_over_exec() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct rights[2]{};
    syscall(SYS_capget, &header, rights);
    for (auto& half : rights) half.inheritable = half.permitted;
    syscall(SYS_capset, &header, rights);
    for (int capability = 0; capability <= CAP_LAST_CAP; ++capability)
        syscall(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0);
}

// In the child, which libc and sanitizers do not know of: nothing but system calls. Descriptors first go above where they
// belong, so that placing one cannot close another.
[[noreturn]] static void become(const Becoming& plan, unsigned long namespaces) {
    syscall(SYS_setsid);
    syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    // Did it die before we asked to be told? With ids of our own we have no parent to ask for; then the control socket's
    // end tells.
    if (namespaces == 0 && syscall(SYS_getppid) != plan.parent) syscall(SYS_exit_group, 127);
    if (namespaces & CLONE_NEWUSER) {
        syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);  // or the files below are root's
        write_in_proc("/proc/self/setgroups", "deny");
        write_in_proc("/proc/self/uid_map", plan.user_map);
        write_in_proc("/proc/self/gid_map", plan.group_map);
        keep_rights_over_exec();
    }

    uint64_t none = 0;  // of the kernel's 64 signals
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, sizeof none);
    constexpr int above = 10;
    auto move = [](int from, int to) { syscall(SYS_dup3, from, to, 0); };
    int control = static_cast<int>(syscall(SYS_fcntl, plan.control, F_DUPFD, above)), listener = plan.listener;
    if (listener >= 0) listener = static_cast<int>(syscall(SYS_fcntl, listener, F_DUPFD, above));
    if (plan.error != STDERR_FILENO) move(plan.error, STDERR_FILENO);
    move(static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC)), STDIN_FILENO);
    move(STDERR_FILENO, STDOUT_FILENO);  // our stdout is for results; a driver's chatter is none
    move(control, child_control_fd);
    if (listener >= 0) move(listener, child_listen_fd);
    syscall(SYS_close_range, listener >= 0 ? child_listen_fd + 1 : child_control_fd + 1, ~0U, 0);
    syscall(SYS_execve, plan.program, plan.arguments, plan.environment);
    syscall(SYS_exit_group, 127);
    __builtin_unreachable();
}

// May a user namespace of ours have a /proc of its own? Not where parts of the one we see are covered (containers cover some):
// the kernel would show them. Without it a process with ids of its own has no folder there, and NVIDIA's driver does not start.
static bool may_have_own_proc() {
    static const bool may = [] {
        const auto pid = fork_into(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS);
        if (pid == 0) {
            const bool mounted =
                syscall(SYS_mount, "proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0;
            syscall(SYS_exit_group, mounted ? 0 : 1);
        }
        int status = 1;
        return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
    }();
    return may;
}

Result<Child> start_child(const ChildPlan& plan) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return Error{Error::Kind::internal, std::string("cannot make a control socket: ") + std::strerror(errno)};
    UniqueFd ours(ends[0]), theirs(ends[1]);
    fcntl(ours.get(), F_SETFL, O_NONBLOCK);
    const int yes = 1;
    setsockopt(ours.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes);  // tells an empty packet from the end

    std::vector<std::string> command{plan.program};
    command.insert(command.end(), plan.arguments.begin(), plan.arguments.end());
    auto arguments = pointers(command);
    auto environment = pointers(plan.environment);
    auto alone = [](auto id) { return "1 " + std::to_string(id) + " 1"; };
    const Becoming becoming{plan.program.c_str(), arguments.data(), environment.data(), theirs.get(),    plan.listen_fd,
                            plan.error_fd,        getpid(),         alone(geteuid()),   alone(getegid())};
    // Who is not root (or root of a container, who may less) gets them only in a user namespace of its own.
    std::vector<unsigned long> tries{0};
    if (plan.own_process_ids) tries = {CLONE_NEWPID, CLONE_NEWPID | CLONE_NEWUSER, 0};
    for (auto namespaces : tries) {
        if (namespaces & CLONE_NEWUSER && !may_have_own_proc()) continue;
        pid_t pid = fork_into(namespaces);
        if (pid == 0) become(becoming, namespaces);
        if (pid > 0) return Child{pid, std::move(ours)};
    }
    return Error{Error::Kind::internal, std::string("cannot start a process: ") + std::strerror(errno)};
}

void kill_child(pid_t pid) {
    kill(-pid, SIGKILL);  // its group, which does not exist until the child's setsid()
    kill(pid, SIGKILL);
}

std::optional<int> ending_signal(int status) {
    if (WIFSIGNALED(status)) return WTERMSIG(status);
    for (int signal : {SIGABRT, SIGTERM, SIGINT})
        if (WEXITSTATUS(status) == 128 + signal) return signal;
    return std::nullopt;
}

std::string describe_exit(int status) {
    if (auto signal = ending_signal(status))
        return "was killed by signal " + std::to_string(*signal) + " (" + strsignal(*signal) + ")";
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
    Received received{Received::What::message, {}};
    auto [size, files, is_packet] = receive_packet(control, buffer.data(), buffer.size());
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        received.what = Received::What::nothing_now;
    else if (size < 0 || (size == 0 && !is_packet))
        received.what = Received::What::closed;
    else if (size == 0 || static_cast<size_t>(size) > buffer.size())
        received.what = Received::What::nonsense;
    else
        received.text = buffer.substr(0, static_cast<size_t>(size));
    if (files.size() == 1)
        received.file = std::move(files.front());
    else
        received.others = std::move(files);
    return received;
}

}  // namespace tnr::server
