// See staging.hpp.
#include "gpu_server/worker/staging.hpp"

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
    void* memory = nullptr;
    if (driver().cuMemHostAlloc(&memory, wire::piece_bytes_max, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS)
        return nullptr;
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
