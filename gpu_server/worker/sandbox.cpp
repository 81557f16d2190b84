// See sandbox.hpp. The order matters: namespaces and mounts need rights, limits and capabilities take them away, and
// the system call filter (sandbox_filter.cpp) is last because it forbids most of what is done here.
#include "gpu_server/worker/sandbox.hpp"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "api_client/base/handles.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/worker/limits.hpp"
#include "gpu_server/worker/sandbox_filter.hpp"

namespace tnr::worker {
namespace {

namespace fs = std::filesystem;
using server::log;
using server::LogLevel;

// What the private /tmp may hold: the driver's compile cache of one process. Empty files take memory, too.
constexpr const char* tmp_options = "size=256m,nr_inodes=16k,mode=1777";
constexpr const char* shared_memory_options = "size=64m,nr_inodes=4k,mode=1777";
constexpr uid_t nobody = 65534;
// User ids that nobody else has: one for each worker, told apart by the host's process id of it (at most 2^22). No system
// gives such numbers to people or services.
constexpr uid_t first_user = 0x70000000;
const std::string cache_bytes = std::to_string(128 << 20);  // half of /tmp

Error failed(const std::string& doing) {
    return {Error::Kind::internal, "the sandbox cannot " + doing + ": " + std::strerror(errno)};
}

bool write_file(const char* path, const std::string& text) {
    UniqueFd file(open(path, O_WRONLY | O_CLOEXEC));
    return file && write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Are there other users here that we could be? In a user namespace of our own there is one.
bool users_to_choose_from() {
    std::ifstream map("/proc/self/uid_map");
    uint64_t first = 0, outside = 0, count = 0;
    return !(map >> first >> outside >> count) || count > 1;
}

// The host's number for us, as long as the host's /proc is what we see; our own number may be 1.
pid_t process_id_of_host() {
    char text[32] = "";
    return readlink("/proc/self", text, sizeof text - 1) > 0 ? static_cast<pid_t>(std::atol(text)) : getpid();
}

// Without root the kernel gives namespaces only to the "root" of a user namespace of one's own.
bool enter_user_namespace() {
    auto uid = std::to_string(getuid()), gid = std::to_string(getgid());
    if (unshare(CLONE_NEWUSER) != 0) return false;
    return write_file("/proc/self/setgroups", "deny") && write_file("/proc/self/uid_map", "0 " + uid + " 1") &&
           write_file("/proc/self/gid_map", "0 " + gid + " 1");
}

// ---- the filesystem: a new root with only what is listed

// The kernel's struct mount_attr: older C libraries lack it, and the kernel's header clashes with newer ones.
struct MountAttributes {
    uint64_t set = 0, clear = 0, propagation = 0, user_namespace = 0;
};
constexpr uint64_t mount_read_only = 1, mount_nosuid = 2, mount_nodev = 4;

class NewRoot {
public:
    explicit NewRoot(const SandboxOptions& options) : options_(options) {}

    // Null, or what could not be done; then the old root is still there.
    const char* build() {
        if (!choose_base()) return "find a place for a new root";
        if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return "make mounts private";
        if (mount("tmpfs", base_.c_str(), "tmpfs", MS_NOSUID, "mode=0755,size=4m") != 0) return "mount a new root";
        for (const char* path : {"/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache",
                                 "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/nvidia", "/etc/localtime", "/sys"})
            if (!show(path, true)) return "show the system's files";
        if (!hide_groups()) return "hide the control groups";
        if (!show_processes()) return "show /proc";
        if (!make_tmp()) return "make a private /tmp";  // first: what is shown next may lie below it
        for (auto& path : options_.readable)
            if (!show(path, true)) return "show the driver's files";
        for (auto& path : options_.writable)
            if (!show(path, false)) return "show the writable folders";
        if (!make_devices()) return "make /dev";
        return enter() ? nullptr : "enter the new root";
    }

private:
    std::string inside(const fs::path& path) const { return base_ + path.string(); }

    bool show(const fs::path& path, bool read_only) {
        std::error_code error;
        auto status = fs::symlink_status(path, error);
        if (!fs::exists(status)) return true;
        std::string there = inside(path);
        fs::create_directories(fs::path(there).parent_path(), error);
        if (fs::is_symlink(status)) {  // /lib → usr/lib
            fs::copy_symlink(path, there, error);
            return true;
        }
        if (fs::is_directory(status))
            fs::create_directories(there, error);
        else
            UniqueFd target(open(there.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444));  // a file to mount over
        if (mount(path.c_str(), there.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) return false;
        return restrict(there, read_only);
    }

    // With all that is mounted below: a bind of /sys brings its cgroup and debug filesystems.
    static bool restrict(const std::string& path, bool read_only) {
        MountAttributes attributes;
        attributes.set = mount_nosuid | mount_nodev | (read_only ? mount_read_only : 0);
        constexpr unsigned recursive = 0x8000;  // AT_RECURSIVE
        if (syscall(SYS_mount_setattr, AT_FDCWD, path.c_str(), recursive, &attributes, sizeof attributes) == 0)
            return true;
        // Linux before 5.12: this mount alone, keeping what a user namespace may not clear.
        unsigned long flags = MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV | (read_only ? MS_RDONLY : 0);
        return mount(nullptr, path.c_str(), nullptr, flags, nullptr) == 0;
    }

    // They tell of every other worker what it uses.
    bool hide_groups() {
        auto groups = inside("/sys/fs/cgroup");
        std::error_code error;
        if (!fs::is_directory(groups, error)) return true;
        constexpr unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY;
        return mount("tmpfs", groups.c_str(), "tmpfs", flags, "size=4k,mode=0555") == 0;
    }

    // Shows our own processes only: others' command lines are their business. Linux before 5.8 does not know the word;
    // it would take a number, but then hide processes from the whole host. The root of a user namespace may not mount
    // /proc, and sees all.
    bool show_processes() {
        auto processes = inside("/proc");
        std::error_code error;
        fs::create_directories(processes, error);
        constexpr unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
        const bool ours = mount("proc", processes.c_str(), "proc", flags, "hidepid=invisible") == 0;
        if (ours ? !restrict(processes, true) : !show("/proc", true)) return false;
        return name_threads(processes);
    }

    // Of /proc we may write what is our own process's. NVIDIA's driver names its threads there (/proc/self/task/N/comm), and
    // where it cannot, its cuInit fails with CUDA_ERROR_OPERATING_SYSTEM.
    static bool name_threads(const std::string& processes) {
        std::error_code error;
        auto self = fs::read_symlink(processes + "/self", error);
        if (error) return true;  // another's numbers: nothing there is us
        auto own = processes + "/" + self.string();
        constexpr unsigned long writable = MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV | MS_NOEXEC;
        return mount(own.c_str(), own.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
               mount(nullptr, own.c_str(), nullptr, writable, nullptr) == 0;
    }

    bool make_tmp() {
        std::error_code error;
        fs::create_directories(inside("/tmp"), error);
        return mount("tmpfs", inside("/tmp").c_str(), "tmpfs", MS_NOSUID | MS_NODEV, tmp_options) == 0;
    }

    bool make_devices() {
        std::error_code error;
        fs::create_directories(inside("/dev"), error);
        std::vector<std::string> devices{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};
        devices.insert(devices.end(), options_.devices.begin(), options_.devices.end());
        for (auto& device : devices) {
            if (!fs::exists(device, error)) continue;
            std::string there = inside(device);
            fs::create_directories(fs::path(there).parent_path(), error);
            UniqueFd target(open(there.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444));  // a file to mount over
            if (mount(device.c_str(), there.c_str(), nullptr, MS_BIND, nullptr) != 0) return false;
        }
        return make_shared_memory();
    }
    // Every system has it, so a driver may count on it.
    bool make_shared_memory() {
        std::error_code error;
        fs::create_directories(inside("/dev/shm"), error);
        constexpr unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
        return mount("tmpfs", inside("/dev/shm").c_str(), "tmpfs", flags, shared_memory_options) == 0;
    }

    bool enter() {
        if (chdir(base_.c_str()) != 0) return false;
        // pivot_root with both arguments alike stacks the old root on the new one; then it is taken off.
        bool pivoted = syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0;
        if (!pivoted && (mount(".", "/", nullptr, MS_MOVE, nullptr) != 0 || chroot(".") != 0)) return false;
        if (chdir("/") != 0) return false;
        return mount(nullptr, "/", nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID, nullptr) == 0;
    }

    // Any folder will do that is there and holds nothing we are about to show: the new root hides it.
    bool choose_base() {
        auto below = [](const std::vector<std::string>& paths, const std::string& folder) {
            for (auto& path : paths)
                if (path == folder || path.starts_with(folder + "/")) return true;
            return false;
        };
        for (const char* folder : {"/mnt", "/media", "/srv", "/tmp", "/opt", "/home"}) {
            std::error_code error;
            if (!fs::is_directory(folder, error) || fs::is_symlink(folder, error)) continue;
            if (below(options_.readable, folder) || below(options_.writable, folder)) continue;
            base_ = folder;
            return true;
        }
        return false;
    }

    std::string base_;
    const SandboxOptions& options_;
};

// ---- rights

bool limit_to(int resource, rlim_t most) {
    rlimit now{};
    getrlimit(static_cast<__rlimit_resource_t>(resource), &now);
    rlim_t value = std::min(most, now.rlim_max);
    rlimit wanted{value, value};
    return setrlimit(static_cast<__rlimit_resource_t>(resource), &wanted) == 0;
}

Result<> limit_resources() {
    rlimit locked{RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &locked);  // pinned staging buffers; only root may, and only root needs to
    if (!limit_to(RLIMIT_CORE, 0) || !limit_to(RLIMIT_NOFILE, files_max) || !limit_to(RLIMIT_NPROC, threads_of_all_max))
        return failed("set resource limits");
    return Ok{};
}

// Groups that own the GPU's devices, where the operator has restricted them.
std::vector<gid_t> device_groups(const SandboxOptions& options) {
    std::vector<gid_t> groups;
    for (auto& device : options.devices) {
        struct stat status {};
        if (stat(device.c_str(), &status) == 0 && status.st_gid != 0) groups.push_back(status.st_gid);
    }
    return groups;
}

bool opens(const std::string& path) {
    return UniqueFd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) || errno == ENOENT;
}

// Would that user find what the driver needs? Our own private filesystem shows it to everybody; the host's may have it where
// only root looks.
bool finds_files(uid_t user, const SandboxOptions& options) {
    setfsgid(user), setfsuid(user);
    const auto& folders = options.writable;
    const bool all = std::all_of(options.readable.begin(), options.readable.end(), opens) &&
                     std::all_of(folders.begin(), folders.end(),
                                 [](auto& path) { return faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0; });
    setfsuid(geteuid()), setfsgid(getegid());
    return all;
}

// Takes a user id, for all that is done. Where it would not find the files, only as the real one: threads are counted by that
// one, and root's are not.
bool become(uid_t user, bool jailed, const SandboxOptions& options) {
    const bool wholly = jailed || finds_files(user, options);
    const uid_t acts_as = wholly ? user : geteuid();
    const gid_t group = wholly ? user : getegid();
    return setresgid(user, group, group) == 0 && setresuid(user, acts_as, acts_as) == 0;
}

void miss(std::string& missing, const std::string& what) {
    missing += (missing.empty() ? "" : "; ") + what + " (" + std::strerror(errno) + ")";
}

// Takes a user id of our own, so that nothing a user may do to its processes reaches another worker, and threads are counted
// for each alone. In a container that has only some ids, takes the one that all share; one whose root may not change its id
// stays root.
Result<> become_nobody_else(pid_t process, bool jailed, const SandboxOptions& options, const std::vector<gid_t>& groups,
                            std::string& missing) {
    const bool may = setgroups(groups.size(), groups.data()) == 0;
    if (may && become(first_user + static_cast<uid_t>(process), jailed, options)) {
        if (!limit_to(RLIMIT_NPROC, threads_max)) return failed("limit its threads");
        return Ok{};
    }
    if (may && become(nobody, jailed, options)) return Ok{};
    if (jailed) return failed("become nobody");
    miss(missing, "a user of its own, and a limit of its threads");
    return Ok{};
}

// No program that is started has any. Who is not root may not say so.
void drop_bounding_set() {
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) prctl(PR_CAPBSET_DROP, capability);
}

Result<> renounce_rights() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2]{};
    if (syscall(SYS_capset, &header, none) != 0) return failed("drop its capabilities");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("renounce new privileges");
    return Ok{};
}

}  // namespace

