// Walking a local folder.
#include "cli/sync/engine/tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <optional>

#include "api_client/base/files.hpp"
#include "api_client/base/handles.hpp"
#include "cli/sync/engine/file_times.hpp"
#include "cli/sync/engine/ignore.hpp"
#include "cli/sync/engine/repository.hpp"
#include "cli/sync/engine/temporary.hpp"

namespace tnr::sync {
namespace {

using OpenFolder = Handle<DIR, closedir>;

// In .git nothing is left out by .gitignore, though a `*` or `logs/` names what is there.
bool is_of_git(const std::string& path) {
    return ("/" + path + "/").find("/.git/") != std::string::npos;
}

class TreeWalk {
public:
    TreeWalk(std::string root, const WalkSettings& settings, const Found& found)
        : root_(std::move(root)), settings_(settings), found_(found) {}

    Result<Walked> run() {
        struct stat root;
        if (::stat(root_.empty() ? "." : root_.c_str(), &root) != 0) return cannot_read(root_, errno);
        Item item = item_of("", root);
        if (item.kind == Kind::folder) {
            auto repository = settings_.ignore ? repository_of(root_) : Repository{};
            if (!repository) return repository.error();
            repository_ = std::move(*repository);
            if (auto walked = folder(item, repository_.rules); !walked) return walked.error();
        } else {
            (void)found_(item, nullptr);
        }
        return std::move(walked_);
    }

private:
    std::string full(const std::string& path) const {
        std::string whole = joined(root_, path);
        return whole.empty() ? "." : whole;
    }

    Error cannot_read(const std::string& path, int error_number) const {
        return settings_.cannot_read ? settings_.cannot_read(path, error_number)
                                     : file_error("cannot read", path, error_number);
    }

    // An Error is about the folder itself.
    Result<> folder(const Item& item, const std::shared_ptr<const IgnoreRules>& above) {
        // Only the root may be a link.
        int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (item.path.empty() ? 0 : O_NOFOLLOW);
        UniqueFd open{::open(full(item.path).c_str(), flags)};
        if (!open) return cannot_read(full(item.path), errno);
        std::vector<std::string> names = names_to_copy(open.get(), item.path);
        auto rules = settings_.ignore ? rules_in(item.path, open.get(), names, above) : above;
        std::vector<Item> items = look_at(open.get(), item.path, names, rules.get());
        open.reset();  // a deep tree would need as many descriptors as it has levels
        if (!tell(item, rules)) return *stopped_;
        for (const auto& each : items)
            if (each.kind != Kind::folder && !tell(each, nullptr)) return *stopped_;
        for (const auto& each : items)
            if (each.kind == Kind::folder)
                if (auto walked = folder(each, rules); !walked) {
                    if (stopped_) return *stopped_;
                    pass_over(walked.error());
                }
        return Ok{};
    }

    // Of a folder that is left out but for what git tracks in it, all else is.
    std::shared_ptr<const IgnoreRules> rules_in(const std::string& path, int fd, const std::vector<std::string>& names,
                                                const std::shared_ptr<const IgnoreRules>& above) const {
        auto rules = IgnoreRules::of_folder(fd, path, names, above);
        if (!above || !repository_.folders_of_tracked.count(path) || !above->ignored(path, true)) return rules;
        const auto own = rules->of(path);
        return IgnoreRules::make(path, {"*", own.empty() ? "" : own.back()->texts()[1]}, above);
    }

    bool left_out(const Item& item, const IgnoreRules& rules) const {
        const bool folder = item.kind == Kind::folder;
        if (!rules.ignored(item.path, folder)) return false;
        const bool tracked = is_of_git(item.path) || repository_.tracked.count(item.path) ||
                             (folder && repository_.folders_of_tracked.count(item.path));
        return !tracked || rules.ignored_though_tracked(item.path, folder);
    }

