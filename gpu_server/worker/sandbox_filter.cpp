// See sandbox_filter.hpp. A BPF program, written by hand: no library needed for a list of comparisons.
#include "gpu_server/worker/sandbox_filter.hpp"

#include <asm/sockios.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "api_client/base/handles.hpp"

namespace tnr::worker {
namespace {

#if defined(__x86_64__)
constexpr uint32_t our_architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t our_architecture = AUDIT_ARCH_AARCH64;
#else
#error "name this machine's AUDIT_ARCH here"
#endif

// Newer than some C libraries.
constexpr int so_passpidfd = 76;
// linux/ioprio.h, which is no C++ in Linux 6.1.192: it calls a parameter `class`.
constexpr uint32_t ioprio_who_process = 1;

// Refused whatever their arguments.
constexpr long denied[] = {
    // programs and processes
    SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise,
    SYS_pidfd_open, SYS_pidfd_getfd, SYS_pidfd_send_signal, SYS_kcmp, SYS_setns, SYS_unshare, SYS_migrate_pages,
    // another user: where the files are only root's, we act as root, and are counted as somebody else (sandbox.cpp)
    SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setfsuid, SYS_setfsgid,
    SYS_setgroups,
    // a TCP connection that was accepted belongs to the host's network: disconnected, it could connect anywhere
    SYS_connect,
    // mounts and roots
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree, SYS_fsopen, SYS_fsconfig,
    SYS_fsmount, SYS_fspick, SYS_mount_setattr, SYS_open_by_handle_at, SYS_name_to_handle_at,
    // the kernel itself
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load, SYS_reboot, SYS_swapon,
    SYS_swapoff, SYS_acct, SYS_quotactl, SYS_syslog, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex,
    SYS_clock_adjtime, SYS_sethostname, SYS_setdomainname, SYS_personality, SYS_vhangup,
    // where kernel bugs have most often been found
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
    SYS_keyctl, SYS_add_key, SYS_request_key, SYS_fanotify_init,
    // memory that no process is seen to have (host_memory.hpp)
    SYS_shmget, SYS_msgget, SYS_semget, SYS_mq_open,
#if defined(__x86_64__)
    SYS_iopl, SYS_ioperm, SYS_fork, SYS_vfork, SYS_mknod,
#endif
    SYS_mknodat};

class Program {
public:
    // The call `number` fails with `error`.
    void deny(long number, int error = EPERM) {
        add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1);
        refuse(error);
    }
    // Looks closer at one call: `check` adds comparisons of arguments, and ends by refusing or by falling through.
    template <class Check>
    void when(long number, Check check) {
        size_t jump = code_.size();
        add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 0);
        check();
        load_number();
        code_[jump].jf = static_cast<uint8_t>(code_.size() - jump - 1);
    }
    void refuse_unless_argument(int index, uint32_t value, int error) {
        load_argument(index);
        add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
        refuse(error);
    }
    void refuse_if_argument(int index, uint32_t value, int error) {
        load_argument(index);
        add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
        refuse(error);
    }
    void refuse_unless_argument_is_one_of(int index, uint32_t one, uint32_t other, int error) {
        load_argument(index);
        add(BPF_JMP | BPF_JEQ | BPF_K, one, 2, 0);
        add(BPF_JMP | BPF_JEQ | BPF_K, other, 1, 0);
        refuse(error);
    }
    void refuse_if_argument_is_at_most(int index, uint32_t value, int error) {
        load_argument(index);
        add(BPF_JMP | BPF_JGT | BPF_K, value, 1, 0);
        refuse(error);
    }
    // Both halves: an address may have a low one of zeros.
    void refuse_unless_null(int index, int error) {
        load_argument(index);
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2);
        load_argument(index, sizeof(uint32_t));
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
        refuse(error);
    }
    void refuse_if_argument_has(int index, uint32_t bits, int error) {
        load_argument(index);
        add(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
        refuse(error);
    }
    void refuse_unless_argument_has(int index, uint32_t bits, int error) {
        load_argument(index);
        add(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0);
        refuse(error);
    }
    void start() {
        add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
        add(BPF_JMP | BPF_JEQ | BPF_K, our_architecture, 1, 0);
        add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);  // another table of calls: ours would mean nothing there
        load_number();
#if defined(__x86_64__)
        add(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);  // x32: the same architecture, other numbers
        refuse(ENOSYS);
#endif
    }
    bool install() {
        add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
    }

private:
    void add(int code, uint32_t value, int if_true = 0, int if_false = 0) {
        code_.push_back(
            {static_cast<uint16_t>(code), static_cast<uint8_t>(if_true), static_cast<uint8_t>(if_false), value});
    }
    void refuse(int error) {
        add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error));
    }
    void load_number() {
        add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
    }
    // The low half: all arguments we look at but one are ints or flags below 2^32.
    void load_argument(int index, uint32_t from = 0) {
        add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * index) + from);
    }
    std::vector<sock_filter> code_;
};

}  // namespace

