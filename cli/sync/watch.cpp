// See watch.hpp.
#include "cli/sync/watch.hpp"

#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>

#include "api_client/base/files.hpp"
#include "api_client/base/interrupt.hpp"
#include "cli/sync/engine/temporary.hpp"
#include "cli/sync/engine/tree.hpp"

namespace tnr::sync {
namespace {

// Silence that means "saved"; and how long a program that writes without pause may keep us waiting.
constexpr std::chrono::milliseconds quiet{150}, patience{2000};
constexpr uint32_t events = IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB |
                            IN_DELETE_SELF | IN_MOVE_SELF | IN_MODIFY;

}  // namespace

Result<Watcher> Watcher::make() {
    UniqueFd fd{::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
    if (!fd) return file_error("cannot watch", "files", errno);
    return Watcher{std::move(fd)};
}

Result<> Watcher::add(const std::string& path, bool root) {
    // Below the root a link is itself what is copied.
    uint32_t how = events | IN_ONLYDIR | (root ? 0 : IN_DONT_FOLLOW);
    if (::inotify_add_watch(fd_.get(), path.c_str(), how) >= 0 || errno == ENOENT || errno == ENOTDIR ||
        errno == EACCES)
        return Ok{};
    Error error = file_error("cannot watch", path, errno);
    if (errno == ENOSPC)
        error.hint = "more folders than the system watches: `sudo sysctl fs.inotify.max_user_watches=1048576`";
    return error;
}

Result<> Watcher::look(const std::string& path) {
    struct stat found;
    std::string root = path.empty() ? "." : path;
    if (::stat(root.c_str(), &found) != 0) return file_error("cannot read", path, errno);
    if (!S_ISDIR(found.st_mode)) {
        size_t slash = root.rfind('/');
        std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : root.substr(0, slash);
        int watch = ::inotify_add_watch(fd_.get(), folder.c_str(), events | IN_ONLYDIR);
        if (watch < 0) return file_error("cannot watch", folder, errno);
        files_[watch] = slash == std::string::npos ? root : root.substr(slash + 1);
        return Ok{};
    }
    Result<> added = Ok{};
    // What is ignored is not watched either: builds and caches change all the time.
    auto walked = walk_tree(root, {}, [&](const Item& item, const IgnoreRules*) {
        if (item.kind == Kind::folder) added = add(joined(root, item.path), item.path.empty());
        return static_cast<bool>(added);
    });
    if (!added) return added;
    return walked ? Result<>{Ok{}} : Result<>{walked.error()};
}

// True when one of them means a change.
bool Watcher::take_events() {
    alignas(inotify_event) char bytes[16384];
    bool changed = false;
    for (ssize_t got; (got = ::read(fd_.get(), bytes, sizeof bytes)) > 0;) {
        for (char* at = bytes; at < bytes + got;) {
            auto* event = reinterpret_cast<inotify_event*>(at);
            at += sizeof *event + event->len;
            std::string name = event->len ? event->name : "";
            auto file = files_.find(event->wd);
            bool counts = file == files_.end() || file->second == name || (event->mask & IN_Q_OVERFLOW);
            if (counts && !is_temporary(name) && !(event->mask & IN_IGNORED)) changed = true;
        }
    }
    return changed;
}

Result<> Watcher::wait() {
    using Clock = std::chrono::steady_clock;
    std::optional<Clock::time_point> first;
    for (;;) {
        pollfd waits[] = {{fd_.get(), POLLIN, 0}, {interrupt::fd(), POLLIN, 0}};
        int ready = ::poll(waits, 2, first ? static_cast<int>(quiet.count()) : -1);
        if (interrupt::interrupted()) return interrupt::error();
        if (ready < 0 && errno != EINTR) return file_error("cannot watch", "files", errno);
        if (ready == 0 || (first && Clock::now() - *first > patience)) return Ok{};
        if (take_events() && !first) first = Clock::now();
    }
}

}  // namespace tnr::sync