    // What has gone since its folder was listed is not there, which is no trouble.
    void pass_over(const Error& error) {
        if (error.kind != Error::Kind::not_found) walked_.unreadable.push_back(error);
    }

    bool tell(const Item& item, const std::shared_ptr<const IgnoreRules>& rules) {
        if (!found_(item, rules)) stopped_ = Error{Error::Kind::network, "nobody hears any more what there is"};
        return !stopped_;
    }

    // Half a list is told of as well: to --delete, what it lacks would be gone.
    std::vector<std::string> names_to_copy(int fd, const std::string& path) {
        std::vector<std::string> names;
        if (int error = names_in(fd, names)) pass_over(cannot_read(full(path), error));
        names.erase(std::remove_if(names.begin(), names.end(), is_temporary), names.end());
        std::sort(names.begin(), names.end());
        return names;
    }

    std::vector<Item> look_at(int fd, const std::string& path, const std::vector<std::string>& names,
                              const IgnoreRules* rules) {
        std::vector<Item> items;
        items.reserve(names.size());
        for (const auto& name : names) {
            auto item = look(fd, joined(path, name), name);
            if (!item)
                pass_over(item.error());
            else if (rules && left_out(*item, *rules))
                ++walked_.ignored;
            else
                items.push_back(std::move(*item));
        }
        return items;
    }

    Result<Item> look(int fd, const std::string& path, const std::string& name) const {
        // It could not be opened by its path. The other end has no longer ones either.
        if (full(path).size() >= PATH_MAX) return cannot_read(full(path), ENAMETOOLONG);
        struct stat found;
        if (::fstatat(fd, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) return cannot_read(full(path), errno);
        Item item = item_of(path, found);
        if (item.kind != Kind::link) return item;
        char text[PATH_MAX];
        ssize_t length = ::readlinkat(fd, name.c_str(), text, sizeof text);
        if (length < 0) return cannot_read(full(path), errno);
        item.leads_to.assign(text, static_cast<size_t>(length));
        return item;
    }

    const std::string root_;
    const WalkSettings& settings_;
    const Found& found_;
    Repository repository_;
    Walked walked_;
    std::optional<Error> stopped_;
};

}  // namespace

uint32_t mode_while_filling(const Item& folder) {
    return folder.mode | 0700;
}

Kind kind_of(uint32_t mode) {
    if (S_ISREG(mode)) return Kind::file;
    if (S_ISDIR(mode)) return Kind::folder;
    return S_ISLNK(mode) ? Kind::link : Kind::other;
}

Item item_of(const std::string& path, const struct stat& found) {
    Kind kind = kind_of(found.st_mode);
    Item item{path, kind, static_cast<uint64_t>(found.st_size), found.st_mode & 0777u};
    item.special = (found.st_mode & 07000) && kind != Kind::link;
    item.mtime = modified_at(found).tv_sec;
    item.mtime_ns = static_cast<uint32_t>(modified_at(found).tv_nsec);
    return item;
}

bool same_time(const Item& one, const Item& other) {
    return one.mtime == other.mtime && (one.mtime_ns == other.mtime_ns || one.mtime_ns == 0 || other.mtime_ns == 0);
}

int names_in(int folder, std::vector<std::string>& names) {
    int own = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    OpenFolder open{own < 0 ? nullptr : ::fdopendir(own)};
    if (!open) return errno;
    errno = 0;  // the end and an error look the same
    for (dirent* entry; (entry = ::readdir(open.get())) != nullptr; errno = 0) {
        std::string name = entry->d_name;
        if (name != "." && name != "..") names.push_back(std::move(name));
    }
    return errno;
}

Result<Walked> walk_tree(const std::string& root, const WalkSettings& settings, const Found& found) {
    return TreeWalk{root, settings, found}.run();
}

std::string joined(const std::string& root, const std::string& path) {
    if (root.empty() || path.empty()) return root + path;
    return root.back() == '/' ? root + path : root + "/" + path;
}

}  // namespace tnr::sync
