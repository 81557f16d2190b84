// Reading and atomically replacing files.
#include "api_client/base/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "api_client/base/file_lock.hpp"
#include "api_client/base/interrupt.hpp"

namespace tnr {
namespace {

constexpr size_t page_bytes = 4096;

bool is_zeros(std::string_view page) {
    return page.size() == page_bytes && page.find_first_not_of('\0') == std::string_view::npos;
}

// Holes for pages of zeros: a machine's seed disk is 8 MiB of which a few pages are used.
Result<> write_all(int fd, const std::string& path, const std::string& text) {
    for (size_t at = 0; at < text.size();) {
        std::string_view page = std::string_view(text).substr(at, page_bytes - at % page_bytes);
        ssize_t written = is_zeros(page) ? static_cast<ssize_t>(page.size())
                                         : ::pwrite(fd, page.data(), page.size(), static_cast<off_t>(at));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return file_error("cannot write", path, errno);
        at += static_cast<size_t>(written);
    }
    if (::ftruncate(fd, static_cast<off_t>(text.size())) != 0 || ::fsync(fd) != 0)
        return file_error("cannot write", path, errno);
    return Ok{};
}

std::string folder_of_file(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

const char* kind_in_words(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a pipe";
    return S_ISSOCK(mode) ? "a socket" : "a device";
}

// A pipe without a writer is silent, and so is a program that has nothing to say yet: `on_wait` is told once.
constexpr int silence_ms = 1000;

// Until there is something to read, or the end. A file always has something.
Result<> wait_for_text(int fd, std::function<void()>& on_wait) {
    for (;;) {
        pollfd waiting[] = {{fd, POLLIN, 0}, {interrupt::fd(), POLLIN, 0}};
        const int ready = ::poll(waiting, 2, on_wait ? silence_ms : -1);
        if (ready > 0 && waiting[0].revents != 0) return Ok{};  // what is there is read, also after a Ctrl-C
        if (interrupt::interrupted()) return interrupt::error();
        if (ready == 0) std::exchange(on_wait, nullptr)();
    }
}

// To the end, or with `first_line` to the end of that.
Result<std::string> text_of(int fd, const std::string& path, size_t bytes_max, std::function<void()> on_wait = {},
                            bool first_line = false) {
    std::string text;
    std::vector<char> piece(size_t{64} << 10);
    for (;;) {
        if (auto waited = wait_for_text(fd, on_wait); !waited) return waited.error();
        ssize_t got = ::read(fd, piece.data(), piece.size());
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0) return file_error("cannot read", path, errno);
        text.append(piece.data(), static_cast<size_t>(got));
        if (first_line && text.find('\n') != std::string::npos) return text.substr(0, text.find('\n'));
        if (got == 0) return text;
        if (text.size() > bytes_max) return Error{Error::Kind::internal, path + " is far too large"};
    }
}

// At once, also where it is a pipe that nobody writes into.
Result<UniqueFd> open_users_file(const std::string& path) {
    UniqueFd fd{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
    if (!fd) return file_error("cannot read", path, errno);
    return fd;
}

// What is being written is called NAME, the mark, and what mkostemp() makes of the wildcards. Its writer holds a lock on it
// for as long as it has that name.
constexpr std::string_view unfinished_mark = ".tnr-", wildcards = "XXXXXX";

bool is_unfinished(std::string_view name) {
    constexpr size_t added = unfinished_mark.size() + wildcards.size();
    if (name.size() <= added) return false;
    name.remove_prefix(name.size() - added);
    return name.starts_with(unfinished_mark) &&
           name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
                                  unfinished_mark.size()) == std::string_view::npos;
}

// Whoever has the lock takes the name away while holding it, so a writer that gets the lock afterwards notices.
bool has_name(int fd) {
    struct stat found;
    return ::fstat(fd, &found) == 0 && found.st_nlink > 0;
}

// Leaves what is locked, and everything where the file system has no locks.
void sweep_unfinished(const std::string& folder) {
    DIR* open = ::opendir(folder.c_str());
    if (!open) return;
    while (const dirent* entry = ::readdir(open)) {
        if (!is_unfinished(entry->d_name)) continue;
        const UniqueFd fd{::openat(::dirfd(open), entry->d_name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)};
        if (fd && try_lock(fd.get()) == Lock::ours && has_name(fd.get())) ::unlinkat(::dirfd(open), entry->d_name, 0);
    }
    ::closedir(open);
}

// `name` becomes the new file's. A sweep that was quicker than our lock takes it away: then under another one.
UniqueFd create_unfinished(const std::string& path, std::string& name) {
    for (;;) {
        name = path;
        name.append(unfinished_mark).append(wildcards);
        UniqueFd fd{::mkostemp(name.data(), O_CLOEXEC)};
        if (!fd) return fd;
        if (try_lock(fd.get()) != Lock::theirs && has_name(fd.get())) return fd;
    }
}

// False when the file was replaced or removed before we had the lock on it.
bool still_there(int fd, const std::string& path) {
    struct stat ours, theirs;
    return ::fstat(fd, &ours) == 0 && ::stat(path.c_str(), &theirs) == 0 && ours.st_ino == theirs.st_ino &&
           ours.st_dev == theirs.st_dev;
}

}  // namespace

Error file_error(const std::string& doing, const std::string& path, int error_number) {
    Error error{error_number == ENOENT ? Error::Kind::not_found : Error::Kind::internal,
                doing + " " + path + ": " + std::strerror(error_number)};
    if (error_number == ENOSPC || error_number == EDQUOT) error.hint = "free some space there and run the same again";
    if (error_number == EROFS) error.hint = "its disk is mounted read-only; `dmesg` may say why";
    if (error_number == EACCES || error_number == EPERM) error.hint = "check who owns it: `ls -ld " + path + "`";
    return error;
}

bool file_exists(const std::string& path) {
    struct stat found;
    return ::lstat(path.c_str(), &found) == 0;
}

Result<UniqueFd> open_file(const std::string& path, int flags) {
    const char* doing = (flags & O_ACCMODE) == O_RDONLY ? "cannot read" : "cannot open";
    UniqueFd fd{::open(path.c_str(), flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600)};
    const int error = errno;
    struct stat found;
    if ((fd ? ::fstat(fd.get(), &found) : ::stat(path.c_str(), &found)) == 0 && !S_ISREG(found.st_mode))
        return Error{Error::Kind::internal, std::string(doing) + " " + path + ": it is " + kind_in_words(found.st_mode),
                     "a file belongs there: move away what is there"};
    if (!fd) return file_error(doing, path, error);
    return fd;
}

Result<std::string> read_file(const std::string& path, size_t bytes_max) {
    auto fd = open_file(path, O_RDONLY);
    if (!fd) return fd.error();
    return text_of(fd->get(), path, bytes_max);
}

Result<std::string> read_users_file(const std::string& path, const std::function<void()>& on_wait) {
    auto fd = open_users_file(path);
    if (!fd) return fd.error();
    return text_of(fd->get(), path, small_file_bytes_max, on_wait);
}

Result<std::string> read_users_line(const std::string& path, const std::function<void()>& on_wait) {
    auto fd = open_users_file(path);
    if (!fd) return fd.error();
    return text_of(fd->get(), path, small_file_bytes_max, on_wait, true);
}

Result<> make_folders(const std::string& path) {
    for (size_t at = 1; at <= path.size(); ++at) {
        if (at < path.size() && path[at] != '/') continue;
        std::string folder = path.substr(0, at);
        if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
            return file_error("cannot make folder", folder, errno);
    }
    return Ok{};
}

Result<> change_file(const std::string& path, const std::function<Result<>()>& change) {
    const std::string folder = folder_of_file(path);
    // The folder is what is locked, as the file itself is replaced. One that cannot be made is for `change` to tell.
    UniqueFd lock{make_folders(folder) ? ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1};
    if (lock)
        if (auto locked = wait_for_lock(lock.get()); !locked) return locked;
    return change();
}

Result<UniqueFd> lock_file(const std::string& path, const std::function<void()>& on_wait) {
    for (;;) {
        auto fd = open_file(path, O_RDWR | O_CREAT);
        if (!fd) return fd;
        if (auto locked = wait_for_lock(fd->get(), on_wait); !locked) return locked.error();
        if (still_there(fd->get(), path)) return fd;
    }
}

Result<std::optional<UniqueFd>> try_lock_file(const std::string& path) {
    for (;;) {
        auto fd = open_file(path, O_RDWR | O_CREAT);
        if (!fd) return fd.error();
        if (try_lock(fd->get()) == Lock::theirs) return std::optional<UniqueFd>{};
        if (still_there(fd->get(), path)) return std::optional<UniqueFd>{std::move(*fd)};
    }
}

Result<> write_file(const std::string& path, const std::string& text, mode_t mode) {
    if (auto made = make_folders(folder_of_file(path)); !made) return made;
    sweep_unfinished(folder_of_file(path));
    std::string temporary;
    const UniqueFd fd = create_unfinished(path, temporary);
    if (!fd) return file_error("cannot write", path, errno);
    auto written = write_all(fd.get(), path, text);
    if (written && ::fchmod(fd.get(), mode) != 0) written = file_error("cannot write", path, errno);
    if (written && ::rename(temporary.c_str(), path.c_str()) != 0) written = file_error("cannot write", path, errno);
    if (!written) ::unlink(temporary.c_str());
    return written;
}

Result<> remove_file(const std::string& path) {
    sweep_unfinished(folder_of_file(path));
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return file_error("cannot remove", path, errno);
    return Ok{};
}

}  // namespace tnr
