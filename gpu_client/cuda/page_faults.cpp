// See page_faults.hpp.
#include "gpu_client/cuda/page_faults.hpp"

#include <linux/futex.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/background_thread.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/page_watch.hpp"

namespace tnr::cuda {

namespace {

using Action = struct sigaction;  // there is a function of that name

// Threads that serve faults. Each is served after a round trip, and some wait for a kernel, so a few more than cores.
constexpr size_t serving_threads = 8;

// On the stack of the handler that waits for it; of a watched fault, for which the kernel lets the thread wait, our own.
struct Request {
    PageFault fault;
    bool served = false;
    std::atomic<uint32_t> done{0};
    Request* next = nullptr;
};

// What handlers put in, and threads of ours take out.
class Inbox {
public:
    Inbox() { ::sem_init(&filled_, 0, 0); }
    void put(Request& request) {  // only what a signal handler may do
        request.next = newest_.load(std::memory_order_relaxed);
        while (!newest_.compare_exchange_weak(request.next, &request, std::memory_order_release)) {
        }
        ::sem_post(&filled_);
    }
    Request& take() {
        while (::sem_wait(&filled_) != 0) {
        }
        LockGuard lock(mutex_);
        if (!taken_) taken_ = newest_.exchange(nullptr, std::memory_order_acquire);
        auto* request = taken_;
        taken_ = request->next;
        return *request;
    }

private:
    std::atomic<Request*> newest_{nullptr};
    sem_t filled_;
    Mutex mutex_;
    Request* taken_ TNR_GUARDED_BY(mutex_) = nullptr;
};

struct Service {
    Inbox faults, of_host_functions;
    ServeFault serve = nullptr;
    std::atomic<uint64_t> begin{UINT64_MAX}, end{0};
    std::atomic<long> host_function_thread{0};
    std::array<std::atomic<long>, serving_threads + 1> own_threads{};
    std::atomic<const Action*> before{nullptr};  // never freed: a handler may be reading it
    Mutex installing;
};
std::atomic<Service*> service{nullptr};

long system_thread_id() {
    return ::syscall(SYS_gettid);
}

bool is_own_thread(const Service& all, long id) {
    for (auto& own : all.own_threads)
        if (own == id) return true;
    return false;
}

Attempt attempt_of([[maybe_unused]] const void* context) {
#ifdef __x86_64__
    bool write = (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
    return write ? Attempt::write : Attempt::read;
#else
    return Attempt::unknown;
#endif
}

bool hand_over(Service& all, const PageFault& fault) {
    Request request;
    request.fault = fault;
    (fault.in_host_function ? all.of_host_functions : all.faults).put(request);
    while (request.done.load(std::memory_order_acquire) == 0)
        ::syscall(SYS_futex, &request.done, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
    return request.served;
}

// The system's own reaction: the access is made again and ends the process.
void give_up(int signal) {
    Action standard{};
    standard.sa_handler = SIG_DFL;
    ::sigaction(signal, &standard, nullptr);
}

// In si_errno, which the kernel leaves 0: a handler that was put in our place may in turn pass on to us. (It may also
// jump elsewhere and never return.)
constexpr int passed_on = 0x746e72;

void pass_on(Service& all, int signal, siginfo_t* info, void* context) {
    auto* before = all.before.load();
    if (!before || info->si_errno == passed_on || before->sa_handler == SIG_DFL || before->sa_handler == SIG_IGN)
        return give_up(signal);
    info->si_errno = passed_on;
    if (before->sa_flags & SA_SIGINFO)
        before->sa_sigaction(signal, info, context);
    else
        before->sa_handler(signal);
    info->si_errno = 0;
}

void on_fault(int signal, siginfo_t* info, void* context) {
    const int error = errno;
    auto& all = *service.load();
    auto address = reinterpret_cast<uint64_t>(info->si_addr);
    const long self = system_thread_id();
    bool candidate = info->si_code > 0 && address >= all.begin && address < all.end &&
                     library_state != LibraryState::forked && !is_own_thread(all, self);
    bool served = candidate && hand_over(all, {address, attempt_of(context), all.host_function_thread == self});
    errno = error;
    if (!served) pass_on(all, signal, info, context);
}

void serve_all(Service& all, Inbox& inbox, size_t thread) {
    all.own_threads[thread] = system_thread_id();
    while (true) {
        auto& request = inbox.take();
        request.served = all.serve(request.fault);
        if (request.fault.watched) {
            PageWatch::get()->retry(request.fault.address);
            delete &request;
            continue;
        }
        auto* done = &request.done;
        done->store(1, std::memory_order_release);
        // The request may be gone by now; waking whoever waits at its address then is harmless.
        ::syscall(SYS_futex, done, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
}

void hand_over_all(Service& all, PageWatch& watch) {
    while (true) {
        auto access = watch.next();
        auto* request = new Request;
        request->fault = {access.address, access.write ? Attempt::write : Attempt::read,
                          access.thread == all.host_function_thread, true};
        (request->fault.in_host_function ? all.of_host_functions : all.faults).put(*request);
    }
}

}  // namespace

void keep_serving() {
    auto* all = service.load();
    if (!all) return;
    Action now{};
    if (::sigaction(SIGSEGV, nullptr, &now) != 0) return;
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) return;
    LockGuard lock(all->installing);
    Action ours{};
    ours.sa_sigaction = on_fault;
    // A handler of the program may run on top of ours and fault as well.
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART;
    auto* before = new Action{};
    if (::sigaction(SIGSEGV, nullptr, before) != 0 || before->sa_sigaction == on_fault) {
        delete before;
        return;
    }
    all->before = before;
    ::sigaction(SIGSEGV, &ours, nullptr);
}

void serve_faults(ServeFault serve) {
    static auto* once = new std::once_flag;
    std::call_once(*once, [serve] {
        auto* all = new Service;
        all->serve = serve;
        for (size_t i = 0; i < serving_threads; ++i)
            start_background_thread([all, i] { serve_all(*all, all->faults, i); });
        start_background_thread([all] { serve_all(*all, all->of_host_functions, serving_threads); });
        if (auto* watch = PageWatch::get()) start_background_thread([all, watch] { hand_over_all(*all, *watch); });
        service = all;
        keep_serving();
    });
}

void expect_faults(uint64_t address, uint64_t bytes) {
    auto& all = *service.load();
    for (auto seen = all.begin.load(); address < seen && !all.begin.compare_exchange_weak(seen, address);) {
    }
    for (auto seen = all.end.load(); address + bytes > seen && !all.end.compare_exchange_weak(seen, address + bytes);) {
    }
}

void mark_host_function_thread() {
    auto* all = service.load();
    if (!all || all->host_function_thread == system_thread_id()) return;
    sigset_t faults;  // our threads block all signals, and a blocked fault ends the process
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    ::pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
    all->host_function_thread = system_thread_id();
}

}  // namespace tnr::cuda
