// flock(2), asked again and again: one that waits hears Ctrl-C only when the signal comes while it waits, in that very thread.
#include "api_client/base/file_lock.hpp"

#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "api_client/base/interrupt.hpp"

namespace tnr {
namespace {

using LockClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds longest_pause{20}, patience_after_interrupt{250};

}  // namespace

Lock try_lock(int fd) {
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) return Lock::theirs;
        if (errno != EINTR) return Lock::none;
    }
    return Lock::ours;
}

Lock share_lock(int fd) {
    while (::flock(fd, LOCK_SH) != 0)
        if (errno != EINTR) return Lock::none;
    return Lock::ours;
}

Lock lock_within(int fd, milliseconds patience) {
    const auto end = LockClock::now() + patience;
    for (milliseconds pause{1};; pause = std::min(2 * pause, longest_pause)) {
        const Lock lock = try_lock(fd);
        if (lock != Lock::theirs || LockClock::now() >= end) return lock;
        if (!interrupt::pause_ms(static_cast<int>(pause.count()))) return lock;
    }
}

Result<> wait_for_lock(int fd, const std::function<void()>& on_wait) {
    if (try_lock(fd) != Lock::theirs) return Ok{};
    if (on_wait) on_wait();
    while (!interrupt::interrupted())
        if (lock_within(fd, std::chrono::hours(1)) != Lock::theirs) return Ok{};
    for (const auto end = LockClock::now() + patience_after_interrupt; LockClock::now() < end;) {
        if (try_lock(fd) != Lock::theirs) return Ok{};
        std::this_thread::sleep_for(longest_pause);
    }
    return interrupt::error();
}

}  // namespace tnr
