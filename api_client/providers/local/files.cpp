// Atomic writes, locks, links.
#include "api_client/providers/local/files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tnr::local {
namespace {

namespace fs = std::filesystem;

constexpr size_t page = 4096;

// Holes for pages of zeros: a seed is 8 MiB of which a few pages are used.
bool write_sparse(int fd, const std::string& content) {
    for (size_t at = 0; at < content.size(); at += page) {
        const size_t size = std::min(page, content.size() - at);
        const bool zeros = std::all_of(&content[at], &content[at] + size, [](char c) { return c == 0; });
        if (!zeros && ::pwrite(fd, &content[at], size, static_cast<off_t>(at)) != static_cast<ssize_t>(size))
            return false;
    }
    return ::ftruncate(fd, static_cast<off_t>(content.size())) == 0 && ::fsync(fd) == 0;
}

// False when the file was replaced or removed while we waited for the lock on it.
bool still_there(int fd, const fs::path& path) {
    struct stat ours, theirs;
    return ::fstat(fd, &ours) == 0 && ::stat(path.c_str(), &theirs) == 0 && ours.st_ino == theirs.st_ino &&
           ours.st_dev == theirs.st_dev;
}

}  // namespace

Error file_error(const std::string& doing, const fs::path& path, int error) {
    const bool full = error == ENOSPC || error == EDQUOT;
    return Error{Error::Kind::internal, "cannot " + doing + " " + path.string() + ": " + std::strerror(error),
                 full ? "free some space there, or point XDG_STATE_HOME and XDG_CACHE_HOME to a larger disk" : ""};
}

Result<> write_file(const fs::path& path, const std::string& content) {
    const fs::path temporary = path.string() + ".new";
    UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    errno = fd ? 0 : errno;
    if (!fd || !write_sparse(fd.get(), content) || ::rename(temporary.c_str(), path.c_str()) != 0) {
        const int error = errno ? errno : ENOSPC;  // a short write says nothing, and means this
        ::unlink(temporary.c_str());
        return file_error("write", path, error);
    }
    return Ok{};
}

Result<UniqueFd> lock_file(const fs::path& path, const std::function<void()>& on_wait) {
    for (;;) {
        UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        if (!fd) return file_error("open", path, errno);
        if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
            if (on_wait) on_wait();
            while (::flock(fd.get(), LOCK_EX) != 0)
                if (errno != EINTR) return file_error("lock", path, errno);
        }
        if (still_there(fd.get(), path)) return fd;
    }
}

Result<> link_or_copy(const fs::path& from, const fs::path& to) {
    std::error_code failed;
    fs::create_hard_link(from, to, failed);
    if (!failed) return Ok{};
    fs::copy_file(from, to, failed);
    if (!failed) return Ok{};
    // libstdc++ reports a full disk as an input/output error.
    int error = failed.value();
    if (error == EIO && fs::space(to.parent_path(), failed).available < fs::file_size(from, failed)) error = ENOSPC;
    return file_error("copy " + from.string() + " to", to, error);
}

}  // namespace tnr::local
