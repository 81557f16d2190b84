// See graph_joined_copies.hpp.
#include "gpu_client/cuda/graph_joined_copies.hpp"

#include <algorithm>
#include <vector>

#include "gpu_client/cuda/graph_copy_nodes.hpp"
#include "gpu_client/cuda/graph_nodes.hpp"
#include "gpu_client/cuda/mirrors.hpp"

namespace tnr::cuda {

namespace {

// What the host's memory from `begin` to `end` has instead of several mirrors.
struct Join {
    const std::byte *begin, *end;
    bool can_be = true, several = false;
    const uint64_t* first_mirror;
    std::shared_ptr<const uint64_t> base{};  // once made
};

bool has_gaps(const HostCopy& copy) {
    return copy.slice_rows != 0 || (copy.host.rows > 1 && copy.host.pitch != copy.host.row_bytes);
}

// Of copies that overlap, together.
std::vector<Join> find_joins(const HostCopies& copies, uint64_t context) {
    std::vector<HostCopies::Copy> sorted(copies.begin(), copies.end());
    std::sort(sorted.begin(), sorted.end(),
              [](auto& one, auto& other) { return one->host.address < other->host.address; });
    std::vector<Join> joins;
    for (auto& copy : sorted) {
        auto& host = copy->host;
        auto end = host.address + extent(host.row_bytes, host.rows, host.pitch);
        if (joins.empty() || joins.back().end <= host.address)
            joins.push_back({.begin = host.address, .end = end, .first_mirror = copy->mirror.get()});
        auto& join = joins.back();
        join.end = std::max<const std::byte*>(join.end, end);
        join.can_be &= !has_gaps(*copy) && copy->context == context;
        join.several |= copy->mirror.get() != join.first_mirror;
    }
    std::erase_if(joins, [](auto& join) { return !join.can_be || !join.several; });
    return joins;
}

const Join* join_of(const std::vector<Join>& joins, const HostRows& host) {
    auto found = std::find_if(joins.begin(), joins.end(), [&](auto& join) { return host.address < join.end; });
    return found != joins.end() && host.address >= found->begin ? &*found : nullptr;
}

// Stands for a copy that has the part of the mirror already.
HostCopies::Copy part_of(const Join& join, const HostCopy& like, uint64_t context) {
    struct Part {
        std::shared_ptr<const uint64_t> base;
        uint64_t address;
    };
    auto offset = static_cast<uint64_t>(like.host.address - join.begin);
    auto part = std::make_shared<const Part>(Part{join.base, *join.base + offset});
    auto copy = std::make_shared<HostCopy>(like);
    copy->mirror = {part, &part->address};
    copy->joined = *join.base;
    copy->context = context;
    return copy;
}

CUresult join_node(CUgraphNode node, const std::vector<Join>& joins, const GraphNeeds& needs, uint64_t context) {
    CUDA_MEMCPY3D copy{};
    if (auto result = cuGraphMemcpyNodeGetParams(node, &copy); result != CUDA_SUCCESS) return result;
    if (copy.srcMemoryType != CU_MEMORYTYPE_HOST && copy.dstMemoryType != CU_MEMORYTYPE_HOST) return CUDA_SUCCESS;
    return set_copy_node(node, &copy, [&](const HostCopy& like) {
        auto* join = join_of(joins, like.host);
        return join ? part_of(*join, like, context) : needs.copies.find_same(like);
    });
}

}  // namespace

CUresult join_mirrors(CUgraph graph) {
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    const auto needs = needs_of(graph);
    auto joins = find_joins(needs->copies, context->handle);
    for (auto& join : joins) {
        auto bytes = static_cast<uint64_t>(join.end - join.begin);
        if (auto result = make_mirror(*context, bytes, join.base); result != CUDA_SUCCESS) return result;
    }
    std::vector<CUgraphNode> nodes;
    if (joins.empty()) return CUDA_SUCCESS;
    if (auto result = list_nodes(graph, nodes); result != CUDA_SUCCESS) return result;
    for (auto node : nodes) {
        auto type = CU_GRAPH_NODE_TYPE_EMPTY;
        auto result = cuGraphNodeGetType(node, &type);
        if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_MEMCPY)
            result = join_node(node, joins, *needs, context->handle);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda
