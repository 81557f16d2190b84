// See state_folder.hpp.
#include "gpu_server/supervisor/state_folder.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "api_client/base/file_lock.hpp"
#include "api_client/base/files.hpp"
#include "api_client/base/paths.hpp"

namespace tnr::server {

namespace fs = std::filesystem;

// Empty when the file is not there. One that cannot be read is not taken for a missing one: what is made in its place would be
// another pool's identity, or another store.
static Result<std::string> read_line(const fs::path& path) {
    auto text = read_file(path.string());
    if (!text && text.error().kind == Error::Kind::not_found) return std::string();
    if (!text) return text.error();
    return text->substr(0, text->find('\n'));
}

// Complete or not at all: a crash in between leaves the old file.
static Result<> write_line(const fs::path& path, const std::string& line) {
    fs::path fresh = path.string() + ".new";
    UniqueFd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    std::string text = line + "\n";
    bool written = file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                   fsync(file.get()) == 0 && rename(fresh.c_str(), path.c_str()) == 0;
    if (!written) return file_error("cannot write", path, errno);
    return Ok{};
}

static constexpr const char* another_folder = "name another folder: --state DIR";

static Error cannot_make(const fs::path& folder, int error_number) {
    auto error = file_error("cannot make", folder, error_number);
    if (error_number == EACCES) error.hint = "this user may not make it there; " + std::string(another_folder);
    if (error.hint.empty()) error.hint = another_folder;
    return error;
}

fs::path StateFolder::place(const std::string& path) {
    std::error_code error;
    return fs::absolute(path.empty() ? state_dir() / "server" : fs::path(path), error);
}

// Most often somebody has forgotten to be the server's user: then nothing that is there may seem to be missing.
static Error not_allowed(const fs::path& folder, const struct stat* status) {
    const auto* owner = status ? getpwuid(status->st_uid) : nullptr;
    const std::string name = owner ? owner->pw_name : "";
    return {
        Error::Kind::usage, "this user may not look into " + folder.string(),
        name.empty() ? "run this as the server's user, or as root" : "it is " + name + "'s: sudo -u " + name + " …"};
}

Result<> StateFolder::check_database() const {
    std::error_code error;
    const auto bytes = fs::file_size(database(), error);
    const bool gone = error == std::errc::no_such_file_or_directory;
    if (last_address().empty() || (error ? !gone : bytes > 0)) return Ok{};  // opening it says what else is wrong
    const auto shared = shared_store();
    return Error{Error::Kind::internal,
                 database() + (gone ? " is gone" : " is empty") + ": the ledger was in it" +
                     (shared && shared->empty() ? ", and who may use the pool" : ""),
                 "tnr-gpu-server restore FILE --replace, from a backup; or to begin without: rm " +
                     (path_ / "address").string()};
}

Result<StateFolder> StateFolder::find(const std::string& path) {
    std::error_code error;
    auto folder = place(path);
    if (fs::is_directory(folder, error)) return open(path);
    if (error == std::errc::permission_denied) return not_allowed(folder, nullptr);
    return Error{
        Error::Kind::usage, "there is no server's folder at " + folder.string(),
        "start the server first (tnr-gpu-server serve), or name the folder that it was given: --state DIR; the "
        "packaged one's is /var/lib/tnr-gpu-server"};
}

Result<StateFolder> StateFolder::open(const std::string& path) {
    fs::path folder = place(path);
    std::error_code error;
    fs::create_directories(folder.parent_path(), error);
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return cannot_make(folder, errno);
    struct stat status {};
    if (stat(folder.c_str(), &status) != 0) return file_error("cannot use", folder, errno);
    if (!S_ISDIR(status.st_mode))
        return Error{Error::Kind::usage, folder.string() + " is not a folder", another_folder};
    if ((status.st_mode & 077) != 0)
        return Error{Error::Kind::usage, folder.string() + " holds secret keys, but others may enter it",
                     "chmod 700 " + folder.string()};
    if (access(folder.c_str(), R_OK | X_OK) != 0 && errno == EACCES) return not_allowed(folder, &status);
    return StateFolder(folder);
}

Result<std::string> StateFolder::identity() const {
    auto file = path_ / "identity";
    if (auto known = read_line(file); !known || !known->empty()) return known;
    auto fresh = wire::make_key_pair().public_key;  // random enough
    if (auto written = write_line(file, fresh); !written) return written.error();
    return fresh;
}

wire::KeyPair make_pasteable_key_pair() {
    auto keys = wire::make_key_pair();
    while (keys.public_key.starts_with('-') || keys.secret_key.starts_with('-')) keys = wire::make_key_pair();
    return keys;
}

Result<wire::KeyPair> StateFolder::server_keys() const {
    if (may_make_keys()) {
        auto alone = lock_keys();
        if (!alone) return alone.error();
        if (may_make_keys())
            if (auto made = write_line(path_ / "server.key", make_pasteable_key_pair().secret_key); !made)
                return made.error();
    }
    return kept_server_keys();
}

bool StateFolder::may_make_keys() const {
    std::error_code error;
    const bool has_served = !last_address().empty() && !last_was_plain();
    return !has_served && !fs::exists(path_ / "server.key", error);
}

Result<wire::KeyPair> StateFolder::kept_server_keys() const {
    const fs::path file = path_ / "server.key";
    auto read = read_line(file);
    if (!read) return read.error();
    std::string secret = *read;
    std::string public_key = wire::public_of(secret);
    if (public_key.empty())
        return Error{Error::Kind::internal, file.string() + " holds no key",
                     "restore it from a backup; a new key would lock out every enrolled client"};
    return wire::KeyPair{public_key, secret};
}

// By the folder itself: its file `lock` is the server's.
Result<UniqueFd> StateFolder::lock_keys() const {
    UniqueFd folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return file_error("cannot open", path_, errno);
    if (auto locked = wait_for_lock(folder.get()); !locked) return locked.error();
    return folder;
}

// "SECRET MILLISECONDS".
Result<std::optional<StateFolder::OldKey>> StateFolder::old_server_key() const {
    fs::path file = path_ / "server.key.old";
    std::error_code error;
    if (!fs::exists(file, error)) return std::optional<OldKey>();
    auto read = read_line(file);
    if (!read) return read.error();
    std::istringstream line(*read);
    OldKey old;
    line >> old.keys.secret_key >> old.until_ms;
    old.keys.public_key = wire::public_of(old.keys.secret_key);
    if (!line || old.keys.public_key.empty())
        return Error{Error::Kind::internal, file.string() + " holds no key",
                     "restore it from a backup, or end its time: tnr-gpu-server rotate-key --drop-old"};
    return std::optional<OldKey>(old);
}

// The old one first: after a crash in between both are the same.
Result<> StateFolder::rotate_server_key(int64_t old_until_ms) const {
    auto keys = server_keys();
    if (!keys) return keys.error();
    auto old = write_line(path_ / "server.key.old", keys->secret_key + " " + std::to_string(old_until_ms));
    if (!old) return old;
    return write_line(path_ / "server.key", make_pasteable_key_pair().secret_key);
}

Result<> StateFolder::drop_old_server_key() const {
    if (unlink((path_ / "server.key.old").c_str()) == 0 || errno == ENOENT) return Ok{};
    return file_error("cannot remove", path_ / "server.key.old", errno);
}

// "ADDRESS" or "ADDRESS plain".
std::string StateFolder::last_address() const {
    const auto line = read_line(path_ / "address");
    return line ? line->substr(0, line->find(' ')) : "";
}

bool StateFolder::last_was_plain() const {
    const auto line = read_line(path_ / "address");
    return line && line->ends_with(" plain");
}

Result<> StateFolder::try_writing() const {
    const fs::path file = path_ / "tried";
    auto written = write_line(file, "may be removed");
    std::error_code error;
    fs::remove(file, error);
    fs::remove(file.string() + ".new", error);
    return written;
}

Result<> StateFolder::save_address(const std::string& address, bool plain) const {
    return write_line(path_ / "address", address + (plain ? " plain" : ""));
}

Result<std::string> StateFolder::shared_store() const {
    return read_line(path_ / "store");
}

Result<> StateFolder::save_shared_store(const std::string& address) const {
    return write_line(path_ / "store", address);
}

Result<std::unique_ptr<Store>> StateFolder::open_store() const {
    auto shared = shared_store();
    if (!shared) return shared.error();
    return open_store(*shared);
}

Result<std::unique_ptr<Store>> StateFolder::open_store(const std::string& shared) const {
    if (shared.empty()) {
        if (auto there = check_database(); !there) return there.error();
        return open_sqlite_store(database());
    }
    auto address = etcd::parse_address(shared);
    if (!address) return address.error();
    return open_etcd_store(*address);
}

Result<std::unique_ptr<NodeAdmin>> StateFolder::open_nodes() const {
    auto shared = shared_store();
    if (!shared) return shared.error();
    if (shared->empty()) {
        if (auto there = check_database(); !there) return there.error();
        return open_sqlite_admin(database());
    }
    auto address = etcd::parse_address(*shared);
    if (!address) return address.error();
    return make_etcd_admin(*address);
}

Result<UniqueFd> StateFolder::lock(std::chrono::milliseconds patience) const {
    fs::path file = path_ / "lock";
    UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd) return file_error("cannot open", file, errno);
    const Lock lock = lock_within(fd.get(), patience);
    if (lock == Lock::ours) return fd;
    // Elsewhere that is no reason to give up; two servers on one folder would end each other's programs.
    if (lock == Lock::none)
        return Error{Error::Kind::usage, "the file system of " + path_.string() + " has no locks",
                     "give a folder on a local disk: --state DIR"};
    return Error{Error::Kind::usage, "another tnr-gpu-server already serves with " + path_.string(),
                 "stop it, or give this one a folder of its own: --state DIR"};
}

}  // namespace tnr::server