std::vector<std::string> nvidia_devices(const std::vector<int>& minors) {
    // /dev/dxg is all of them under WSL.
    std::vector<std::string> devices{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/dxg"};
    for (int minor : minors) devices.push_back("/dev/nvidia" + std::to_string(minor));
    if (!minors.empty()) return devices;
    std::error_code error;
    for (auto& entry : fs::directory_iterator("/dev", error)) {
        auto name = entry.path().filename().string();
        if (name.starts_with("nvidia") && name.find_first_not_of("0123456789", 6) == std::string::npos)
            devices.push_back(entry.path());
    }
    return devices;
}

std::vector<std::string> given_nvidia_devices() {
    const char* given = getenv("TNR_GPU_MINORS");
    std::vector<int> minors;
    std::istringstream text(given ? given : "");
    for (std::string number; std::getline(text, number, ',');) minors.push_back(std::atoi(number.c_str()));
    return nvidia_devices(minors);
}

void limit_threads(size_t most) {
    if (getuid() >= first_user && !limit_to(RLIMIT_NPROC, most)) _exit(1);  // nobody has been served yet
}

Result<> enter_sandbox(const SandboxOptions& options) {
    std::string missing;
    pid_t parent = getppid(), process = process_id_of_host();
    bool root = geteuid() == 0 && users_to_choose_from();
    write_file("/proc/self/oom_score_adj", std::to_string(ended_first_score));
    auto groups = device_groups(options);

    bool namespaces = unshare(CLONE_NEWNET) == 0;
    if (!namespaces) {  // not root, or the root of a container, who may less; and there was no namespace to start in
        namespaces = enter_user_namespace();
        if (namespaces) root = false;  // of that one only
        if (!namespaces) miss(missing, "namespaces");
        if (namespaces && unshare(CLONE_NEWNET) != 0) miss(missing, "an empty network");
    }
    if (namespaces && unshare(CLONE_NEWIPC) != 0) miss(missing, "its own shared memory");
    bool jailed = false;
    if (namespaces && unshare(CLONE_NEWNS) == 0) {
        const char* undone = NewRoot(options).build();
        jailed = undone == nullptr;
        if (undone) miss(missing, std::string("a private filesystem: cannot ") + undone);
    } else if (namespaces) {
        miss(missing, "a private filesystem");
    }

    if (auto limited = limit_resources(); !limited) return limited;
    drop_bounding_set();
    if (root)
        if (auto done = become_nobody_else(process, jailed, options, groups, missing); !done) return done;
    if (auto renounced = renounce_rights(); !renounced) return renounced;
    prctl(PR_SET_DUMPABLE, 0);         // other workers of the same user cannot read our memory
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // the change of user has cleared it
    if (getppid() != parent) _exit(128 + SIGKILL);
    setenv("HOME", "/tmp", 1);                             // where the driver may keep what it compiles,
    setenv("CUDA_CACHE_MAXSIZE", cache_bytes.c_str(), 0);  // and how much: its own default is more than there is room
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);        // queues for streams: of the usual 8 more streams share one

    forbid_tcp_ends();
    if (auto filtered = filter_system_calls(options.control_socket); !filtered) miss(missing, "a system call filter");
    if (getpid() != 1) missing += std::string(missing.empty() ? "" : "; ") + "process ids of its own";
    if (!missing.empty()) log(LogLevel::warning, "the worker's sandbox lacks: " + missing);
    return Ok{};
}

void end_on_signals() {
    struct sigaction action {};
    action.sa_handler = [](int signal) { _exit(128 + signal); };
    for (int signal : {SIGABRT, SIGTERM, SIGINT}) sigaction(signal, &action, nullptr);
}

}  // namespace tnr::worker
