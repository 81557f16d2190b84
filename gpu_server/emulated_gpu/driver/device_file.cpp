// See device_file.hpp.
#include "gpu_server/emulated_gpu/driver/device_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace tnr::emulated {
namespace {

constexpr auto page_size = static_cast<int64_t>(DeviceFile::page_bytes);
// A descriptor's place in its file goes with it: it says which pages it stands for, as first << 20 | count.
constexpr int count_bits = 20;

// Locks of the opened file, not of the process: other descriptors of it share them (fcntl(2), "open file description").
bool lock(int fd, short kind, int64_t page, uint64_t pages) {
    struct flock wanted {};
    wanted.l_type = kind;
    wanted.l_whence = SEEK_SET;
    wanted.l_start = page * page_size;
    wanted.l_len = static_cast<off_t>(pages * DeviceFile::page_bytes);
    return fcntl(fd, F_OFD_SETLK, &wanted) == 0;
}

}  // namespace

std::unique_ptr<DeviceFile> DeviceFile::open(std::string path, uint64_t bytes) {
    const uint64_t pages = bytes / page_bytes;
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file || pages == 0 || pages >= uint64_t{1} << count_bits) return nullptr;
    (void)fchmod(file.get(), 0666);  // workers are users of their own
    if (ftruncate(file.get(), static_cast<off_t>(pages * page_bytes)) != 0) return nullptr;
    return std::unique_ptr<DeviceFile>(new DeviceFile(std::move(path), std::move(file), pages));
}

// The first stretch that is free: here, and for everybody else.
int64_t DeviceFile::take_locked(int fd, uint64_t pages) {
    for (uint64_t first = 0, next = 0; next < taken_.size(); ++next) {
        if (taken_[next] || !lock(fd, F_WRLCK, static_cast<int64_t>(next), 1)) {
            if (next > first) lock(fd, F_UNLCK, static_cast<int64_t>(first), next - first);
            first = next + 1;
        } else if (next + 1 - first == pages) {
            return static_cast<int64_t>(first);
        } else if (next + 1 == taken_.size()) {
            lock(fd, F_UNLCK, static_cast<int64_t>(first), next + 1 - first);
        }
    }
    return -1;
}

int64_t DeviceFile::take(uint64_t bytes) {
    LockGuard guard(mutex_);
    const uint64_t pages = bytes / page_bytes;
    int64_t first = take_locked(fd(), pages);
    if (first < 0) return -1;
    std::fill_n(taken_.begin() + first, pages, true);
    return first * page_size;
}

void DeviceFile::give_back(int64_t begin, uint64_t bytes) {
    LockGuard guard(mutex_);
    const int64_t first = begin / page_size;
    const uint64_t pages = bytes / page_bytes;
    std::fill_n(taken_.begin() + first, pages, false);
    lock(fd(), F_UNLCK, first, pages);
}

UniqueFd DeviceFile::take_shareable(uint64_t bytes, int64_t& begin) {
    LockGuard guard(mutex_);
    UniqueFd file(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
    const uint64_t pages = bytes / page_bytes;
    const int64_t first = file ? take_locked(file.get(), pages) : -1;
    if (first < 0 || lseek(file.get(), first << count_bits | static_cast<int64_t>(pages), SEEK_SET) < 0) return {};
    begin = first * page_size;
    return file;
}

// It comes from who knows where. Pages that are not the descriptor's own cannot be locked through it.
std::optional<DeviceFile::Stretch> DeviceFile::recognise(int descriptor) const {
    struct stat theirs {
    }, ours{};
    const off_t place = lseek(descriptor, 0, SEEK_CUR);
    if (place < 0 || fstat(descriptor, &theirs) != 0 || fstat(fd(), &ours) != 0) return {};
    if (theirs.st_dev != ours.st_dev || theirs.st_ino != ours.st_ino) return {};
    const int64_t first = place >> count_bits, pages = place & ((1 << count_bits) - 1);
    if (pages == 0 || (first + pages) * page_size > ours.st_size) return {};
    if (!lock(descriptor, F_WRLCK, first, static_cast<uint64_t>(pages))) return {};
    return Stretch{first * page_size, static_cast<uint64_t>(pages * page_size)};
}

}  // namespace tnr::emulated
