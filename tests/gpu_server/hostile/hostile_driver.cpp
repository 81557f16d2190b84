// A driver that has been taken over: what runs in a worker once its tenant has found a way to run code there. It is the
// emulated driver, until a program fills memory with a word that names an attack (see hostile_test.py). What came of each
// attempt is a line on stderr, which is in the server's log: "attempt NAME: ERRNO", 0 where it was let do it.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
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
            int ends[2];
            if (socketpair(family, kind, 0, ends) == 0) tell("a pair of sockets " + std::to_string(family), 0);
        }
    // What it was given belongs to the host's network.
    for (int given = 3; given < 64; ++given) {
        ifreq interface {};
        interface.ifr_ifindex = 1;
        if (ioctl(given, SIOCGIFNAME, &interface) == 0) tell("see the host's network by " + std::to_string(given), 0);
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
    // As NVIDIA's driver does. Nobody is in the worker's network to see the name, and it sends itself nothing.
    if (bind(local, reinterpret_cast<sockaddr*>(&there), size) != 0) tell("be as a driver is", 0);
    tell("send to a local socket of its own", sendto(local, "x", 1, 0, reinterpret_cast<sockaddr*>(&there), size));
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
    tell("descriptors of a thread's own", syscall(SYS_close_range, ~0U, ~0U, CLOSE_RANGE_UNSHARE));
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

// ---- attacks 6 to 8: the same where no list of its files has it

constexpr int control = 3;

static int full_file() {
    static const std::string piece(1 << 20, 'x');
    int file = memfd_create("hidden", 0);
    for (int part = 0; part < 16; ++part) (void)!write(file, piece.data(), piece.size());
    return file;
}

// With the file, if there is one, to the one with that name, if there is one. Waits for room.
static bool pass(int socket, const std::string& text, int file, sockaddr_un* name = nullptr, socklen_t size = 0) {
    iovec content{const_cast<char*>(text.data()), text.size()};
    char room[CMSG_SPACE(sizeof file)] = {};
    msghdr message{};
    message.msg_name = size > 0 ? name : nullptr;
    message.msg_namelen = size;
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    if (file >= 0) {
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        auto* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof file);
        std::memcpy(CMSG_DATA(header), &file, sizeof file);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) >= 0;
}

static std::string thing_name(unsigned number) {
    char name[33];
    std::snprintf(name, sizeof name, "%032x", number);
    return name;
}

// Two sockets, of which the first reaches the second: by the name that this one has once it has tried to send.
static bool two_sockets(int (&ends)[2], sockaddr_un& name, socklen_t& size) {
    size = 0;
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0) return true;
    for (int& end : ends) end = socket(AF_UNIX, SOCK_DGRAM, 0);
    const int on = 1;
    if (setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) return false;
    sockaddr_un nobody{};
    nobody.sun_family = AF_UNIX;
    (void)!sendto(ends[1], "x", 1, 0, reinterpret_cast<sockaddr*>(&nobody), sizeof nobody);
    size = sizeof name;
    return getsockname(ends[1], reinterpret_cast<sockaddr*>(&name), &size) == 0 && size > sizeof(sa_family_t);
}

static bool hide_in_flight(unsigned) {
    int ends[2] = {-1, -1};
    sockaddr_un name{};
    socklen_t size = 0;
    if (!two_sockets(ends, name, size)) return false;
    int file = full_file();
    const bool passed = pass(ends[0], "x", file, &name, size);
    close(file);
    return passed;
}

static void* hold_in_own_table(void* refused) {
    if (syscall(SYS_close_range, ~0U, ~0U, CLOSE_RANGE_UNSHARE) != 0)
        *static_cast<bool*>(refused) = true;
    else
        full_file();
    return *static_cast<bool*>(refused) ? nullptr : sleep_for_ever(nullptr);
}

static bool hide_in_a_thread(unsigned) {
    static bool refused = false;
    pthread_t thread;
    if (pthread_create(&thread, nullptr, hold_in_own_table, &refused) != 0) return false;
    usleep(50'000);
    return !refused;
}

static bool hide_by_lending(unsigned number) {
    int file = full_file();
    const bool passed = pass(control,
                             R"({"exchange": {"lend": ")" + thing_name(number) +
                                 R"(", "kind": "memory", "device": 0, "bytes": 1, "ticket": 1}})",
                             file);
    close(file);
    return passed;
}

static void hide(bool (*in_a_place)(unsigned)) {
    for (unsigned i = 0; i < 40; ++i) {
        if (!in_a_place(i)) return say("cannot hide");
        usleep(20'000);
    }
    say("hid 640 MiB");
}

// ---- attack 9: says all that a worker may say, with numbers, names and files as they come, as far as it may be true: for what
// cannot be, a worker is ended (worker_messages_test)

static void talk() {
    uint64_t state = 88172645463325252;
    auto random = [&](uint64_t below) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return state % below;
    };
    auto one_of_first = [&](uint64_t count) {
        const char* numbers[] = {"0", "1", "4096", "1048576", "9223372036854775807", "18446744073709551615"};
        return std::string(numbers[random(count)]);
    };
    auto number = [&] { return one_of_first(6); };
    auto there_is = [&] { return one_of_first(4); };  // of any GPU's memory
    bool away = false;
    auto device_and_bytes = [&] { return R"({"device": 0, "bytes": )" + number() + ", \"ticket\": " + number() + "}"; };
    auto hash = [&] { return thing_name(static_cast<unsigned>(random(4))) + thing_name(7); };
    auto ticket = [&] { return ", \"ticket\": " + number() + "}}"; };
    auto quoted = [&] { return '"' + thing_name(static_cast<unsigned>(random(16))) + '"'; };
    say("talks");
    while (true) {
        std::string text;
        bool with_file = random(8) == 0;
        switch (random(9)) {
            case 0:
                away = !away;
                text = away ? R"({"away": true})" : R"({"away": false})";
                break;
            case 1:
                text = "{\"grant\": " + device_and_bytes() + "}";
                break;
            case 2:
                text = R"({"memory_back": {"device": 0, "bytes": 0}})";
                break;
            case 3:
                text = "{\"exchange\": {\"lend\": " + quoted() + R"(, "kind": "memory", "device": 0, "bytes": )" +
                       there_is() + ticket();
                with_file = true;
                break;
            case 4:
                text = "{\"exchange\": {\"borrow\": " + quoted() + R"(, "kind": "memory")" + ticket();
                break;
            case 5:
                text = "{\"find_image\": {\"hash\": \"" + hash() + "\", \"bytes\": " + number() + ticket();
                break;
            case 6:
                text = "{\"damaged_image\": {\"hash\": \"" + hash() + "\"}}";
                break;
            case 7:
                text = R"({"ended": "\u001b[2J I say"})";
                break;
            case 8:
                char answer[4096];
                while (recv(control, answer, sizeof answer, MSG_DONTWAIT) > 0) {
                }
                continue;
        }
        int file = with_file ? memfd_create("thing", 0) : -1;
        pass(control, text, file);
        if (file >= 0) close(file);
        usleep(200);
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
        case attack + 6:
            hide(hide_in_flight);
            break;
        case attack + 7:
            hide(hide_in_a_thread);
            break;
        case attack + 8:
            hide(hide_by_lending);
            break;
        case attack + 9:
            talk();
            break;
    }
    return emulated<decltype(cuMemsetD32_v2)>("cuMemsetD32_v2")(address, value, count);
}
