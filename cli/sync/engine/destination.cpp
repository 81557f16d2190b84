// See destination.hpp.
#include "cli/sync/engine/destination.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <set>
#include <utility>

#include "api_client/base/file_lock.hpp"
#include "api_client/base/files.hpp"
#include "cli/sync/engine/endpoints.hpp"
#include "cli/sync/engine/messages.hpp"
#include "cli/sync/engine/temporary.hpp"

namespace tnr::sync {
namespace {

constexpr size_t open_folders_max = 64;
constexpr uint32_t no_parent = UINT32_MAX;

bool is_folder(const std::string& path) {
    struct stat found;
    return ::stat(path.empty() ? "." : path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

std::string folder_part(const std::string& path) {
    size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_part(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

bool good_name(std::string_view name) {
    return !name.empty() && name.size() <= name_bytes_max && name != "." && name != ".." &&
           name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

timespec time_of(const Item& item) {
    return {static_cast<time_t>(item.mtime), static_cast<long>(item.mtime_ns)};
}

void set_time(int folder, const std::string& name, const Item& item) {
    timespec times[2] = {time_of(item), time_of(item)};
    ::utimensat(folder, name.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

// With the user's own umask: these folders are theirs, not copies of anything. An errno, and where.
int make_way(const std::string& path, std::string& where) {
    for (size_t at = 1; at <= path.size(); ++at) {
        if (at < path.size() && path[at] != '/') continue;
        where = path.substr(0, at);
        if (::mkdir(where.c_str(), 0777) != 0 && errno != EEXIST) return errno;
    }
    return 0;
}

}  // namespace

bool same_content(const Item& one, const Item& other) {
    return one.kind == Kind::file && other.kind == Kind::file && one.size == other.size && same_time(one, other);
}

Result<uint32_t> Destination::add(uint64_t parent_and_one, Item item) {
    auto index = static_cast<uint32_t>(entries_.size());
    Entry entry;
    if (index == 0) {
        if (parent_and_one != 0 || !item.path.empty()) return nonsense();
        entry.parent = no_parent;
    } else {
        if (parent_and_one == 0 || parent_and_one > index || !good_name(item.path)) return nonsense();
        entry.parent = static_cast<uint32_t>(parent_and_one - 1);
        const Entry& parent = entries_[entry.parent];
        if (parent.item.kind != Kind::folder) return nonsense();
        entry.path_bytes = parent.path_bytes + 1 + static_cast<uint32_t>(item.path.size());
        entry.rules = parent.rules;
    }
    bool text =
        item.kind == Kind::link ? !item.leads_to.empty() && item.leads_to.size() < PATH_MAX : item.leads_to.empty();
    if (!text || entry.path_bytes > path_bytes_max || (item.mode & ~0777u) ||
        item.leads_to.find('\0') != std::string::npos)
        return nonsense();
    held_ += sizeof entry + item.path.size() + item.leads_to.size();
    if (held_ > held_bytes_max) return nonsense();
    entry.item = std::move(item);
    entries_.push_back(std::move(entry));
    if (index == 0)
        if (auto begun = begin(entries_[0].item); !begun) return begun.error();
    return index;
}

Result<> Destination::set_rules(uint64_t index, std::vector<std::string> texts, const std::string& inside) {
    if (index >= entries_.size() || entries_[index].item.kind != Kind::folder) return nonsense();
    if (inside.size() > path_bytes_max || (index != 0 && !inside.empty())) return nonsense();
    held_ += inside.size();
    for (const auto& text : texts) held_ += 32 * text.size();  // what a pattern takes, about
    if (held_ > held_bytes_max) return nonsense();
    Entry& entry = entries_[index];
    entry.rules = IgnoreRules::make(path_below(static_cast<uint32_t>(index)), texts, entry.rules, inside);
    return Ok{};
}

Result<> Destination::begin(const Item& root) {
    bool tree = root.kind == Kind::folder;
    place_ = final_place(settings_.from, tree, settings_.to, is_folder(settings_.to));
    if (place_.empty()) place_ = ".";
    if (settings_.remove_extra && !tree) return not_a_folder(settings_);
    struct stat found;
    root_was_there_ = ::stat(place_.c_str(), &found) == 0;
    if (tree && root_was_there_ && !S_ISDIR(found.st_mode)) return clash(0, kind_of(found.st_mode));
    std::string above = folder_part(place_), where;
    if (!settings_.dry_run)
        if (int error = make_way(above, where)) return write_error(settings_, where, error);
    root_name_ = name_part(place_);
    if (!tree) {
        UniqueFd fd{::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
        if (!fd && !settings_.dry_run) return write_error(settings_, place_, errno);
        if (fd) beside_ = std::make_shared<const UniqueFd>(std::move(fd));
        return Ok{};
    }
    entries_[0].fresh = !root_was_there_;
    if (root_was_there_ && !settings_.dry_run) adopt_root_mode();
    if (root_was_there_ || settings_.dry_run) return Ok{};
    if (::mkdir(place_.c_str(), mode_while_filling(root)) == 0) return Ok{};
    // Another sync into the same place may have been quicker.
    entries_[0].fresh = errno != EEXIST;
    return entries_[0].fresh ? Result<>{write_error(settings_, place_, errno)} : Result<>{Ok{}};
}

std::string Destination::path_below(uint32_t index) const {
    std::string path;
    for (; index != 0; index = entries_[index].parent)
        path.insert(0, entries_[index].item.path + (path.empty() ? "" : "/"));
    return path;
}

std::string Destination::path_of(uint32_t index) const {
    return joined(place_, path_below(index));
}

// A folder that a dry run would have made.
bool Destination::absent(uint32_t index) const {
    return settings_.dry_run && (index == no_parent ? !beside_ : entries_[index].fresh);
}

Result<std::shared_ptr<const UniqueFd>> Destination::folder(uint32_t index) {
    if (index == no_parent) return beside_ ? beside_ : std::make_shared<const UniqueFd>();
    if (auto open = open_.find(index); open != open_.end()) return open->second;
    const Entry& entry = entries_[index];
    UniqueFd fd;
    if (index == 0) {
        fd.reset(::open(place_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    } else {
        auto above = folder(entry.parent);
        if (!above) return above;
        int follow = entry.through_link ? 0 : O_NOFOLLOW;
        fd.reset(::openat((*above)->get(), entry.item.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow));
    }
    if (!fd) return write_error(settings_, path_of(index), errno);
    if (open_.size() >= open_folders_max) {
        open_.erase(opened_.front());
        opened_.pop_front();
    }
    auto shared = std::make_shared<const UniqueFd>(std::move(fd));
    open_[index] = shared;
    opened_.push_back(index);
    return shared;
}

Result<Place> Destination::place(uint32_t index) {
    auto open = folder(entries_[index].parent);
    if (!open) return open.error();
    return Place{*open, name_of(index)};
}

// Copies of read-only folders are read-only, and change when their originals do (Go's module cache). Their own modes come back in
// finish_folders().
void Destination::open_up(uint32_t index) {
    if (index == no_parent || settings_.dry_run || opened_up_.count(index)) return;
    auto open = folder(index);
    struct stat found;
    if (!open || ::fstat((*open)->get(), &found) != 0 || (found.st_mode & 0300) == 0300) return;
    // Somebody else's stays as it is, and says so when we write.
    const mode_t mode = found.st_mode & 07777;
    if (::fchmod((*open)->get(), mode | 0300) != 0) return;
    opened_up_[index] = mode;
    if (is_old_root(index)) remember_root_mode((*open)->get(), mode);
}

// No source tells the mode of a destination that was there, so a run that is killed leaves it to the next one: as the
// mode of an empty file in there, which is locked for as long as its run lives.
void Destination::remember_root_mode(int root, mode_t mode) {
    UniqueFd fd = root_mode_file_ ? std::move(root_mode_file_)
                                  : UniqueFd{::openat(root, root_mode_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0)};
    if (fd && try_lock(fd.get()) == Lock::ours && ::fchmod(fd.get(), mode) == 0) root_mode_file_ = std::move(fd);
}

// Nothing but the owner's way in is ever taken away so, whoever made that file.
void Destination::adopt_root_mode() {
    auto root = folder(0);
    if (!root) return;
    UniqueFd fd{::openat((*root)->get(), root_mode_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    struct stat own, kept;
    if (!fd || try_lock(fd.get()) != Lock::ours || ::fstat((*root)->get(), &own) != 0 ||
        ::fstat(fd.get(), &kept) != 0 || !S_ISREG(kept.st_mode))
        return;
    const mode_t mode = kept.st_mode & 07777;
    if ((mode | 0300) == (own.st_mode & 07777) && kept.st_uid == ::geteuid()) opened_up_[0] = mode;
    ::futimens(fd.get(), nullptr);  // or it would be swept as abandoned
    root_mode_file_ = std::move(fd);
}

void Destination::restore_modes() {
    if (root_mode_file_)
        if (auto root = folder(0)) ::unlinkat((*root)->get(), root_mode_name, 0);
    root_mode_file_.reset();
    for (auto [index, mode] : std::exchange(opened_up_, {}))
        if (auto open = folder(index)) ::fchmod((*open)->get(), mode);
}

Result<Place> Destination::place_to_write(uint32_t index) {
    open_up(entries_[index].parent);
    return place(index);
}

Result<std::optional<Item>> Destination::look(uint32_t index) {
    uint32_t parent = entries_[index].parent;
    if (absent(parent) || (parent != no_parent && entries_[parent].fresh)) return std::optional<Item>{};
    auto where = place(index);
    if (!where) return where.error();
    struct stat found;
    if (::fstatat(where->fd(), where->name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0)
        return std::optional<Item>{item_of(where->name, found)};
    if (errno != ENOENT) return write_error(settings_, path_of(index), errno);
    return std::optional<Item>{};
}

Error Destination::clash(uint32_t index, Kind there) const {
    auto word = [](Kind kind) {
        return kind == Kind::folder ? "a folder"
               : kind == Kind::link ? "a link"
               : kind == Kind::file ? "a file"
                                    : "a device, pipe or socket";
    };
    const char *at_this_end = settings_.here ? " here" : " there", *at_the_other = settings_.here ? " there" : " here";
    return {Error::Kind::remote,
            settings_.told(path_of(index)) + " is " + word(there) + at_this_end + ", and " +
                word(entries_[index].item.kind) + at_the_other,
            "remove or rename one of them, or sync with --delete"};
}

// What a file or a link may not silently replace: a folder, and a device, pipe or socket. Renaming over /dev/null would be
// the end of it.
static bool is_in_the_way(const std::optional<Item>& there) {
    return there && (there->kind == Kind::folder || there->kind == Kind::other);
}

Result<bool> Destination::wants(uint32_t index, const std::optional<Item>& there) {
    Entry& entry = entries_[index];
    if (is_in_the_way(there)) {
        if (!settings_.remove_extra) return clash(index, there->kind);
        entry.replaces_folder = there->kind == Kind::folder;
    }
    if (!there || !same_content(*there, entry.item)) return true;
    if (there->mode == entry.item.mode || settings_.dry_run) return false;
    auto where = place(index);
    if (!where) return where.error();
    ::fchmodat(where->fd(), where->name.c_str(), entry.item.mode, 0);
    return false;
}

static bool is_same(const struct stat& one, const struct stat& other) {
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

// Whether the folder is the other one, or lies in it.
static bool lies_in(UniqueFd folder, const struct stat& other) {
    struct stat now, above;
    if (::fstat(folder.get(), &now) != 0) return false;
    for (; !is_same(now, other); now = above) {
        UniqueFd up{::openat(folder.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
        if (!up || ::fstat(up.get(), &above) != 0 || is_same(now, above)) return false;
        folder = std::move(up);
    }
    return true;
}

// Whether a link leads to a folder that is no part of the destination. One that does not may be what an earlier sync has copied:
// through it, what is another folder of the source's would be overwritten. Nor is it followed to a folder above: the destination
// would be what --delete finds too much there.
bool Destination::leads_outside(uint32_t index) {
    auto where = place(index);
    auto root = folder(0);
    struct stat own, there;
    if (!where || !root || ::fstat((*root)->get(), &own) != 0) return false;
    UniqueFd at{::openat(where->fd(), where->name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!at || ::fstat(at.get(), &there) != 0) return false;
    UniqueFd self{::openat((*root)->get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    return self && !lies_in(std::move(at), own) && !lies_in(std::move(self), there);
}

Result<> Destination::make_folder(uint32_t index) {
    if (index == 0) return Ok{};
    auto found = look(index);
    if (!found) return found.error();
    Entry& entry = entries_[index];
    if (*found && (*found)->kind == Kind::folder) return Ok{};
    if (*found && (*found)->kind == Kind::link && !settings_.here) {
        entry.through_link = leads_outside(index);
        if (entry.through_link) return Ok{};
    }
    if (*found && !settings_.remove_extra) return clash(index, (*found)->kind);
    entry.fresh = true;
    if (settings_.dry_run) return Ok{};
    auto where = place_to_write(index);
    if (!where) return where.error();
    if (*found) ::unlinkat(where->fd(), where->name.c_str(), 0);
    if (::mkdirat(where->fd(), where->name.c_str(), mode_while_filling(entry.item)) == 0) return Ok{};
    int error = errno;
    // Another sync into the same place may have been quicker.
    struct stat now;
    bool made = ::fstatat(where->fd(), where->name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(now.st_mode);
    entry.fresh = false;
    return made ? Result<>{Ok{}} : Result<>{write_error(settings_, path_of(index), error)};
}

Result<bool> Destination::make_link(uint32_t index, const std::string& temporary) {
    auto found = look(index);
    if (!found) return found.error();
    const Item& item = entries_[index].item;
    if (is_in_the_way(*found) && !settings_.remove_extra) return clash(index, (*found)->kind);
    if (settings_.dry_run && !*found) return true;
    auto where = place(index);
    if (!where) return where.error();
    std::string there(item.leads_to.size() + 1, '\0');
    ssize_t length = ::readlinkat(where->fd(), where->name.c_str(), there.data(), there.size());
    if (length >= 0 && there.substr(0, static_cast<size_t>(length)) == item.leads_to) return false;
    if (settings_.dry_run) return true;
    open_up(entries_[index].parent);
    if (::symlinkat(item.leads_to.c_str(), where->fd(), temporary.c_str()) != 0)
        return write_error(settings_, path_of(index), errno);
    set_time(where->fd(), temporary, item);
    if (*found && (*found)->kind == Kind::folder) remove_tree(where->fd(), where->name, "", nullptr);
    if (::renameat(where->fd(), temporary.c_str(), where->fd(), where->name.c_str()) == 0) return true;
    int error = errno;
    ::unlinkat(where->fd(), temporary.c_str(), 0);
    return write_error(settings_, path_of(index), error);
}

Result<std::vector<std::string>> Destination::names_in(uint32_t index) {
    auto open = folder(index);
    if (!open) return open.error();
    std::vector<std::string> names;
    (void)sync::names_in((*open)->get(), names);  // leftovers that cannot be seen stay
    return names;
}

Result<> Destination::remove_extra(const std::function<void(const std::string&)>& removed,
                                   const std::function<void(const Error&)>& failed) {
    std::vector<std::set<std::string>> listed(entries_.size());
    for (const auto& entry : entries_)
        if (entry.parent != no_parent) listed[entry.parent].insert(entry.item.path);
    for (uint32_t index = 0; index < entries_.size(); ++index) {
        const Entry& entry = entries_[index];
        if (entry.item.kind != Kind::folder || entry.fresh) continue;
        auto open = folder(index);
        if (!open) return open.error();
        std::string below = path_below(index);
        std::vector<std::string> names;
        if (int error = sync::names_in((*open)->get(), names))
            failed(write_error(settings_, joined(place_, below), error, "cannot read"));
        for (const auto& name : names) {
            if (listed[index].count(name) || is_temporary(name)) continue;
            struct stat found;
            if (::fstatat((*open)->get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) continue;
            std::string path = joined(below, name);
            if (entry.rules && entry.rules->ignored(path, S_ISDIR(found.st_mode))) continue;
            open_up(index);
            int error = settings_.dry_run ? 0 : remove_tree((*open)->get(), name, path, entry.rules.get());
            if (error == 0)
                removed(path);
            else if (error != ENOTEMPTY)
                failed(write_error(settings_, joined(place_, path), error, "cannot remove"));
        }
    }
    return Ok{};
}

Result<> Destination::finish_folders() {
    for (auto index = static_cast<uint32_t>(entries_.size()); index-- > 0;) {
        const Entry& entry = entries_[index];
        // The destination itself, when it was there before, keeps its own: giving a home folder the mode of some
        // project folder can make sshd refuse its owner's key.
        if (entry.item.kind != Kind::folder || is_old_root(index)) continue;
        opened_up_.erase(index);
        auto open = folder(index);
        if (!open) return open.error();
        struct stat found;
        int fd = (*open)->get();
        timespec times[2] = {time_of(entry.item), time_of(entry.item)};
        bool good = ::fstat(fd, &found) == 0;
        Item now = item_of("", found);
        if (good && now.mode != entry.item.mode) good = ::fchmod(fd, entry.item.mode) == 0;
        if (good && (now.mtime != entry.item.mtime || now.mtime_ns != entry.item.mtime_ns))
            good = ::futimens(fd, times) == 0;
        // Somebody else's folder (/tmp) keeps its own; filling it was all we were asked for.
        if (!good && entry.fresh) return write_error(settings_, path_of(index), errno);
    }
    return Ok{};
}

static int remove_folder(UniqueFd& at, const std::string& name, const std::string& path, const IgnoreRules* rules);

// What is in the open folder. Without a folder in `at`, the way back was lost.
static int remove_content(UniqueFd& at, const std::string& path, const IgnoreRules* rules) {
    struct stat own, found;
    if (::fstat(at.get(), &own) == 0 && (own.st_mode & 0300) != 0300) ::fchmod(at.get(), own.st_mode | 0300);
    std::vector<std::string> names;
    int first = names_in(at.get(), names);
    for (const auto& each : names) {
        if (::fstatat(at.get(), each.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) continue;
        bool inner = S_ISDIR(found.st_mode);
        if (rules && rules->ignored(joined(path, each), inner)) continue;
        int error = 0;
        if (inner)
            error = remove_folder(at, each, joined(path, each), rules);
        else if (::unlinkat(at.get(), each.c_str(), 0) != 0 && errno != ENOENT)
            error = errno;
        if ((first == 0 || first == ENOTEMPTY) && error) first = error;
        if (!at) break;
    }
    return first;
}

// With one open folder however deep the tree is: the way back is "..", as long as that is where it came from.
static int remove_folder(UniqueFd& at, const std::string& name, const std::string& path, const IgnoreRules* rules) {
    struct stat above, now;
    UniqueFd inner{::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)};
    if (!inner || ::fstat(at.get(), &above) != 0) return errno;
    at = std::move(inner);
    int error = remove_content(at, path, rules);
    if (at) at.reset(::openat(at.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!at || ::fstat(at.get(), &now) != 0 || !is_same(above, now)) {
        at.reset();
        return error ? error : ENOTDIR;
    }
    if (error && error != ENOTEMPTY) return error;
    return ::unlinkat(at.get(), name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : errno;
}

int remove_tree(int folder, const std::string& name, const std::string& path, const IgnoreRules* rules) {
    if (::unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) return 0;
    if (errno != EISDIR && errno != EPERM) return errno;
    UniqueFd at{::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    return at ? remove_folder(at, name, path, rules) : errno;
}

int put_in_place(const Place& place, int fd, const std::string& temporary, const Item& item, bool replaces_folder) {
    timespec times[2] = {time_of(item), time_of(item)};
    bool good = ::fchmod(fd, item.mode) == 0 && ::futimens(fd, times) == 0;
    if (good && replaces_folder) remove_tree(place.fd(), place.name, "", nullptr);
    if (good && ::renameat(place.fd(), temporary.c_str(), place.fd(), place.name.c_str()) == 0) return 0;
    int error = errno;
    ::unlinkat(place.fd(), temporary.c_str(), 0);
    return error;
}

}  // namespace tnr::sync