Result<> filter_system_calls(int control_socket) {
    Program program;
    program.start();
    for (long number : denied) program.deny(number);

    // Threads, no processes. clone3 hides its flags in memory; told that it does not exist, libc uses clone.
    // And no thread with descriptors of its own: files in memory that it has would be in no list (host_memory.hpp).
    program.deny(SYS_clone3, ENOSYS);
    program.when(SYS_clone, [&] {
        program.refuse_unless_argument_has(0, CLONE_THREAD, EPERM);
        program.refuse_unless_argument_has(0, CLONE_FILES, EPERM);
    });
    program.when(SYS_close_range, [&] { program.refuse_if_argument_has(2, CLOSE_RANGE_UNSHARE, EPERM); });

    auto self = static_cast<uint32_t>(getpid());
    for (long number : {SYS_kill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo})
        program.when(number, [&] { program.refuse_unless_argument(0, self, EPERM); });
    program.deny(SYS_tkill);
    // The kernel would send signals for us, to whomever we name.
    program.when(SYS_fcntl, [&] {
        for (uint32_t command : {F_SETOWN, F_SETOWN_EX, F_SETSIG}) program.refuse_if_argument(1, command, EPERM);
    });
    // What works on other processes of the same user.
    for (long number : {SYS_prlimit64, SYS_move_pages})
        program.when(number, [&] { program.refuse_unless_argument_is_one_of(0, 0, self, EPERM); });
    // Our other threads cannot be told from other processes, and libzmq aborts when it may not schedule its own: the
    // call does nothing and reports success.
    for (long number : {SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setaffinity, SYS_sched_setattr})
        program.when(number, [&] { program.refuse_unless_argument_is_one_of(0, 0, self, 0); });
    // Of this process alone: "all of my user" would be other workers where the server is not root.
    program.when(SYS_setpriority, [&] { program.refuse_unless_argument(0, PRIO_PROCESS, EPERM); });
    program.when(SYS_ioprio_set, [&] { program.refuse_unless_argument(0, ioprio_who_process, EPERM); });
    for (long number : {SYS_setpriority, SYS_ioprio_set})
        program.when(number, [&] { program.refuse_unless_argument_is_one_of(1, 0, self, EPERM); });
    // It ends with its supervisor.
    program.when(SYS_prctl, [&] { program.refuse_if_argument(0, PR_SET_PDEATHSIG, EPERM); });

    program.when(SYS_socket, [&] {
        // libzmq aborts on what getifaddrs() reports of this family, unless it is exactly this error.
        program.refuse_if_argument(0, AF_NETLINK, EOPNOTSUPP);
        // NVIDIA's driver makes one of these and listens at it, for processes that share its memory: where it cannot, cuInit
        // fails with CUDA_ERROR_OPERATING_SYSTEM. In a network of its own nobody is there to connect.
        program.refuse_unless_argument(0, AF_UNIX, EAFNOSUPPORT);
    });
    // It sends nothing to itself: what is on its way through a socket is in no list, be it bytes or files in memory
    // (host_memory.hpp). Messages go to the supervisor alone, by a descriptor that nothing else can take the place of.
    program.deny(SYS_socketpair, EAFNOSUPPORT);
    const auto control = static_cast<uint32_t>(control_socket);
    program.when(SYS_sendto, [&] {
        program.refuse_unless_null(4, EPERM);
        program.refuse_if_argument_has(3, MSG_FASTOPEN, EPERM);  // a send that connects
    });
    program.when(SYS_sendmsg, [&] {
        program.refuse_unless_argument(0, control, EPERM);
        program.refuse_if_argument_has(2, MSG_FASTOPEN, EPERM);
    });
    program.deny(SYS_sendmmsg);
    if (control_socket >= 0) {
        program.when(SYS_close, [&] { program.refuse_if_argument(0, control, EPERM); });
        program.when(SYS_close_range, [&] { program.refuse_if_argument_is_at_most(0, control, EPERM); });
        program.when(SYS_dup3, [&] { program.refuse_if_argument(1, control, EPERM); });
#if defined(__x86_64__)
        program.when(SYS_dup2, [&] { program.refuse_if_argument(1, control, EPERM); });
#endif
    }
    program.when(SYS_setsockopt, [&] {
        for (uint32_t tells : {SO_PASSCRED, so_passpidfd}) program.refuse_if_argument(2, tells, EPERM);
    });

    // TIOCSTI pushes characters into a terminal's input. The others tell of the host's network, which a connection that was
    // accepted belongs to.
    program.when(SYS_ioctl, [&] {
        program.refuse_if_argument(1, TIOCSTI, EPERM);
        for (uint32_t about : {SIOCGIFCONF, SIOCGIFNAME, SIOCGIFADDR, SIOCGIFDSTADDR, SIOCGIFBRDADDR, SIOCGIFNETMASK,
                               SIOCGIFHWADDR, SIOCGIFFLAGS, SIOCGIFINDEX, SIOCGIFMTU, SIOCGIFMETRIC, SIOCGIFTXQLEN,
                               SIOCGIFMAP, SIOCETHTOOL, SIOCGARP, SIOCGSKNS})
            program.refuse_if_argument(1, about, EPERM);
        for (uint32_t owner : {FIOSETOWN, SIOCSPGRP}) program.refuse_if_argument(1, owner, EPERM);  // as F_SETOWN
    });

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !program.install())
        return Error{Error::Kind::internal, std::string("the kernel takes no filter: ") + std::strerror(errno)};
    return Ok{};
}

// The kernel's struct landlock_ruleset_attr and its call numbers: headers are older than what this needs.
void forbid_tcp_ends() {
    constexpr long create_ruleset = 444, restrict_self = 446;
    constexpr uint64_t bind_tcp = 1, connect_tcp = 2;
    const struct { uint64_t files = 0, network = bind_tcp | connect_tcp; } handled;
    const UniqueFd ruleset(static_cast<int>(syscall(create_ruleset, &handled, sizeof handled, 0)));
    if (ruleset) (void)syscall(restrict_self, ruleset.get(), 0);
}

}  // namespace tnr::worker
