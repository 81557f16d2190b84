// Walking a local folder, and what both walks share.
#include "cli/sync/tree.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <limits>

#include "api_client/base/files.hpp"
#include "cli/ssh/exec.hpp"
#include "cli/sync/copy.hpp"

namespace tnr::sync {
namespace {

using Folder = Handle<DIR, closedir>;

Result<std::vector<std::string>> names_in(const std::string& folder) {
    Folder open{::opendir(folder.c_str())};
    if (!open) return file_error("cannot read folder", folder, errno);
    std::vector<std::string> names;
    while (dirent* entry = ::readdir(open.get())) {
        std::string name = entry->d_name;
        if (name != "." && name != ".." && !is_temporary(name)) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

Result<Item> look(const std::string& root, const std::string& path) {
    std::string full = joined(root, path);
    struct stat found;
    if ((path.empty() ? ::stat(full.c_str(), &found) : ::lstat(full.c_str(), &found)) != 0)
        return file_error("cannot read", full, errno);
    constexpr time_t latest = std::numeric_limits<uint32_t>::max();
    time_t mtime = std::clamp<time_t>(found.st_mtime, 0, latest);
    ssh::Attributes attributes{static_cast<uint64_t>(found.st_size), found.st_mode, static_cast<uint32_t>(mtime)};
    Item item = item_of(path, attributes);
    item.other_time = mtime != found.st_mtime;
    if (item.kind != Kind::link) return item;
    char text[PATH_MAX];
    ssize_t length = ::readlink(full.c_str(), text, sizeof text);
    if (length < 0) return file_error("cannot read", full, errno);
    item.leads_to.assign(text, static_cast<size_t>(length));
    return item;
}

// An Error is about the root: what cannot be read below it is passed over.
Result<> walk(const std::string& root, const std::string& path, std::vector<Item>& items,
              std::vector<Error>& unreadable) {
    auto item = look(root, path);
    if (!item) return item.error();
    items.push_back(*item);
    if (item->kind != Kind::folder) return Ok{};
    auto names = names_in(joined(root, path));
    if (!names) return names.error();
    for (const auto& name : *names)
        if (auto walked = walk(root, joined(path, name), items, unreadable); !walked)
            unreadable.push_back(walked.error());
    return Ok{};
}

}  // namespace

Kind kind_of(uint32_t mode) {
    if (S_ISREG(mode)) return Kind::file;
    if (S_ISDIR(mode)) return Kind::folder;
    return S_ISLNK(mode) ? Kind::link : Kind::other;
}

Item item_of(const std::string& path, const ssh::Attributes& attributes) {
    uint32_t mode = attributes.mode.value_or(0);
    bool special = (mode & 07000) && kind_of(mode) != Kind::link;
    return {path,    kind_of(mode), attributes.size.value_or(0), mode & 0777,
            special, false,         attributes.mtime.value_or(0)};
}

Result<std::vector<Item>> local_tree(const std::string& root, std::vector<Error>& unreadable) {
    std::vector<Item> items;
    if (auto walked = walk(root, "", items, unreadable); !walked) return walked.error();
    return items;
}

std::string joined(const std::string& root, const std::string& path) {
    if (root.empty() || path.empty()) return root + path;
    return root.back() == '/' ? root + path : root + "/" + path;
}

Error refusal(const ssh::Reply& reply, const std::string& doing, const std::string& path, const std::string& machine) {
    std::string where = machine + ":" + path;
    switch (reply.status) {
        case ssh::Status::no_such_file:
            return Error{Error::Kind::not_found, doing + " " + where + ": it does not exist there"};
        case ssh::Status::permission_denied:
            return Error{Error::Kind::remote, doing + " " + where + ": permission denied",
                         "copy to the home folder (`" + machine + ":`) and move it with `tnr connect " + machine +
                             " -- sudo mv …`"};
        default:
            return Error{Error::Kind::remote, doing + " " + where + ": " + reply.message};
    }
}

Error unreadable_there(const ssh::Reply& reply, const std::string& path, const std::string& machine) {
    Error error = refusal(reply, "cannot read", path, machine);
    if (reply.status == ssh::Status::permission_denied)
        error.hint =
            "root may: `tnr connect " + machine + " -- sudo chmod a+rX " + ssh::quoted(path) + "`, then sync again";
    return error;
}

}  // namespace tnr::sync
