// What launches of the kind before CUDA 4 (cuLaunchGrid) have been told about a kernel: each call before the launch
// says one thing (cuFuncSetBlockShape, cuParamSetv, …), and it stays said. Both of our drivers keep it here.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "api_client/base/mutex.hpp"

namespace tnr {

struct KeptLaunch {
    static constexpr size_t parameter_bytes_max = 4096;  // what such launches could ever pass
    static constexpr int64_t threads_max = 1024;         // in a block, of every GPU

    std::array<uint32_t, 3> block{1, 1, 1};
    uint32_t shared_bytes = 0;
    size_t parameter_bytes = 0;  // as cuParamSetSize has it; more may have been written
    std::vector<std::byte> parameters;

    // These are false for what makes no sense, and then change nothing.
    bool set_block(int x, int y, int z) {
        if (x <= 0 || y <= 0 || z <= 0 || int64_t{x} * y > threads_max || int64_t{x} * y * z > threads_max)
            return false;
        block = {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
        return true;
    }
    bool set_size(size_t bytes) {
        if (bytes > parameter_bytes_max) return false;
        parameter_bytes = bytes;
        parameters.resize(std::max(parameters.size(), bytes));
        return true;
    }
    bool put(int offset, const void* data, size_t bytes) {
        bool fits = offset >= 0 && bytes <= parameter_bytes_max &&
                    static_cast<size_t>(offset) <= parameter_bytes_max - bytes && (data || bytes == 0);
        if (!fits) return false;
        parameters.resize(std::max(parameters.size(), static_cast<size_t>(offset) + bytes));
        if (bytes != 0) std::memcpy(parameters.data() + offset, data, bytes);
        return true;
    }
};

// By the kernel's handle. Any thread.
class KeptLaunches {
public:
    // Changes the kernel's and returns what `change` says. `lives` tells which kernels are still there: what was said
    // about the others goes when a new one comes.
    template <class Lives, class Change>
    bool change(uint64_t kernel, Lives&& lives, Change&& change) {
        LockGuard lock(mutex_);
        if (!kept_.contains(kernel)) std::erase_if(kept_, [&](auto& entry) { return !lives(entry.first); });
        return change(kept_[kernel]);
    }
    KeptLaunch of(uint64_t kernel) {
        LockGuard lock(mutex_);
        auto found = kept_.find(kernel);
        return found == kept_.end() ? KeptLaunch{} : found->second;
    }

private:
    Mutex mutex_;
    std::map<uint64_t, KeptLaunch> kept_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr
