// See page_file.hpp.
#include "gpu_client/cuda/page_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace tnr::cuda {

// The window grows in steps of at least this: few mappings, of which a process has only 65,530.
static constexpr uint64_t chunk_bytes_min = uint64_t{64} << 20;

uint64_t page_bytes() {
    static const auto bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
}

PageFile& page_file() {
    static auto* file = new PageFile;
    return *file;
}

int PageFile::open_file() {
    return ::memfd_create("tnr-shared-pages", MFD_CLOEXEC);
}

// A page behind each chunk is left out, so that no piece is ever taken across two.
bool PageFile::grow(uint64_t bytes) {
    bytes = std::max(bytes, chunk_bytes_min);
    if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(size_ + bytes)) != 0) return false;
    constexpr int anywhere = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* place = ::mmap(nullptr, bytes + page_bytes(), PROT_NONE, anywhere, -1, 0);
    if (place == MAP_FAILED) return false;
    constexpr int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    void* window = ::mmap(place, bytes, PROT_READ | PROT_WRITE, flags, file_, static_cast<off_t>(size_));
    if (window == MAP_FAILED) {
        ::munmap(place, bytes + page_bytes());
        return false;
    }
    (void)::madvise(place, bytes + page_bytes(), MADV_DONTFORK);
    (void)::madvise(window, bytes, MADV_DONTDUMP);  // the program's own view is dumped
    auto address = reinterpret_cast<uint64_t>(window);
    chunks_.push_back({address, bytes, size_});
    free_.add(address, bytes);
    size_ += bytes;
    return true;
}

FilePages PageFile::take(uint64_t bytes) {
    LockGuard lock(mutex_);
    uint64_t address = free_.take(bytes, page_bytes());
    if (address == 0) {
        if (!grow(bytes)) return {};
        address = free_.take(bytes, page_bytes());
    }
    auto holds = [&](const Chunk& chunk) { return address - chunk.window < chunk.bytes; };
    auto chunk = std::find_if(chunks_.begin(), chunks_.end(), holds);
    return {reinterpret_cast<std::byte*>(address), bytes, chunk->offset + (address - chunk->window)};
}

void PageFile::give_back(const FilePages& pages) {
    // Also what makes it zero again.
    (void)::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(pages.offset),
                      static_cast<off_t>(pages.bytes));
    LockGuard lock(mutex_);
    free_.add(reinterpret_cast<uint64_t>(pages.window), pages.bytes);
}

std::vector<std::pair<uint64_t, uint64_t>> PageFile::touched(const FilePages& pages) const {
    std::vector<std::pair<uint64_t, uint64_t>> parts;
    const auto end = static_cast<off_t>(pages.offset + pages.bytes);
    for (auto at = static_cast<off_t>(pages.offset); at < end;) {
        off_t data = ::lseek(file_, at, SEEK_DATA);
        if (data < 0 || data >= end) break;
        off_t hole = ::lseek(file_, data, SEEK_HOLE);
        if (hole < 0 || hole > end) hole = end;
        parts.emplace_back(static_cast<uint64_t>(data) - pages.offset, static_cast<uint64_t>(hole - data));
        at = hole;
    }
    return parts;
}

}  // namespace tnr::cuda
