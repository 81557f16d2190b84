// Runs a program whose wall clock jumps, also one that no preloaded library reaches, as those of Go: it adds to the calendar's
// time as many seconds as the file says, at any time.
//
//     other_clock FILE PROGRAM ARGUMENTS…
//
// A program asks the kernel's shared page (vDSO) what time it is, or, where it finds none, the kernel. So the page is taken out
// of what the kernel has told the program at its start (auxv), and a filter of system calls sends the question here.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { AUX_NOTHING = 1, AUX_SHARED_PAGE = 33, WORD = sizeof(long) };

static void fail(const char* doing) {
    fprintf(stderr, "other_clock: %s: %s\n", doing, strerror(errno));
    exit(125);
}

// Its descriptor, which our parent takes over: the program does not inherit it.
static int ask_here(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLOCK_REALTIME, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLOCK_REALTIME_COARSE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
}

// What the program's stack begins with: its arguments, its environment, and auxv, which has two words an entry.
static void hide_shared_page(pid_t pid) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, pid, NULL, &registers) != 0) fail("cannot read registers");
    unsigned long at = registers.rsp + WORD;
    for (int lists = 0; lists < 2; at += WORD)
        if (ptrace(PTRACE_PEEKDATA, pid, at, NULL) == 0) ++lists;
    for (long kind; (kind = ptrace(PTRACE_PEEKDATA, pid, at, NULL)) != 0; at += 2 * WORD)
        if (kind == AUX_SHARED_PAGE && ptrace(PTRACE_POKEDATA, pid, at, AUX_NOTHING) != 0) fail("cannot write auxv");
}

static void answer(int questions, const volatile int64_t* jump) {
    struct seccomp_notif question;
    memset(&question, 0, sizeof question);
    if (ioctl(questions, SECCOMP_IOCTL_NOTIF_RECV, &question) != 0) return;
    struct timespec now;
    clock_gettime((clockid_t)question.data.args[0], &now);
    now.tv_sec += *jump;
    struct iovec from = {&now, sizeof now}, to = {(void*)question.data.args[1], sizeof now};
    struct seccomp_notif_resp reply;
    memset(&reply, 0, sizeof reply);
    reply.id = question.id;
    if (process_vm_writev((pid_t)question.pid, &from, 1, &to, 1, 0) != (ssize_t)sizeof now) reply.error = -EFAULT;
    ioctl(questions, SECCOMP_IOCTL_NOTIF_SEND, &reply);
}

int main(int count, char** arguments) {
    if (count < 3) return 2;
    int file = open(arguments[1], O_RDONLY | O_CLOEXEC);
    const volatile int64_t* jump = mmap(NULL, sizeof *jump, PROT_READ, MAP_SHARED, file, 0);
    if (jump == MAP_FAILED) fail(arguments[1]);
    int told[2], theirs, status;
    if (pipe2(told, O_CLOEXEC) != 0) fail("cannot make a pipe");
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        theirs = ask_here();
        if (theirs < 0 || write(told[1], &theirs, sizeof theirs) != sizeof theirs) fail("cannot filter");
        raise(SIGSTOP);  // until the descriptor has been taken over
        execvp(arguments[2], arguments + 2);
        fail(arguments[2]);
    }
    close(told[1]);
    if (read(told[0], &theirs, sizeof theirs) != sizeof theirs) return 125;
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) fail("it did not stop");
    int questions = (int)syscall(SYS_pidfd_getfd, (int)syscall(SYS_pidfd_open, pid, 0), theirs, 0);
    if (questions < 0) fail("cannot take over the filter");
    ptrace(PTRACE_CONT, pid, NULL, NULL);
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) return 125;
    hide_shared_page(pid);
    ptrace(PTRACE_DETACH, pid, NULL, NULL);
    struct pollfd any = {questions, POLLIN, 0};
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (poll(&any, 1, -1) > 0 && (any.revents & POLLIN)) answer(questions, jump);
        if (any.revents & POLLHUP) waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
