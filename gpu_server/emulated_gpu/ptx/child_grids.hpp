// Grids, copies and fills that kernels launch (CUDA dynamic parallelism, as from CUDA 12 on, where a kernel cannot wait for them). They
// run when all of the grid that has launched them is done, one after the other as they were launched, each with what
// it launches itself; those of the tail stream come last. That keeps the order of every stream that a kernel can name.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/ptx/ptx.hpp"

namespace tnr::ptx {

class LoadedModule;

// A copy, or a fill where there is nothing to copy from.
struct Transfer {
    uint64_t to = 0, bytes = 0;
    std::optional<uint64_t> from = {};
    uint8_t value = 0;
    uint64_t rows = 1, to_pitch = 0, from_pitch = 0;  // so many times the bytes, each so far behind the one before
};

struct ChildGrid {
    uint32_t kernel = 0;
    Dim3 grid, block;
    uint32_t dynamic_shared_bytes = 0;
    // In the device heap, which so bounds what launches can hold. The launching thread writes them.
    std::shared_ptr<std::byte> parameters = {};
    std::optional<Transfer> transfer = {};  // instead of a kernel
};

// What one grid launches. Thread-safe.
class ChildGrids {
public:
    explicit ChildGrids(uint32_t depth) : depth_(depth) {}

    // Memory for the parameters of a launch of the kernel behind a code address, with the configuration in `wanted`; 0:
    // it cannot be launched so.
    uint64_t prepare(const Launch& parent, uint64_t code, ChildGrid wanted);
    // Launches what prepare() has given memory for. A cudaError.
    int32_t launch(uint64_t parameters, uint64_t stream);
    int32_t add(const Transfer& transfer, uint64_t stream);
    // The last error of each thread of the grid that had one, as far as there is room.
    void note(uint64_t thread, int32_t error);
    int32_t last_error(uint64_t thread, bool forget);
    // In the order in which they run. For when the grid has ended.
    std::vector<ChildGrid> take();

private:
    int32_t enter(ChildGrid child, uint64_t stream) TNR_REQUIRES(mutex_);

    const uint32_t depth_;  // 0: launched by the host
    Mutex mutex_;
    std::map<uint64_t, ChildGrid> prepared_ TNR_GUARDED_BY(mutex_);  // by address of the parameters
    std::vector<ChildGrid> launched_ TNR_GUARDED_BY(mutex_), tail_ TNR_GUARDED_BY(mutex_);
    std::map<uint64_t, int32_t> errors_ TNR_GUARDED_BY(mutex_);
};

// The launch of a child of `parent`. It refers to both.
Launch launch_of(const ChildGrid& child, const Launch& parent);
// Does it. False: not all of that is memory.
bool run_transfer(const Transfer& transfer, const Launch& parent);
// Why the launch cannot be; empty if it can (grid.cpp).
std::string check(const Launch& launch, const LoadedModule& module);

}  // namespace tnr::ptx
