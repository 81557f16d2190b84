// Memory that lies at two places of this process: where the program sees it, and behind a window where only this
// library reads and writes it. So a page can be filled while the program cannot see it, and appears at once.
//
// It is one memory file without a name. The child of a fork does not inherit the window. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/memory_ranges.hpp"

namespace tnr::cuda {

uint64_t page_bytes();

struct FilePages {
    std::byte* window = nullptr;
    uint64_t bytes = 0;
    uint64_t offset = 0;  // in the file
};

class PageFile {
public:
    // `bytes` is a multiple of the page size. All zero. Null window if there is no room.
    FilePages take(uint64_t bytes) TNR_EXCLUDES(mutex_);
    void give_back(const FilePages& pages) TNR_EXCLUDES(mutex_);
    int descriptor() const { return file_; }
    // The parts that anybody has touched so far, from the start of `pages`: offset and length.
    std::vector<std::pair<uint64_t, uint64_t>> touched(const FilePages& pages) const;

private:
    bool grow(uint64_t bytes) TNR_REQUIRES(mutex_);

    struct Chunk {
        uint64_t window, bytes, offset;
    };
    const int file_ = open_file();
    static int open_file();
    Mutex mutex_;
    uint64_t size_ TNR_GUARDED_BY(mutex_) = 0;
    std::vector<Chunk> chunks_ TNR_GUARDED_BY(mutex_);
    RangeAllocator free_ TNR_GUARDED_BY(mutex_);  // by address in the window
};
// The process's; made at first use, never destroyed.
PageFile& page_file();

}  // namespace tnr::cuda
