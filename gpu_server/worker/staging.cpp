// See staging.hpp.
#include "gpu_server/worker/staging.hpp"

#include <sys/mman.h>

#include <utility>

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
    return block;
}

// Pinning takes the driver a while: without the lock. Nobody else has the block.
Staging::Block Staging::pinned(Block block) {
    if (!block) return block;
    bool must_pin = false;
    {
        LockGuard lock(mutex_);
        must_pin = std::exchange(pinned_in_[block.get()], contexts_gone_) != contexts_gone_;
    }
    if (must_pin) (void)driver().cuMemHostRegister_v2(block.get(), wire::piece_bytes_max, CU_MEMHOSTREGISTER_PORTABLE);
    return block;
}

void Staging::context_gone() {
    LockGuard lock(mutex_);
    ++contexts_gone_;
}

Staging::Block Staging::take_upload() {
    Block block(nullptr, GiveBack{this, false});
    {
        LockGuard lock(mutex_);
        if (uploads_ == staging_blocks_max - download_blocks_kept) return block;
        block.reset(take_locked());
        if (block) ++uploads_;
    }
    return pinned(std::move(block));
}

bool Staging::take_download_locked(Block& block) {
    if (downloads_ == download_blocks_max) return false;
    block.reset(take_locked());
    if (block) ++downloads_;
    return block != nullptr;
}

Staging::Block Staging::try_download() {
    Block block(nullptr, GiveBack{this, true});
    {
        LockGuard lock(mutex_);
        take_download_locked(block);
    }
    return pinned(std::move(block));
}

Staging::Block Staging::take_download() {
    Block block(nullptr, GiveBack{this, true});
    {
        LockGuard lock(mutex_);
        while (!take_download_locked(block)) returned_.wait(mutex_);
    }
    return pinned(std::move(block));
}

void Staging::give_back(std::byte* block, bool download) {
    LockGuard lock(mutex_);
    free_.push_back(block);
    --(download ? downloads_ : uploads_);
    returned_.notify_all();
}

zmq::message_t as_message(Staging::Block block, size_t size) {
    auto* held = new Staging::Block(std::move(block));
    auto give_back = [](void*, void* hint) { delete static_cast<Staging::Block*>(hint); };
    return zmq::message_t(held->get(), size, give_back, held);
}

}  // namespace tnr::worker
