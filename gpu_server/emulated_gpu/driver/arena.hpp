// Where cuMemAlloc's addresses come from: a large range reserved once per device, of which only what is
// allocated is backed by pages. Freed memory gives its pages back and starts at zero when it is used again. Where the GPU
// has a file (device_file.hpp), the pages are that file's, and nothing is zeroed.
#pragma once

#include <cstdint>
#include <map>

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/driver/device_file.hpp"

namespace tnr::emulated {

// Every allocation starts at a multiple of this, as the driver's do (it promises 256).
inline constexpr uint64_t allocation_granule = 512;

// Thread-safe.
class Arena {
public:
    // Reserves addresses; false when the system refuses.
    bool reserve(uint64_t bytes, DeviceFile* file);  // file: null if there is none
    // 0 when there is no free stretch long enough. `bytes` is a multiple of the granule, as is `alignment`.
    uint64_t allocate(uint64_t bytes, uint64_t alignment = allocation_granule);
    void release(uint64_t address, uint64_t bytes);

private:
    bool commit(uint64_t begin, uint64_t end) TNR_REQUIRES(mutex_);
    bool commit_pages(uint64_t begin, uint64_t end) TNR_REQUIRES(mutex_);
    void decommit(uint64_t begin, uint64_t end) TNR_REQUIRES(mutex_);
    void decommit_pages(uint64_t begin, uint64_t end) TNR_REQUIRES(mutex_);

    Mutex mutex_;
    std::map<uint64_t, uint64_t> free_ TNR_GUARDED_BY(mutex_);  // begin -> bytes; neighbours are always merged
    DeviceFile* file_ TNR_GUARDED_BY(mutex_) = nullptr;
    std::map<uint64_t, int64_t> pages_ TNR_GUARDED_BY(mutex_);  // the file's: address -> where in the file
};

}  // namespace tnr::emulated
