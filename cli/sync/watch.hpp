// Waiting until something changes in a folder. The one place that knows the kernel's way of telling (Linux: inotify).
#pragma once

#include <map>
#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr::sync {

// Of a tree as it is when look() is called. What it tells is only that something has changed: what, the next sync finds out. So
// renames, editors that write beside and rename, and lost events need no care of their own.
class Watcher {
public:
    static Result<Watcher> make();
    // A path to watch, with all that is below it. Again before each sync, for the folders that are new.
    Result<> look(const std::string& path);
    // Until something has changed, and then nothing more for a moment: who saves a file writes it in several steps.
    // Kind usage "interrupted" when the user ends it.
    Result<> wait();

private:
    explicit Watcher(UniqueFd fd) : fd_(std::move(fd)) {}
    Result<> add(const std::string& path, bool root);
    bool take_events();

    UniqueFd fd_;
    std::map<int, std::string> files_;  // watches of a file's folder: the only name in it that counts
};

}  // namespace tnr::sync
