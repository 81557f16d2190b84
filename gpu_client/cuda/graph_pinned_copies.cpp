// See graph_pinned_copies.hpp.
#include "gpu_client/cuda/graph_pinned_copies.hpp"

#include "gpu_client/cuda/boxes.hpp"
#include "gpu_client/cuda/graph_nodes.hpp"
#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/rows.hpp"
#include "gpu_client/cuda/thread_state.hpp"

namespace tnr::cuda {

// Pinned memory may be named as the device's, too.
static bool is_host(CUmemorytype type, CUdeviceptr device) {
    return type == CU_MEMORYTYPE_HOST || (type != CU_MEMORYTYPE_ARRAY && is_pinned(device));
}

static bool can_share(const Box& box, const BoxSide& side) {
    if (side.on_device) return true;
    PinnedRange range;
    uint64_t bytes = (box.slices - 1) * side.slice_bytes + extent(box.row_bytes, box.rows, side.pitch);
    return find_pinned(handle_of<const void*>(side.address), bytes, range);
}

static CUresult share_side(Context& context, const BoxSide& side) {
    uint64_t device = 0;
    return side.on_device ? CUDA_SUCCESS : find_elsewhere(context, side.address, device);
}

// Once its sides are shared, the same description means the GPU's copy of them.
static CUresult share_sides(Context& context, CUgraphNode node) {
    CUDA_MEMCPY3D copy{};
    Box box;
    if (auto result = cuGraphMemcpyNodeGetParams(node, &copy); result != CUDA_SUCCESS) return result;
    if (!is_host(copy.srcMemoryType, copy.srcDevice) && !is_host(copy.dstMemoryType, copy.dstDevice))
        return CUDA_SUCCESS;
    if (auto result = read_3d(&copy, box); result != CUDA_SUCCESS) return result;
    auto result = share_box(context, box);
    if (result == CUDA_ERROR_NOT_SUPPORTED) return CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? cuGraphMemcpyNodeSetParams(node, &copy) : result;
}

// The same description means what the GPU has.
static CUresult follow_shared_sides(CUgraphNode node) {
    CUDA_MEMCPY3D copy{};
    Box box;
    if (auto result = cuGraphMemcpyNodeGetParams(node, &copy); result != CUDA_SUCCESS) return result;
    if (auto result = read_3d(&copy, box); result != CUDA_SUCCESS) return result;
    bool now_there = (is_host(copy.srcMemoryType, copy.srcDevice) && box.from.on_device) ||
                     (is_host(copy.dstMemoryType, copy.dstDevice) && box.to.on_device);
    return now_there ? cuGraphMemcpyNodeSetParams(node, &copy) : CUDA_SUCCESS;
}

CUresult share_box(Context& context, const Box& box) {
    if (!can_share(box, box.to) || !can_share(box, box.from)) return CUDA_ERROR_NOT_SUPPORTED;
    for (auto* side : {&box.to, &box.from})
        if (auto result = share_side(context, *side); result != CUDA_SUCCESS) return result;
    return CUDA_SUCCESS;
}

CUresult follow_shared_copies(CUgraph graph) {
    auto needs = needs_of(graph);
    if (!needs || !any_shared(needs->copies)) return CUDA_SUCCESS;
    return for_each_copy_node(graph, follow_shared_sides);
}

CUresult share_pinned_copies(CUgraph graph) {
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    return for_each_copy_node(graph, [&](auto node) { return share_sides(*context, node); });
}

}  // namespace tnr::cuda
