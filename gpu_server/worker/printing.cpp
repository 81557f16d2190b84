// See printing.hpp. A thread of its own empties the pipe all the time: a kernel that prints more than the pipe holds
// would otherwise wait for a reader that waits for the kernel.
#include "gpu_server/worker/printing.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <thread>

namespace tnr::worker {

static constexpr int pipe_bytes = 1 << 20;  // the most an unprivileged process may ask for

void PrintCapture::start(std::function<void(std::string_view)> tell) {
    tell_ = std::move(tell);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;  // no descriptors left: the client then sees no printf, all else works
    read_end_.reset(ends[0]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[0], F_SETPIPE_SZ, pipe_bytes);
    std::fflush(stdout);
    dup2(ends[1], STDOUT_FILENO);
    ::close(ends[1]);
    std::thread([this] {
        while (true) {
            pollfd readable{read_end_.get(), POLLIN, 0};
            ::poll(&readable, 1, -1);
            LockGuard lock(mutex_);
            read_once();
        }
    }).detach();
}

bool PrintCapture::read_once() {
    std::array<char, 16384> text;
    auto size = ::read(read_end_.get(), text.data(), text.size());
    if (size <= 0) return false;
    tell_({text.data(), static_cast<size_t>(size)});
    return true;
}

void PrintCapture::flush() {
    if (!read_end_) return;
    std::fflush(stdout);
    LockGuard lock(mutex_);
    while (read_once()) {
    }
}

}  // namespace tnr::worker
