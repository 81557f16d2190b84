// A driver that has been taken over: what runs in a worker once its tenant has found a way to run code there. It is the
// emulated driver, until a program fills memory with a word that names an attack (see hostile_test.py). What came of each
// attempt is a line on stderr, which is in the server's log: "attempt NAME: ERRNO", 0 where it was let do it.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

__attribute__((constructor)) static void configure() {
    setenv("TNR_EMULATED_GPUS", "h100:3", 1);
    setenv("TNR_EMULATED_MEMORY_MIB", "64", 1);
}

template <class Function>
static Function* emulated(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// What the test knows and an attacker would guess.
static std::string setting(const char* name) {
    const char* value = getenv((std::string("TNR_WORKER_HOSTILE_") + name).c_str());
    return value ? value : "";
}

static void tell(const std::string& name, long result) {
    std::string line = "attempt " + name + ": " + std::to_string(result < 0 ? errno : 0) + "\n";
    (void)!write(STDERR_FILENO, line.data(), line.size());
}

static void say(const std::string& what) {
    std::string line = what + "\n";
    (void)!write(STDERR_FILENO, line.data(), line.size());
}

// ---- attack 1: everything that must be refused at once

static void try_files(pid_t other) {
    const std::string state = setting("STATE"), server = "/proc/" + setting("SERVER"),
                      victim = "/proc/" + std::to_string(other);
    for (const std::string& path : {state,
                                    state + "/pool.db",
                                    state + "/server.key",
                                    std::string("/etc/shadow"),
                                    std::string("/etc/passwd"),
                                    std::string("/root/.profile"),
                                    std::string("/var/log"),
                                    std::string("/var/run/docker.sock"),
                                    server + "/environ",
                                    server + "/maps",
                                    server + "/mem",
                                    server + "/root",
                                    victim + "/maps",
                                    victim + "/cmdline",
                                    victim + "/fd",
                                    std::string("/proc/1/root/etc/passwd"),
                                    std::string("/proc/kcore"),
                                    std::string("/dev/mem"),
                                    std::string("/dev/kmsg"),
                                    std::string("/dev/sda"),
                                    std::string("/dev/vda"),
                                    std::string("/dev/fuse"),
                                    std::string("/dev/kvm"),
                                    std::string("/dev/vsock"),
                                    std::string("/dev/net/tun"),
                                    std::string("/dev/vhost-net"),
                                    std::string("/sys/fs/cgroup/cgroup.procs"),
                                    std::string("/sys/kernel/debug/tracing")})
        tell("read " + path, open(path.c_str(), O_RDONLY));
    for (const char* path : {"/usr/lib/new", "/lib64/new", "/new", "/etc/ld.so.cache", "/proc/sys/kernel/core_pattern",
                             "/proc/sysrq-trigger", "/proc/self/oom_score_adj", "/sys/power/state",
                             "/proc/self/uid_map", "/proc/self/setgroups"})
        tell(std::string("write ") + path, open(path, O_WRONLY | O_CREAT, 0600));
}

static void try_sockets() {
    for (int family = 0; family < 46; ++family)
        for (int kind : {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET}) {
            int made = socket(family, kind, 0);
            if (made >= 0 && family != AF_UNIX) tell("socket " + std::to_string(family), 0);
            if (made >= 0) close(made);
        }
    // One that another process of this host listens on, by a name without a file.
    sockaddr_un there{};
    there.sun_family = AF_UNIX;
    const auto name = setting("SOCKET");
    std::memcpy(there.sun_path + 1, name.data(), name.size());
    auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    int local = socket(AF_UNIX, SOCK_DGRAM, 0);
    tell("sendto a local socket", sendto(local, "x", 1, 0, reinterpret_cast<sockaddr*>(&there), size));
    tell("connect to a local socket", connect(local, reinterpret_cast<sockaddr*>(&there), size));
    tell("bind a local socket", bind(local, reinterpret_cast<sockaddr*>(&there), size));
}

// With what does nothing where it is let do it: the test's own host is not to be harmed.
static void try_processes(pid_t victim) {
    const pid_t server = std::atoi(setting("SERVER").c_str());
    constexpr int nothing_but_asking = 0;
    for (auto& [name, process] : {std::pair{"the server", server}, {"another worker", victim}}) {
        const std::string to = std::string(" ") + name;
        tell("kill" + to, kill(process, nothing_but_asking));
        tell("tgkill" + to, syscall(SYS_tgkill, process, process, nothing_but_asking));
        tell("tkill" + to, syscall(SYS_tkill, process, nothing_but_asking));
        tell("queue a signal for" + to, sigqueue(process, nothing_but_asking, {}));
        tell("trace" + to, ptrace(PTRACE_SEIZE, process, nullptr, nullptr));
        char byte = 0;
        iovec here{&byte, 1}, away{&byte, 1};
        tell("read" + to, process_vm_readv(process, &here, 1, &away, 1, 0));
        tell("open" + to, syscall(SYS_pidfd_open, process, 0));
        tell("limit" + to, syscall(SYS_prlimit64, process, 7, nullptr, nullptr));
        tell("renice" + to, syscall(SYS_setpriority, 0, process, 0));
    }
    tell("kill all", kill(-1, nothing_but_asking));
    tell("kill the group of the server", kill(-server, nothing_but_asking));
    tell("renice its user", syscall(SYS_setpriority, 2, 0, 0));
    tell("fork", syscall(SYS_fork));
    tell("vfork by clone", syscall(SYS_clone, CLONE_VFORK | CLONE_VM | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    tell("clone3", syscall(SYS_clone3, nullptr, 0));
    const int code = static_cast<int>(syscall(SYS_memfd_create, "code", 0));
    char* const nothing[] = {nullptr};
    tell("execveat", syscall(SYS_execveat, code, "", nothing, nothing, AT_EMPTY_PATH));
    tell("execve", execve("/bin/sh", nothing, nothing));
    tell("outlive the server", prctl(PR_SET_PDEATHSIG, 0));
}

static void try_kernel() {
    for (int flag :
         {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP})
        tell("unshare " + std::to_string(flag), unshare(flag));
    tell("mount", mount("proc", "/tmp", "proc", 0, nullptr));
    tell("chroot", chroot("/tmp"));
    tell("become root", setuid(0) == 0 && setuid(1) == 0 ? 0 : (errno = EPERM, -1));
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct all[2] = {{~0U, ~0U, 0}, {~0U, ~0U, 0}};
    tell("take capabilities", syscall(SYS_capset, &header, all));
    tell("make a device", mknod("/tmp/device", S_IFCHR | 0600, makedev(1, 1)));
    bpf_attr none{};
    tell("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &none, sizeof none));
    perf_event_attr watched{};
    watched.size = sizeof watched;
    tell("perf_event_open", syscall(SYS_perf_event_open, &watched, 0, -1, -1, 0));
    tell("userfaultfd", syscall(SYS_userfaultfd, 0));
    char parameters[256] = {};
    tell("io_uring_setup", syscall(SYS_io_uring_setup, 8, parameters));
    tell("keyctl", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, -3, 0));
    tell("add_key", syscall(SYS_add_key, "user", "x", "x", 1, -3));
    tell("shmget", syscall(SYS_shmget, 0, 4096, 01600));
    tell("mq_open", syscall(SYS_mq_open, "x", O_CREAT | O_RDWR, 0600, nullptr));
    tell("set the clock", syscall(SYS_clock_settime, 0, parameters));
    tell("name the host", sethostname("x", 1));
    tell("an address of the host's network", syscall(SYS_setns, 3, 0));
}

// ---- attack 2: as much as it can of everything that runs out

static void* sleep_for_ever(void*) {
    while (true) pause();
    return nullptr;
}

static void fill() {
    size_t threads = 0, files = 0, bytes = 0;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_t thread;
    while (threads < 100'000 && pthread_create(&thread, &small, sleep_for_ever, nullptr) == 0) ++threads;
    say("made " + std::to_string(threads) + " threads");
    while (files < 1'000'000 && dup(STDERR_FILENO) >= 0) ++files;
    say("opened " + std::to_string(files) + " files");
    for (int i = 0; i < 1000; ++i) close(1000 + i);
    int file = open("/tmp/full", O_WRONLY | O_CREAT, 0600);
    const std::string piece(1 << 20, 'x');
    for (ssize_t size; (size = write(file, piece.data(), piece.size())) > 0;) bytes += static_cast<size_t>(size);
    say("wrote " + std::to_string(bytes >> 20) + " MiB");
}

// ---- attack 3: memory that nobody has mapped, without end

static void hoard() {
    const std::string piece(1 << 20, 'x');
    for (int i = 0; i < 4096; ++i) {
        int file = memfd_create("hoard", 0);
        for (int part = 0; part < 16; ++part) (void)!write(file, piece.data(), piece.size());
        usleep(20'000);  // the host, which others use as well, is to survive where nothing holds it
    }
}

// ---- attack 4: never ends, whatever it is told

// Whoever means to end the process waits for ever instead.
static void end_nobody() {
#if defined(__x86_64__)
    const unsigned char wait[] = {0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7};  // pause(), again and again
    auto* code = reinterpret_cast<unsigned char*>(dlsym(RTLD_DEFAULT, "_exit"));
    auto page = reinterpret_cast<uintptr_t>(code) & ~uintptr_t{4095};
    if (mprotect(reinterpret_cast<void*>(page), 2 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0)
        std::memcpy(code, wait, sizeof wait);
#endif
}

static void stay() {
    end_nobody();
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    for (int number = 1; number < NSIG; ++number) signal(number, SIG_IGN);
    setsid();
    prctl(PR_SET_PDEATHSIG, 0);
    say("stays");
    while (true) pause();
}

// ---- attack 5: says as much as it can, to the supervisor and to the log

static void shout() {
    constexpr int control = 3;
    const std::string away = R"({"away": true})";
    say("shouts");
    for (size_t i = 0;; ++i) {
        (void)!send(control, away.data(), away.size(), MSG_NOSIGNAL);
        if (i % 64 == 0) say("2026-01-01T00:00:00.000Z error: \x1b[31mforged " + std::to_string(i));
    }
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t count) {
    constexpr unsigned attack = 0xbad00000;
    switch (value) {
        case attack + 1:
            try_files(static_cast<pid_t>(count));  // the program says who the victim is
            try_sockets();
            try_processes(static_cast<pid_t>(count));
            try_kernel();
            say("attempted all");
            break;
        case attack + 2:
            fill();
            break;
        case attack + 3:
            hoard();
            break;
        case attack + 4:
            stay();
            break;
        case attack + 5:
            shout();
            break;
    }
    return emulated<decltype(cuMemsetD32_v2)>("cuMemsetD32_v2")(address, value, count);
}
