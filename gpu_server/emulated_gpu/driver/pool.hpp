// Memory pools. Memory is taken when the call is made and given back when the stream gets there; that is one
// of the orders that CUDA allows, and the pool has nothing to keep.
#pragma once

#include "gpu_server/emulated_gpu/driver/memory.hpp"

namespace tnr::emulated {

class Pool : public Object {
public:
    static constexpr Kind kind_of = Kind::pool;
    Pool(Device& owner, uint64_t most) : Object(kind_of), device(owner), size_max(most) {}

    Device& device;
    const uint64_t size_max;  // 0: the device's memory
    std::atomic<uint64_t> used{0}, used_high{0};
    std::atomic<uint64_t> release_threshold{0};
    std::atomic<int> reuse_event{1}, reuse_opportunistic{1}, reuse_internal{1};
    std::atomic<uint64_t> access{0};  // devices that may use it besides its own
};

// The pool that cuMemAllocAsync uses on the device.
std::shared_ptr<Pool> current_pool(Device& device);

}  // namespace tnr::emulated
