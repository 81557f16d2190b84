// See physical_memory.hpp.
#include "gpu_server/emulated_gpu/driver/physical_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

namespace tnr::emulated {
namespace {

void discard(int fd, int64_t begin, uint64_t bytes) {
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, static_cast<int64_t>(bytes));
}

// Only what is there: the rest is zero on both sides and takes no room.
bool copy_data(int from, int64_t source, int to, int64_t target, uint64_t bytes) {
    std::vector<char> buffer(size_t{1} << 20);
    const int64_t end = source + static_cast<int64_t>(bytes);
    for (int64_t at = lseek(from, source, SEEK_DATA); at >= 0 && at < end; at = lseek(from, at, SEEK_DATA)) {
        auto count = std::min<int64_t>(end - at, static_cast<int64_t>(buffer.size()));
        auto got = pread(from, buffer.data(), static_cast<size_t>(count), at);
        if (got <= 0 || pwrite(to, buffer.data(), static_cast<size_t>(got), target + (at - source)) != got)
            return false;
        at += got;
    }
    return true;
}

class MemoryFile {
public:
    static MemoryFile& get() {
        static MemoryFile& file = *new MemoryFile;
        return file;
    }
    int fd() const { return fd_; }
    // The start of `bytes` fresh bytes, or -1.
    int64_t extend(uint64_t bytes) {
        LockGuard lock(mutex_);
        int64_t begin = end_;
        if (fd_ < 0 || ftruncate(fd_, end_ + static_cast<int64_t>(bytes)) != 0) return -1;
        end_ += static_cast<int64_t>(bytes);
        return begin;
    }
    void discard(int64_t begin, uint64_t bytes) { emulated::discard(fd_, begin, bytes); }

private:
    Mutex mutex_;
    const int fd_ = memfd_create("emulated-gpu", MFD_CLOEXEC);
    int64_t end_ TNR_GUARDED_BY(mutex_) = 0;
};

// Behind the memory, in a file that other processes may get.
struct Label {
    char magic[16] = "emulated memory";
    uint64_t bytes = 0;
    CUuuid device{};
};

// Descriptors are few (a process has 1,024, if nobody says more), and not all may go to memory.
bool plenty_of_descriptors(int fd) {
    rlimit limit{};
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && static_cast<rlim_t>(fd) < limit.rlim_cur / 4 * 3;
}

UniqueFd labelled_file(const Label& label) {
    UniqueFd file(memfd_create("emulated-gpu-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    auto end = static_cast<off_t>(label.bytes + sizeof label);
    bool made = file && plenty_of_descriptors(file.get()) && ftruncate(file.get(), end) == 0 &&
                pwrite(file.get(), &label, sizeof label, static_cast<off_t>(label.bytes)) == sizeof label &&
                fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
    return made ? std::move(file) : UniqueFd();
}

Device* device_with(const CUuuid& uuid) {
    for (auto& device : driver().devices)
        if (std::memcmp(&device->uuid, &uuid, sizeof uuid) == 0) return device.get();
    return nullptr;
}

CUmemAllocationProp shared_properties(const Device& device) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.ordinal};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return properties;
}

}  // namespace

std::shared_ptr<PhysicalMemory> PhysicalMemory::create(Device& device, uint64_t bytes,
                                                       const CUmemAllocationProp& properties) {
    auto memory = std::make_shared<PhysicalMemory>(device, bytes, properties);
    const bool shareable = properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (device.file) {
        memory->offset_ = -1;
        if (shareable)
            memory->own_ = device.file->take_shareable(bytes, memory->offset_);
        else
            memory->offset_ = device.file->take(bytes);
        return memory->offset_ < 0 ? nullptr : memory;
    }
    if (shareable) {
        Label label;
        label.bytes = bytes;
        label.device = device.uuid;
        memory->own_ = labelled_file(label);
    }
    if (!memory->own_) memory->offset_ = MemoryFile::get().extend(bytes);
    return memory->offset_ < 0 ? nullptr : memory;
}

// The file comes from who knows where: it must be a GPU's own, or sealed, so that it stays as long as it says.
std::shared_ptr<PhysicalMemory> PhysicalMemory::import(UniqueFd file) {
    for (auto& device : driver().devices)
        if (auto stretch = device->file ? device->file->recognise(file.get()) : std::nullopt)
            return std::make_shared<PhysicalMemory>(*device, stretch->bytes, std::move(file), stretch->begin);
    Label label;
    const Label expected;
    struct stat status {};
    int seals = fcntl(file.get(), F_GET_SEALS);
    bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(file.get(), &status) == 0 &&
                  status.st_size > static_cast<off_t>(sizeof label);
    auto at = status.st_size - static_cast<off_t>(sizeof label);
    if (!sealed || pread(file.get(), &label, sizeof label, at) != sizeof label) return nullptr;
    auto* device = device_with(label.device);
    bool ours = std::memcmp(label.magic, expected.magic, sizeof label.magic) == 0 &&
                static_cast<off_t>(label.bytes) == at && label.bytes % physical_granularity == 0;
    if (!ours || !device) return nullptr;
    return std::make_shared<PhysicalMemory>(*device, label.bytes, std::move(file), 0);
}

PhysicalMemory::PhysicalMemory(Device& owner, uint64_t size, UniqueFd imported, int64_t offset)
    : Object(kind_of),
      device(owner),
      bytes(size),
      properties(shared_properties(owner)),
      own_(std::move(imported)),
      offset_(offset),
      imported_(true) {}

PhysicalMemory::~PhysicalMemory() {
    {
        LockGuard lock(window_mutex_);
        if (window_) munmap(window_, bytes);
    }
    if (moved_) discard(own_.get(), offset_, bytes);
    if (!own_ && offset_ >= 0 && device.file) device.file->give_back(offset_, bytes);
    if (!own_ && offset_ >= 0 && !device.file) MemoryFile::get().discard(offset_, bytes);
    if (!imported_) device.refund(bytes);
}

std::byte* PhysicalMemory::window() {
    LockGuard lock(window_mutex_);
    if (window_) return window_;
    void* there = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd(), offset_);
    if (there != MAP_FAILED) window_ = static_cast<std::byte*>(there);
    return window_;
}

int PhysicalMemory::export_file() {
    exported_ = true;
    return own_ ? fcntl(own_.get(), F_DUPFD_CLOEXEC, 0) : -1;
}

CUresult PhysicalMemory::move_to(int file, int64_t begin, const std::function<void()>& remap) {
    if (imported_ || exported_ || moved_ || device.file) return CUDA_ERROR_NOT_SUPPORTED;
    UniqueFd there(fcntl(file, F_DUPFD_CLOEXEC, 0));
    if (!there || !plenty_of_descriptors(there.get()) || !copy_data(fd(), offset_, there.get(), begin, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    std::swap(own_, there);
    auto old = std::exchange(offset_, begin);
    moved_ = true;
    remap();
    {
        LockGuard lock(window_mutex_);
        constexpr int flags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
        if (window_) (void)mmap(window_, bytes, PROT_READ | PROT_WRITE, flags, fd(), offset_);
    }
    if (!there) MemoryFile::get().discard(old, bytes);
    return CUDA_SUCCESS;
}

int PhysicalMemory::fd() const {
    if (own_) return own_.get();
    return device.file ? device.file->fd() : MemoryFile::get().fd();
}

}  // namespace tnr::emulated
