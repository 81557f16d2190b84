// Waiting until something changes in a folder. The one place that knows the kernel's way of telling (Linux: inotify).
#pragma once

#include <map>
#include <set>
#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr::sync {

// Of trees as they are when look() is called. What it tells is only that something has changed: what, the next sync finds out. So
// renames, editors that write beside and rename, and lost events need no care of their own.
class Watcher {
public:
    // `ignore`: what .gitignore and .tnrignore leave out is not watched either: builds and caches change all the time.
    static Result<Watcher> make(bool ignore);
    // A path to watch, with all that is below it. Again before each sync, for the folders that are new.
    Result<> look(const std::string& path);
    // Until something has changed, and then nothing more for a moment: who saves a file writes it in several steps.
    // Kind usage "interrupted" when the user ends it.
    Result<> wait();

private:
    Watcher(UniqueFd fd, bool ignore) : fd_(std::move(fd)), ignore_(ignore) {}
    Result<> look_at_tree(const std::string& root);
    Result<bool> add(const std::string& path, bool root);
    int watch_name(const std::string& path);
    bool take_events();
    bool counts(int watch, const std::string& name) const;

    UniqueFd fd_;
    bool ignore_;
    std::set<int> folders_;  // watches of folders in which everything counts
    // Of folders that hold a root: the names in them that count, where not everything does.
    std::map<int, std::set<std::string>> names_;
};

}  // namespace tnr::sync
