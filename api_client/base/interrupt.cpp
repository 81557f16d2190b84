// A flag and a pipe: the flag for code between two calls, the pipe to wake poll().
#include "api_client/base/interrupt.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>

#include "api_client/base/descriptors.hpp"

namespace tnr::interrupt {
namespace {

std::atomic<int> received{0};
std::atomic<void (*)()> last_words{nullptr};
Ends wake;

void say_last_words() {
    if (auto say = last_words.load()) say();
}

void wake_up() {
    if (wake.other >= 0) [[maybe_unused]]
        auto ignored = ::write(wake.other, "!", 1);
}

void on_polite(int signal) {
    int saved = errno;
    if (received.exchange(signal) != 0) {
        say_last_words();
        _exit(128 + signal);
    }
    wake_up();
    errno = saved;
}

void on_crash(int signal) {
    say_last_words();
    ::signal(signal, SIG_DFL);
    ::raise(signal);
}

void handle(int signal, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;  // no SA_RESTART: a blocking read on the terminal must end too
    sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
}

// `nohup tnr …`, or a script's background job: whoever ignored it for us meant it.
bool ignored(int signal) {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void open_pipe() {
    if (!wake) wake = make_pipe(Waits::no);
}

}  // namespace

void install() {
    open_pipe();
    for (int signal : {SIGINT, SIGTERM, SIGHUP})
        if (!ignored(signal)) handle(signal, on_polite);
    for (int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) handle(signal, on_crash);
    ::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() {
    return received.load() != 0;
}
int fd() {
    return wake.one;
}
int exit_code() {
    return interrupted() ? 128 + received.load() : 0;
}

int take() {
    int signal = received.exchange(0);
    for (char byte; wake.one >= 0 && ::read(wake.one, &byte, 1) == 1;) {
    }
    if (interrupted()) wake_up();  // one more came meanwhile, and its byte is gone
    return signal;
}

void again(int signal) {
    int none = 0;
    if (received.compare_exchange_strong(none, signal)) wake_up();
}

bool pause_ms(int milliseconds) {
    using Clock = std::chrono::steady_clock;
    auto end = Clock::now() + std::chrono::milliseconds(milliseconds);
    while (!interrupted()) {
        auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
        if (left <= 0) return true;
        pollfd wait{wake.one, POLLIN, 0};
        ::poll(&wait, 1, static_cast<int>(left));
    }
    return false;
}

Error error() {
    return Error{Error::Kind::internal, "interrupted"};
}

SignalsBlocked::SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
}

SignalsBlocked::~SignalsBlocked() {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void raise_for_test() {
    open_pipe();
    on_polite(SIGINT);
}

void clear_for_test() {
    take();
}

void set_last_words(void (*words)()) {
    last_words = words;
}

}  // namespace tnr::interrupt
