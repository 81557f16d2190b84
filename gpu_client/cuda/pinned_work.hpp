// Fills and host-to-host copies in pinned memory that a program addresses as device memory. A GPU would do them; here
// this process does, in the order of the stream.
#pragma once

#include <vector>

#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/rows.hpp"

namespace tnr::cuda {

// While it lives, the memory is not freed.
class UsedMemory {
public:
    explicit UsedMemory(std::vector<PinnedRange> ranges);
    ~UsedMemory();
    UsedMemory(const UsedMemory&) = delete;
    UsedMemory& operator=(const UsedMemory&) = delete;

private:
    std::vector<PinnedRange> ranges_;
};

struct Fill {
    uint64_t address = 0;
    uint32_t value = 0;
    unsigned unit = 1;  // bytes of the value
    size_t width = 0;   // units
    size_t height = 1, pitch = 0;
};
// All of the memory must be pinned. With `wait`, returns once it is filled.
CUresult fill_pinned(const Fill& fill, CUstream stream, bool wait);
// CUDA's pages say: from host to host, also what is called asynchronous is done when it returns, unless it is captured. Named
// as the device's, pinned memory is filled when the stream gets there.
bool is_done_at_once(uint64_t to, uint64_t from, CUstream stream);
// Runs after the stream's earlier work.
CUresult copy_on_host(HostRows to, HostRows from, CUstream stream, bool wait);

// For a call that is done when it returns, where the memory is the program's: waits for what has been put into the stream
// if the memory is shared (shared_memory.hpp). Other streams' work does not overtake it, and the ends of registered memory
// come over. `address`: the GPU's.
CUresult finish_shared(uint64_t address, CUstream stream);

}  // namespace tnr::cuda
