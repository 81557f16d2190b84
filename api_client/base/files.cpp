// Reading and atomically replacing files.
#include "api_client/base/files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "api_client/base/handles.hpp"
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

}  // namespace

Error file_error(const std::string& doing, const std::string& path, int error_number) {
    Error error{error_number == ENOENT ? Error::Kind::not_found : Error::Kind::internal,
                doing + " " + path + ": " + std::strerror(error_number)};
    if (error_number == ENOSPC || error_number == EDQUOT) error.hint = "free some space there and run the same again";
    if (error_number == EACCES || error_number == EPERM) error.hint = "check who owns it: `ls -ld " + path + "`";
    return error;
}

bool file_exists(const std::string& path) {
    struct stat found;
    return ::lstat(path.c_str(), &found) == 0;
}

Result<std::string> read_file(const std::string& path, size_t bytes_max) {
    UniqueFd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (!fd) return file_error("cannot read", path, errno);
    std::string text;
    std::vector<char> piece(size_t{64} << 10);
    for (;;) {
        ssize_t got = ::read(fd.get(), piece.data(), piece.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_error("cannot read", path, errno);
        if (got == 0) return text;
        text.append(piece.data(), static_cast<size_t>(got));
        if (text.size() > bytes_max) return Error{Error::Kind::internal, path + " is far too large"};
    }
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
    while (lock && ::flock(lock.get(), LOCK_EX) != 0 && errno == EINTR)
        if (interrupt::interrupted()) return interrupt::error();
    return change();
}

Result<> write_file(const std::string& path, const std::string& text, mode_t mode) {
    if (auto made = make_folders(folder_of_file(path)); !made) return made;
    std::string temporary = path + ".XXXXXX";
    UniqueFd fd{::mkostemp(temporary.data(), O_CLOEXEC)};
    if (!fd) return file_error("cannot write", path, errno);
    auto written = write_all(fd.get(), path, text);
    if (written && ::fchmod(fd.get(), mode) != 0) written = file_error("cannot write", path, errno);
    if (written && ::rename(temporary.c_str(), path.c_str()) != 0) written = file_error("cannot write", path, errno);
    if (!written) ::unlink(temporary.c_str());
    return written;
}

Result<> remove_file(const std::string& path) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return file_error("cannot remove", path, errno);
    return Ok{};
}

}  // namespace tnr
