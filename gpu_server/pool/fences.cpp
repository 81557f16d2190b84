// See fences.hpp.
#include "gpu_server/pool/fences.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "api_client/base/file_lock.hpp"
#include "gpu_server/pool/log.hpp"

namespace tnr::server {

using Number = std::atomic<int64_t>;
static_assert(Number::is_always_lock_free && sizeof(Number) == 8);

static Error failed(const std::string& doing, const std::string& path) {
    return {Error::Kind::internal, "cannot " + doing + " " + path + ": " + std::strerror(errno),
            "GPUs' fencing numbers are kept there; is it a folder in memory that this user may write?"};
}

// Ours alone: who could write there could end everybody's programs.
static Result<> make_folder(const std::string& path) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return failed("make", path);
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0) return failed("look at", path);
    if (S_ISDIR(status.st_mode) && status.st_uid == geteuid() && (status.st_mode & 077) == 0) return Ok{};
    errno = EPERM;
    return failed("use", path);
}

// Says that whoever uses the folder locks it. Servers of before this did not: theirs are left alone.
static constexpr const char* marker = "/.locked-while-used";

static void mark(const std::string& folder) {
    UniqueFd made(::open((folder + marker).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
}

static UniqueFd open_folder(const std::string& path) {
    return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Somebody who tidies up may remove a folder between our making it and our locking it: then it is made again.
static Result<UniqueFd> make_and_lock(const std::string& path) {
    while (true) {
        if (auto made = make_folder(path); !made) return made.error();
        auto folder = open_folder(path);
        if (!folder && errno == ENOENT) continue;
        if (!folder || share_lock(folder.get()) != Lock::ours) return failed("lock", path);
        struct stat locked {};
        struct stat there {};
        const bool same = fstat(folder.get(), &locked) == 0 && lstat(path.c_str(), &there) == 0;
        if (!same || locked.st_ino != there.st_ino) continue;
        mark(path);
        return folder;
    }
}

// Folders of pools whose servers here have all ended, and their workers with them.
static void remove_unused(const std::string& above) {
    std::error_code error;
    for (auto& entry : std::filesystem::directory_iterator(above, error)) {
        auto folder = open_folder(entry.path());
        if (folder && std::filesystem::exists(entry.path().string() + marker, error) &&
            try_lock(folder.get()) == Lock::ours)
            std::filesystem::remove_all(entry.path(), error);
    }
}

Result<Fence> Fence::map(const UniqueFd& file) {
    void* there = mmap(nullptr, sizeof(Number), PROT_READ, MAP_SHARED, file.get(), 0);
    if (there == MAP_FAILED) return failed("map", "a file");
    return Fence(static_cast<const Number*>(there));
}

Fence::~Fence() {
    if (number_) munmap(const_cast<Number*>(number_), sizeof(Number));
}

Result<Fences> Fences::open(const std::string& pool, const std::string& above) {
    auto path = above + "/tnr-fences-" + std::to_string(geteuid());
    if (auto made = make_folder(path); !made) return made.error();
    auto folder = make_and_lock(path + "/" + pool);
    if (!folder) return folder.error();
    remove_unused(path);
    return Fences(path + "/" + pool, std::move(*folder));
}

static int64_t raise_to(Number& number, int64_t wanted) {
    auto now = number.load();
    while (now < wanted && !number.compare_exchange_weak(now, wanted)) continue;
    return number.load();
}

Result<UniqueFd> Fences::raise(const std::string& gpu, int64_t number) const {
    const auto file = path(gpu);
    UniqueFd writable(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!writable || ftruncate(writable.get(), sizeof(Number)) != 0) return failed("write", file);
    void* there = mmap(nullptr, sizeof(Number), PROT_READ | PROT_WRITE, MAP_SHARED, writable.get(), 0);
    if (there == MAP_FAILED) return failed("map", file);
    auto highest = raise_to(*static_cast<Number*>(there), number);
    munmap(there, sizeof(Number));
    if (highest > number)
        return Error{Error::Kind::remote,
                     "GPU " + printable(gpu) + " has been given to another under the number " +
                         std::to_string(highest) + "; this server has " + std::to_string(number),
                     "if the pool's store was set back to an earlier state: stop its servers here and remove " + file};
    UniqueFd readable(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!readable) return failed("open", file);
    return readable;
}

UniqueFd Fences::lock_too() const {
    return UniqueFd(fcntl(lock_.get(), F_DUPFD_CLOEXEC, 0));
}

void Fences::remove(const std::string& gpu) const {
    (void)unlink(path(gpu).c_str());
    // Unless another server of the pool uses it, or has files there.
    if (try_lock(lock_.get()) == Lock::ours) {
        (void)unlink((folder_ + marker).c_str());
        if (rmdir(folder_.c_str()) != 0) mark(folder_);
    }
    (void)share_lock(lock_.get());
}

}  // namespace tnr::server
