// Memory pools. Memory is taken when the call is made and given back when the stream gets there; that is one of the
// orders that CUDA allows.
//
// A pool takes memory from its device in granules. What has come back stays reserved until a synchronization lets go of
// what exceeds the release threshold, cuMemPoolTrimTo asks for it, or another allocation on the device needs it.
#pragma once

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"

namespace tnr::emulated {

class Pool : public Object {
public:
    static constexpr Kind kind_of = Kind::pool;
    Pool(Device& owner, uint64_t most, MemoryType memory)
        : Object(kind_of), device(owner), type(memory), size_max_(most) {}

    Device& device;
    const MemoryType type;  // host: pinned memory, for which the device only stands for the first one
    std::atomic<uint64_t> release_threshold{0};
    std::atomic<int> reuse_event{1}, reuse_opportunistic{1}, reuse_internal{1};
    std::atomic<uint64_t> access{0};  // devices that may use it besides its own

    // Puts `bytes` to use, reserving more of the device where that is needed. False when there is not enough.
    bool take(uint64_t bytes);
    // `bytes` are not used any more; they stay reserved. True when nothing is in use now.
    bool put_back(uint64_t bytes);
    // Gives unused granules back to the device, but keeps at least `bytes` reserved.
    void shrink_to(uint64_t bytes);

    struct Amounts {
        uint64_t reserved = 0, reserved_high = 0;
        uint64_t used = 0, used_high = 0;
    };
    Amounts amounts();
    // From now on the high watermarks count from what is there now.
    void reset_reserved_high();
    void reset_used_high();

private:
    bool reserve(uint64_t missing) TNR_REQUIRES(mutex_);

    const uint64_t size_max_;  // 0: the device's memory
    Mutex mutex_;              // innermost
    Amounts amounts_ TNR_GUARDED_BY(mutex_);
};

std::shared_ptr<Pool> create_pool(Device& device, uint64_t size_max, MemoryType type);
// False for a default pool and for one that is destroyed already. What was allocated from it lives on until it is freed.
bool destroy_pool(Pool& pool);
std::shared_ptr<Pool> default_pool(Device& device);
// The pool that cuMemAllocAsync uses on the device.
std::shared_ptr<Pool> current_pool(Device& device);
void set_current_pool(std::shared_ptr<Pool> pool);

// Memory that came from the pool of this handle is free again. The pool may have been destroyed meanwhile.
void return_to_pool(uint64_t pool, uint64_t bytes);

// The program has waited for work on the device: its pools release what their thresholds do not keep.
void release_after_wait(Device& device);

// Takes `bytes` of the device's budget, if need be from what its pools have reserved and do not use.
bool charge(Device& device, uint64_t bytes);

}  // namespace tnr::emulated
