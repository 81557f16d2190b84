// Locks and links.
#include "api_client/providers/local/files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "api_client/base/files.hpp"
#include "api_client/base/interrupt.hpp"

namespace tnr::local {
namespace {

namespace fs = std::filesystem;

// False when the file was replaced or removed while we waited for the lock on it.
bool still_there(int fd, const fs::path& path) {
    struct stat ours, theirs;
    return ::fstat(fd, &ours) == 0 && ::stat(path.c_str(), &theirs) == 0 && ours.st_ino == theirs.st_ino &&
           ours.st_dev == theirs.st_dev;
}

}  // namespace

Result<UniqueFd> lock_file(const fs::path& path, const std::function<void()>& on_wait) {
    for (;;) {
        auto fd = open_file(path, O_RDWR | O_CREAT);
        if (!fd) return fd;
        if (::flock(fd->get(), LOCK_EX | LOCK_NB) != 0) {
            if (on_wait) on_wait();
            while (::flock(fd->get(), LOCK_EX) != 0) {
                if (errno != EINTR) return file_error("cannot lock", path, errno);
                if (interrupt::interrupted()) return interrupt::error();
            }
        }
        if (still_there(fd->get(), path)) return fd;
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
    return file_error("cannot copy " + from.string() + " to", to, error);
}

}  // namespace tnr::local
