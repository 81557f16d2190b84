// See staging.hpp.
#include "gpu_server/worker/staging.hpp"

#include <sys/mman.h>

#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

// Our own memory, pinned afterwards: memory that the driver allocates would go away with its context.
std::byte* Staging::make_locked() {
    if (pinned_in_.size() == staging_blocks_max) return nullptr;
    void* memory = ::mmap(nullptr, wire::piece_bytes_max, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto* block = static_cast<std::byte*>(memory);
    pinned_in_[block] = 0;
    return block;
}

std::byte* Staging::take_locked() {
    std::byte* block = nullptr;
    if (free_.empty()) {
        block = make_locked();
    } else {
        block = free_.back();
        free_.pop_back();
    }
    if (block && pinned_in_[block] != contexts_gone_) {
        (void)driver().cuMemHostRegister_v2(block, wire::piece_bytes_max, CU_MEMHOSTREGISTER_PORTABLE);
        pinned_in_[block] = contexts_gone_;
    }
    return block;
}

void Staging::context_gone() {
    LockGuard lock(mutex_);
    ++contexts_gone_;
}

Staging::Block Staging::take_upload() {
    LockGuard lock(mutex_);
    return Block(take_locked(), GiveBack{this, false});
}

Staging::Block Staging::take_download() {
    LockGuard lock(mutex_);
    std::byte* block = nullptr;
    while (downloads_ >= download_blocks_max || !(block = take_locked())) returned_.wait(mutex_);
    ++downloads_;
    return Block(block, GiveBack{this, true});
}

void Staging::give_back(std::byte* block, bool download) {
    LockGuard lock(mutex_);
    free_.push_back(block);
    if (download) --downloads_;
    returned_.notify_all();
}

}  // namespace tnr::worker
