// Raw mode, window size, and giving the terminal back in every case.
#include "cli/ssh/terminal.hpp"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "api_client/base/descriptors.hpp"
#include "api_client/base/interrupt.hpp"

namespace tnr::ssh {
namespace {

// What the handlers need; set before they are.
int terminal_fd = -1;
termios before{};
Ends resized;

void give_back() {
    if (terminal_fd >= 0) ::tcsetattr(terminal_fd, TCSANOW, &before);
}

void go_raw() {
    termios raw = before;
    ::cfmakeraw(&raw);
    ::tcsetattr(terminal_fd, TCSANOW, &raw);
}

void on_resize(int) {
    int saved = errno;
    [[maybe_unused]] auto ignored = ::write(resized.other, "!", 1);
    errno = saved;
}

// After a stop from outside (kill -STOP) the user's shell has set the terminal its own way.
void on_continue(int) {
    int saved = errno;
    if (terminal_fd >= 0) go_raw();
    on_resize(0);
    errno = saved;
}

void handle(int signal, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
}

WindowSize window_size(int fd) {
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {};
    return {size.ws_col, size.ws_row};
}

}  // namespace

RawTerminal::RawTerminal(int fd) : fd_(fd) {
    if (::tcgetattr(fd, &before) != 0) return;
    if (!resized) resized = make_pipe(Waits::no);
    terminal_fd = fd;
    interrupt::set_last_words(give_back);
    handle(SIGWINCH, on_resize);
    handle(SIGCONT, on_continue);
    go_raw();
}

RawTerminal::~RawTerminal() {
    give_back();
    handle(SIGWINCH, SIG_DFL);
    handle(SIGCONT, SIG_DFL);
    interrupt::set_last_words(nullptr);
    terminal_fd = -1;
}

Pty RawTerminal::pty() const {
    const char* term = std::getenv("TERM");
    int fd = fd_;
    return Pty{term && *term ? term : "xterm-256color", [fd] { return window_size(fd); }, resized.one};
}

}  // namespace tnr::ssh
