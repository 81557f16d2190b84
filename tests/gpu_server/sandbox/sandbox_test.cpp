// The sandbox, tried from inside: each attempt runs in a process of its own that has just entered.
//
// As root and as an ordinary user (a child that gave root up). Where the system refuses namespaces, what depends on
// them is not asked for; the rest must hold everywhere.
#include "gpu_server/worker/sandbox.hpp"

#include <arpa/inet.h>
#include <asm/sockios.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include "tests/support/catch.hpp"

#include "gpu_client/protocol/channel.hpp"
#include "gpu_server/worker/limits.hpp"
#include "inside.hpp"

using tnr::UniqueFd;
using namespace tnr::worker;

namespace {

struct Folder {
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "tnr-sandbox-XXXXXX").string();
        path = mkdtemp(name.data());
        std::filesystem::permissions(path, std::filesystem::perms(0755));
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path;
};

}  // namespace

TEST_CASE("no network, no programs, no other processes", "[sandbox]") {
    bool as_root = GENERATE(true, false);
    CAPTURE(as_root);
    SandboxOptions options;
    CHECK(inside(options, as_root, [] { return errno_of(socket(AF_INET, SOCK_STREAM, 0)); }) == EAFNOSUPPORT);
    CHECK(inside(options, as_root, [] { return errno_of(socket(AF_INET6, SOCK_DGRAM, 0)); }) == EAFNOSUPPORT);
    CHECK(inside(options, as_root, [] { return errno_of(socket(AF_NETLINK, SOCK_RAW, 0)); }) == EOPNOTSUPP);
    CHECK(inside(options, as_root, [] {
              int ends[2];
              return errno_of(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
          }) == EAFNOSUPPORT);
    if (namespaces_work(as_root))
        CHECK(inside(options, as_root, [] {
                  int local = socket(AF_UNIX, SOCK_DGRAM, 0), on = 1;
                  return errno_of(setsockopt(local, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
              }) == EPERM);
    CHECK(inside(options, as_root, [] { return errno_of(execl("/bin/true", "true", nullptr)); }) == EPERM);
    CHECK(inside(options, as_root, [] { return errno_of(fork()); }) == EPERM);
    CHECK(inside(options, as_root, [] { return errno_of(kill(getppid(), 0)); }) == EPERM);
    CHECK(inside(options, as_root, [] { return errno_of(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }) == EPERM);
    CHECK(inside(options, as_root, [] { return errno_of(unshare(CLONE_NEWUSER)); }) == EPERM);
    CHECK(inside(options, as_root, [] {
              rlimit core{};
              getrlimit(RLIMIT_CORE, &core);
              return static_cast<int>(core.rlim_max);
          }) == 0);
    CHECK(inside(options, as_root, [] {
              abort();
              return 0;
          }) == 128 + SIGABRT);  // a crash still is one
}

TEST_CASE("the first process of its ids ends by its own abort() and by faults, and is a user of its own", "[sandbox]") {
    if (geteuid() != 0 || !namespaces_work(true)) return;
    CHECK(as_first_process([] {
              end_on_signals();
              if (enter_sandbox({})) abort();
          }) == 128 + SIGABRT);
    CHECK(as_first_process([] {
              end_on_signals();
              if (enter_sandbox({})) __builtin_trap();
          }) == 128 + SIGILL);
    CHECK(as_first_process([] {
              if (enter_sandbox({}) && getpid() == 1 && getuid() > 0x70000001) _exit(7);
          }) == 7);
    CHECK(as_first_process([] {  // its /proc is that of its ids
              if (enter_sandbox({}) && access("/proc/1/status", F_OK) == 0 && access("/proc/2", F_OK) != 0) _exit(7);
          }) == 7);
}

TEST_CASE("nothing reaches another worker, be it of the same user", "[sandbox]") {
    bool as_root = GENERATE(true, false);
    CAPTURE(as_root);
    // Stands for it: a process that does nothing.
    pid_t other = fork();
    if (other == 0) {
        if (!as_root && (setresgid(4242, 4242, 4242) != 0 || setresuid(4242, 4242, 4242) != 0)) _exit(1);
        pause();
        _exit(0);
    }
    auto fails = [&](const std::function<long()>& attempt) {
        return inside({}, as_root, [&] { return errno_of(attempt()); });
    };
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(fails([&] { return fcntl(ends[0], F_SETOWN, other); }) == EPERM);
    CHECK(fails([&] { return fcntl(ends[0], F_SETSIG, SIGKILL); }) == EPERM);
    f_owner_ex owner{F_OWNER_PID, other};
    CHECK(fails([&] { return fcntl(ends[0], F_SETOWN_EX, &owner); }) == EPERM);
    CHECK(fails([&] { return ioctl(ends[0], FIOSETOWN, &other); }) == EPERM);
    CHECK(fails([&] { return ioctl(ends[0], SIOCSPGRP, &other); }) == EPERM);
    rlimit none{0, 0};
    CHECK(fails([&] { return prlimit(other, RLIMIT_NOFILE, &none, nullptr); }) == EPERM);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    cpu_set_t before, after;
    REQUIRE(sched_getaffinity(other, sizeof before, &before) == 0);
    fails([&] { return sched_setaffinity(other, sizeof cpus, &cpus); });
    REQUIRE(sched_getaffinity(other, sizeof after, &after) == 0);
    CHECK(CPU_EQUAL(&before, &after));
    sched_param idle{};
    fails([&] { return sched_setscheduler(other, SCHED_IDLE, &idle); });
    CHECK(sched_getscheduler(other) == SCHED_OTHER);
    CHECK(fails([&] { return setpriority(PRIO_PROCESS, static_cast<id_t>(other), 19); }) == EPERM);
    CHECK(fails([&] { return syscall(SYS_migrate_pages, other, 0, nullptr, nullptr); }) == EPERM);
    // "All of my group" and "all of my user's" are others, too.
    CHECK(fails([&] { return setpriority(PRIO_USER, 0, 19); }) == EPERM);
    CHECK(fails([&] { return setpriority(PRIO_PGRP, 0, 19); }) == EPERM);
    constexpr int idle_class = 3 << 13, ioprio_process = 1, ioprio_group = 2, ioprio_user = 3;  // linux/ioprio.h
    for (int which : {ioprio_group, ioprio_user})
        CHECK(fails([&] { return syscall(SYS_ioprio_set, which, 0, idle_class); }) == EPERM);
    CHECK(getpriority(PRIO_PROCESS, static_cast<id_t>(other)) == 0);
    // To itself it may do all that.
    CHECK(fails([&] { return fcntl(ends[0], F_SETFL, O_NONBLOCK); }) == 0);
    CHECK(fails([&] { return sched_setaffinity(0, sizeof cpus, &cpus); }) == 0);
    CHECK(fails([&] { return prlimit(getpid(), RLIMIT_NOFILE, nullptr, &none); }) == 0);
    CHECK(fails([&] { return setpriority(PRIO_PROCESS, 0, 5); }) == 0);
    CHECK(fails([&] { return syscall(SYS_ioprio_set, ioprio_process, 0, idle_class); }) == 0);
    close(ends[0]);
    close(ends[1]);
    kill(other, SIGKILL);
    waitpid(other, nullptr, 0);
}

TEST_CASE("a worker sees no other process, and its threads are counted for itself", "[sandbox]") {
    if (geteuid() != 0 || !namespaces_work(true)) return;
    pid_t tester = getpid();
    auto line = "/proc/" + std::to_string(tester) + "/cmdline";
    CHECK(access(line.c_str(), R_OK) == 0);
    CHECK(inside({}, true, [&] { return errno_of(open(line.c_str(), O_RDONLY)); }) == ENOENT);
    CHECK(inside({}, true, [&] { return errno_of(open("/proc/self/maps", O_RDONLY)); }) != ENOENT);
    CHECK(inside({}, true, [&] { return errno_of(open("/proc/devices", O_RDONLY)); }) == 0);
    CHECK(inside({}, true, [&] {
              rlimit threads{};
              getrlimit(RLIMIT_NPROC, &threads);
              return threads.rlim_max == 1024;
          }) == 1);
}

// NVIDIA's driver does so at its start. /proc is read-only otherwise, also where the worker is root's.
TEST_CASE("a worker names its threads, and writes nothing else below /proc", "[sandbox]") {
    bool as_root = GENERATE(true, false);
    CAPTURE(as_root);
    CHECK(inside({}, as_root, [] {
              std::atomic<bool> named{false};
              std::thread other([&] {
                  while (!named) std::this_thread::yield();
              });
              const int refused = pthread_setname_np(other.native_handle(), "cuda-test");
              named = true;
              other.join();
              return refused;
          }) == 0);
    if (geteuid() != 0 || !namespaces_work(true)) return;
    CHECK(inside({}, as_root, [] {
              return errno_of(open("/proc/sys/kernel/domainname", O_WRONLY)) != 0 &&
                             errno_of(open("/proc/sysrq-trigger", O_WRONLY)) != 0
                         ? 0
                         : 1;
          }) == 0);
    CHECK(as_first_process([] {
              if (!enter_sandbox({})) _exit(100);
              std::thread waits([] { pause(); });
              const int refused = pthread_setname_np(waits.native_handle(), "cuda-test");
              _exit(refused);
          }) == 0);
}

TEST_CASE("it cannot outlive its supervisor, and is what a host without memory ends first", "[sandbox]") {
    bool as_root = GENERATE(true, false);
    CAPTURE(as_root);
    CHECK(inside({}, as_root, [] { return errno_of(prctl(PR_SET_PDEATHSIG, 0)); }) == EPERM);
    CHECK(inside({}, as_root, [] {
              int signal = 0;
              prctl(PR_GET_PDEATHSIG, &signal);
              return signal;
          }) == SIGKILL);
    CHECK(inside({}, as_root, [] {
              int score = 0;
              std::ifstream("/proc/self/oom_score_adj") >> score;
              return score / 10;
          }) == ended_first_score / 10);
}

TEST_CASE("no memory that is nobody's", "[sandbox]") {
    bool as_root = GENERATE(true, false);
    CAPTURE(as_root);
    CHECK(inside({}, as_root, [] { return errno_of(shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600)); }) == EPERM);
    CHECK(inside({}, as_root, [] { return errno_of(msgget(IPC_PRIVATE, IPC_CREAT | 0600)); }) == EPERM);
    CHECK(inside({}, as_root, [] { return errno_of(semget(IPC_PRIVATE, 1, IPC_CREAT | 0600)); }) == EPERM);
    CHECK(inside({}, as_root, [] { return errno_of(mq_open("/x", O_RDWR | O_CREAT, 0600, nullptr)); }) == EPERM);
    // No descriptors that are in no list of the process: of one thread alone.
    CHECK(inside({}, as_root, [] { return errno_of(close_range(~0U, ~0U, CLOSE_RANGE_UNSHARE)); }) == EPERM);
    CHECK(inside({}, as_root, [] { return errno_of(close_range(~0U, ~0U, 0)); }) == 0);
    CHECK(inside({}, as_root, [] {
              constexpr int alone = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
              return errno_of(syscall(SYS_clone, alone, nullptr, nullptr, nullptr, nullptr));
          }) == EPERM);
    if (!namespaces_work(as_root)) return;
    // Files without content, in the folders that it may write.
    for (const char* folder : {"/tmp", "/dev/shm"}) {
        CAPTURE(folder);
        CHECK(inside({}, as_root, [&] {
                  for (int i = 0; i < 20'000; ++i) {
                      UniqueFd file(
                          open((std::string(folder) + "/" + std::to_string(i)).c_str(), O_WRONLY | O_CREAT, 0600));
                      if (!file) return errno;
                  }
                  return 0;
              }) == ENOSPC);
    }
}

TEST_CASE("control groups of others are not seen", "[sandbox]") {
    bool as_root = GENERATE(true, false);
    CAPTURE(as_root);
    if (!namespaces_work(as_root) || !std::filesystem::exists("/sys/fs/cgroup")) return;
    REQUIRE_FALSE(std::filesystem::is_empty("/sys/fs/cgroup"));
    CHECK(inside({}, as_root, [] { return std::filesystem::is_empty("/sys/fs/cgroup") ? 7 : 0; }) == 7);
    CHECK(inside({}, as_root, [] { return std::filesystem::exists("/sys/devices/system/cpu") ? 7 : 0; }) == 7);
}

TEST_CASE("the filesystem is empty but for libraries, and only /tmp can be written", "[sandbox]") {
    bool as_root = GENERATE(true, false);
    CAPTURE(as_root);
    if (!namespaces_work(as_root)) {
        WARN("no namespaces here");
        return;
    }
    Folder secrets, driver, cache;
    std::ofstream(secrets.path + "/key") << "secret";
    std::ofstream(driver.path + "/library") << "code";
    std::filesystem::permissions(cache.path, std::filesystem::perms(0777));
    SandboxOptions options{{driver.path}, {cache.path}, {}};
    auto opens = [&](const std::string& path, int flags) {
        return inside(options, as_root, [&] { return errno_of(open(path.c_str(), flags, 0600)); });
    };
    CHECK(opens(secrets.path + "/key", O_RDONLY) == ENOENT);
    CHECK(opens("/etc/shadow", O_RDONLY) == ENOENT);
    CHECK(opens("/root", O_RDONLY) == ENOENT);
    CHECK(opens(driver.path + "/library", O_RDONLY) == 0);
    CHECK(opens(driver.path + "/new", O_WRONLY | O_CREAT) == EROFS);
    CHECK(opens("/usr/new", O_WRONLY | O_CREAT) == EROFS);
    CHECK(opens("/new", O_WRONLY | O_CREAT) == EROFS);
    CHECK(opens("/tmp/new", O_WRONLY | O_CREAT) == 0);
    CHECK(opens(cache.path + "/new", O_WRONLY | O_CREAT) == 0);
    CHECK(std::filesystem::exists(cache.path + "/new"));
    CHECK_FALSE(std::filesystem::exists("/tmp/new"));
    CHECK(opens("/dev/null", O_RDWR) == 0);
    CHECK(opens("/dev/urandom", O_RDONLY) == 0);
    CHECK(opens("/dev/kmsg", O_RDONLY) == ENOENT);
    CHECK(opens("/proc/self/maps", O_RDONLY) != ENOENT);
    CHECK(opens("/proc/sysrq-trigger", O_WRONLY) != 0);
    CHECK(opens("/lib64/ld-linux-x86-64.so.2", O_RDONLY) == 0);
}

TEST_CASE("a device that is named is there", "[sandbox]") {
    SandboxOptions options;
    options.devices = {"/dev/kmsg", "/dev/not-there"};
    if (!namespaces_work(true) || access("/dev/kmsg", F_OK) != 0) return;
    CHECK(inside(options, true, [] { return access("/dev/kmsg", F_OK); }) == 0);
    CHECK(inside({}, true, [] { return errno_of(access("/dev/kmsg", F_OK)); }) == ENOENT);
}

// A /dev with the devices of a node with three GPUs, in this process's own view of the filesystem. Every one of them is
// the null device: what counts is which are there.
static bool make_gpu_devices() {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    std::string keep = (std::filesystem::temp_directory_path() / "tnr-null-XXXXXX").string();
    int file = mkstemp(keep.data());
    bool made = file >= 0 && mount("/dev/null", keep.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
                mount("tmpfs", "/dev", "tmpfs", 0, "mode=0755") == 0;
    for (const char* name : {"null", "nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", "nvidia12"}) {
        auto path = std::string("/dev/") + name;
        close(open(path.c_str(), O_WRONLY | O_CREAT, 0600));
        made = made && mount(keep.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) == 0;
    }
    umount(keep.c_str());
    unlink(keep.c_str());
    close(file);
    return made;
}

// Which of these files a sandboxed process can open, a bit each.
static int visible_gpus(const char* minors) {
    pid_t pid = fork();
    if (pid == 0) {
        if (!make_gpu_devices()) _exit(200);
        if (minors) setenv("TNR_GPU_MINORS", minors, 1);
        SandboxOptions options;
        options.devices = given_nvidia_devices();
        if (!enter_sandbox(options)) _exit(201);
        int seen = 0, bit = 1;
        for (const char* path :
             {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia12", "/dev/nvidiactl", "/dev/nvidia-uvm"}) {
            if (open(path, O_RDWR) >= 0) seen |= bit;
            bit *= 2;
        }
        _exit(seen);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

TEST_CASE("a worker sees the files of its own GPUs, and those that all share", "[sandbox]") {
    if (geteuid() != 0 || !namespaces_work(true)) return;
    constexpr int shared = 8 | 16;
    CHECK(visible_gpus("1") == (2 | shared));
    CHECK(visible_gpus("0,12") == (1 | 4 | shared));
    CHECK(visible_gpus("12") == (4 | shared));        // not 1, though it begins so
    CHECK(visible_gpus("") == (1 | 2 | 4 | shared));  // not known: better all than none
    CHECK(visible_gpus(nullptr) == (1 | 2 | 4 | shared));
}

TEST_CASE("shared memory is there, and private", "[sandbox]") {
    if (!namespaces_work(true)) return;
    CHECK(inside({}, true, [] { return errno_of(open("/dev/shm/tnr-sandbox-test", O_RDWR | O_CREAT, 0600)); }) == 0);
    CHECK_FALSE(std::filesystem::exists("/dev/shm/tnr-sandbox-test"));
}

TEST_CASE("root is a user of its own afterwards, without capabilities", "[sandbox]") {
    if (geteuid() != 0 || !namespaces_work(true)) return;
    constexpr uid_t own = 0x70000000;
    CHECK(inside({}, true, [] {
              auto user = own + static_cast<uid_t>(getpid());
              return getuid() == user && geteuid() == user && getgid() == user && getegid() == user;
          }) == 1);
    CHECK(inside({}, true, [] {
              std::ifstream status("/proc/thread-self/status");
              for (std::string line; std::getline(status, line);)
                  if (line.starts_with("CapEff:")) return line.find_first_of("123456789abcdef", 8) == std::string::npos;
              return true;  // not readable: dumpable is off, and the file is root's
          }) == 1);
}

TEST_CASE("threads and the session's channel work inside", "[sandbox]") {
    UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(listener.get(), 4) == 0);
    getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
    pid_t pid = fork();
    if (pid == 0) {
        if (!enter_sandbox({})) _exit(100);
        std::thread([] {}).join();
        zmq::context_t context(1);
        auto channel = tnr::wire::Channel::serve(context, listener.get(), {}, "session-1");
        if (!channel) _exit(1);
        tnr::wire::Frames frames;
        auto event = (*channel)->receive(frames, std::chrono::seconds(20));
        if (event != tnr::wire::Channel::Event::message) _exit(2);
        (*channel)->send(frames);
        (void)(*channel)->receive(frames, std::chrono::seconds(20));  // until the client has gone
        _exit(0);
    }
    {
        zmq::context_t context(1);
        auto endpoint = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
        auto channel = tnr::wire::Channel::connect(context, endpoint, {}, "session-1");
        REQUIRE(channel);
        tnr::wire::Frames frames;
        frames.emplace_back(std::string("ping"));
        (*channel)->send(frames);
        REQUIRE((*channel)->receive(frames, std::chrono::seconds(20)) == tnr::wire::Channel::Event::message);
        CHECK(frames[0].to_string() == "ping");
    }
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}
