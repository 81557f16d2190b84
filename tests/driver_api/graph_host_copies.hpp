// Nodes that copy from and to the program's memory, and functions of the program between them.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "graph.hpp"

namespace driver_api {

using Words = std::vector<unsigned>;

inline void call_function(void* function) {
    (*static_cast<std::function<void()>*>(function))();
}

inline CUgraphNode add_function(CUgraph graph, const std::vector<CUgraphNode>& after, std::function<void()>& function) {
    CUDA_HOST_NODE_PARAMS given{call_function, &function};
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphAddHostNode(&node, graph, after.data(), after.size(), &given));
    return node;
}

inline CUDA_MEMCPY3D line(size_t bytes) {
    CUDA_MEMCPY3D copy{};
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy;
}
inline CUDA_MEMCPY3D to_device(CUdeviceptr to, const void* from, size_t bytes) {
    auto copy = line(bytes);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = from;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE, copy.dstDevice = to;
    return copy;
}
inline CUDA_MEMCPY3D to_host(void* to, CUdeviceptr from, size_t bytes) {
    auto copy = line(bytes);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = from;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = to;
    return copy;
}
inline CUgraphNode add_copy(CUgraph graph, const std::vector<CUgraphNode>& after, const CUDA_MEMCPY3D& copy) {
    CUcontext context = nullptr;
    CU_OK(cu.cuCtxGetCurrent(&context));
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphAddMemcpyNode(&node, graph, after.data(), after.size(), &copy, context));
    return node;
}

inline constexpr size_t word = sizeof(unsigned);

// Pinned memory, all zeros at first.
class PinnedWords {
public:
    explicit PinnedWords(size_t words, unsigned flags = 0) : count(words) {
        CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&data), words * word, flags));
        fill(0);
    }
    ~PinnedWords() { cu.cuMemFreeHost(data); }
    PinnedWords(const PinnedWords&) = delete;
    PinnedWords& operator=(const PinnedWords&) = delete;
    void fill(unsigned value) const { std::fill(data, data + count, value); }
    Words contents() const { return {data, data + count}; }
    size_t bytes() const { return count * word; }

    unsigned* data = nullptr;
    size_t count;
};

}  // namespace driver_api
