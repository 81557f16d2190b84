// Pinned host memory between the network and the GPU, in blocks of one piece each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>
#include <zmq.hpp>

#include "api_client/base/mutex.hpp"

namespace tnr::worker {

// Uploads are bounded by the client's credit window (64 blocks), downloads by download_blocks_max; short copies to the client
// have blocks as uploads do.
inline constexpr size_t staging_blocks_max = 128;
// Pieces of copies to the client that are on the way at once. They are kept until the client has received them, so this
// is a credit window's worth.
inline constexpr size_t download_blocks_max = 64;
// Of all blocks, those that only take_download() gives. A block of take_upload() goes back when its stream has come to a
// point, which the stream may never do before a download that it stands at has a block.
inline constexpr size_t download_blocks_kept = 8;

class Staging {
public:
    // Returns a block to the pool when it goes. May outlive the call that took it; any thread.
    struct GiveBack {
        Staging* pool;
        bool download;
        void operator()(std::byte* block) const { pool->give_back(block, download); }
    };
    using Block = std::unique_ptr<std::byte, GiveBack>;

    // All need a current context. take_upload() and try_download() return null when there is no block for them;
    // take_download() blocks until it has one: call it without holding any, or downloads wait for each other.
    Block take_upload() TNR_EXCLUDES(mutex_);
    Block try_download() TNR_EXCLUDES(mutex_);
    Block take_download() TNR_EXCLUDES(mutex_);

    // Call it when a context is destroyed or reset: pinning done in it is gone. Blocks are pinned again when they are
    // next used, since the driver may wait for the stream to copy from memory that is not pinned.
    void context_gone() TNR_EXCLUDES(mutex_);

private:
    std::byte* make_locked() TNR_REQUIRES(mutex_);
    std::byte* take_locked() TNR_REQUIRES(mutex_);
    bool take_download_locked(Block& block) TNR_REQUIRES(mutex_);
    Block pinned(Block block) TNR_EXCLUDES(mutex_);
    void give_back(std::byte* block, bool download) TNR_EXCLUDES(mutex_);

    Mutex mutex_;
    Condition returned_;
    std::vector<std::byte*> free_ TNR_GUARDED_BY(mutex_);
    // By block: contexts_gone_ when it was last pinned; 0: never.
    std::map<std::byte*, uint64_t> pinned_in_ TNR_GUARDED_BY(mutex_);
    uint64_t contexts_gone_ TNR_GUARDED_BY(mutex_) = 1;
    size_t downloads_ TNR_GUARDED_BY(mutex_) = 0;
    size_t uploads_ TNR_GUARDED_BY(mutex_) = 0;
};

// Sends a block's contents without copying them; the block goes back to the pool when the client has received it.
zmq::message_t as_message(Staging::Block block, size_t size);

}  // namespace tnr::worker
