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

// A tree that grows faster than it is walked is not waited for: what was missed is in a folder that tells of changes.
constexpr int walks_max = 10;

}  // namespace

Result<Watcher> Watcher::make(bool ignore) {
    UniqueFd fd{::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
    if (!fd) return file_error("cannot watch", "files", errno);
    return Watcher{std::move(fd), ignore};
}

// True when it was not watched before.
Result<bool> Watcher::add(const std::string& path, bool root) {
    // Below the root a link is itself what is copied.
    uint32_t how = events | IN_ONLYDIR | (root ? 0 : IN_DONT_FOLLOW);
    int watch = ::inotify_add_watch(fd_.get(), path.c_str(), how);
    if (watch >= 0) return folders_.insert(watch).second;
    if (errno == ENOENT || errno == ENOTDIR || errno == EACCES) return false;
    Error error = file_error("cannot watch", path, errno);
    if (errno == ENOSPC)
        error.hint = "more folders than the system watches: `sudo sysctl fs.inotify.max_user_watches=1048576`";
    return error;
}

// Watches the folder for that name alone; 0 or an errno.
int Watcher::watch_name(const std::string& path) {
    size_t slash = path.rfind('/');
    std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
    if (name.empty() || name == "." || name == "..") return 0;
    int watch = ::inotify_add_watch(fd_.get(), folder.c_str(), events | IN_ONLYDIR);
    if (watch < 0) return errno;
    names_[watch].insert(name);
    return 0;
}

Result<> Watcher::look(const std::string& path) {
    struct stat found;
    std::string root = path.empty() ? "." : path;
    while (root.size() > 1 && root.back() == '/') root.pop_back();
    // Even where it is gone: it may come back, as folders of builds do. A folder's own parent may be closed to us.
    int error = watch_name(root);
    if (::stat(root.c_str(), &found) != 0) return file_error("cannot read", path, errno);
    if (S_ISDIR(found.st_mode)) return look_at_tree(root);
    return error ? Result<>{file_error("cannot watch", path, error)} : Result<>{Ok{}};
}

Result<> Watcher::look_at_tree(const std::string& root) {
    // A folder is listed before it is watched; what came between shows in the next walk.
    for (int walk = 0; walk < walks_max; ++walk) {
        bool more = false;
        Result<bool> added = false;
        auto walked = walk_tree(root, {ignore_, {}}, [&](const Item& item, const auto&) {
            if (item.kind == Kind::folder) added = add(joined(root, item.path), item.path.empty());
            more = more || (added && *added);
            return static_cast<bool>(added);
        });
        if (!added) return added.error();
        if (!walked) return walked.error();
        if (!more) break;
    }
    return Ok{};
}

bool Watcher::counts(int watch, const std::string& name) const {
    auto names = names_.find(watch);
    return folders_.count(watch) || names == names_.end() || names->second.count(name);
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
            if (event->mask & IN_IGNORED) {  // the folder is gone, and its number with it
                folders_.erase(event->wd);
                names_.erase(event->wd);
            } else if (counts(event->wd, name) && !is_temporary(name)) {  // lost events are those of no watch
                changed = true;
            }
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
