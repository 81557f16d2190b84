// See staging.hpp.
#include "gpu_server/worker/staging.hpp"

#include <sys/mman.h>

#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

std::byte* Staging::take_locked() {
    if (!free_.empty()) {
        auto* block = free_.back();
        free_.pop_back();
        return block;
    }
    if (made_ == staging_blocks_max) return nullptr;
    // Our own memory, pinned afterwards: memory that the driver allocates goes away with its context, and programs reset
    // theirs while blocks are waiting here. A block that has lost its pinning still works.
    void* memory = ::mmap(nullptr, wire::piece_bytes_max, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    (void)driver().cuMemHostRegister_v2(memory, wire::piece_bytes_max, CU_MEMHOSTREGISTER_PORTABLE);
    ++made_;
    return static_cast<std::byte*>(memory);
}

Staging::Block Staging::take_upload() {
    std::lock_guard lock(mutex_);
    return Block(take_locked(), GiveBack{this, false});
}

Staging::Block Staging::take_download() {
    std::unique_lock lock(mutex_);
    std::byte* block = nullptr;
    returned_.wait(lock, [&] { return downloads_ < download_blocks_max && (block = take_locked()) != nullptr; });
    ++downloads_;
    return Block(block, GiveBack{this, true});
}

void Staging::give_back(std::byte* block, bool download) {
    std::lock_guard lock(mutex_);
    free_.push_back(block);
    if (download) --downloads_;
    returned_.notify_all();
}

}  // namespace tnr::worker
