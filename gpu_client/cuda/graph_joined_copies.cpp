// See graph_joined_copies.hpp.
#include "gpu_client/cuda/graph_joined_copies.hpp"

#include <algorithm>
#include <vector>

#include "gpu_client/cuda/boxes.hpp"
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
    HostCopies parts{};                      // those of the same rows are one
};
using Joins = std::vector<Join>;  // one behind the other

const std::byte* host_end(const HostCopy& copy) {
    return copy.host.address + extent(copy.host.row_bytes, copy.host.rows, copy.host.pitch);
}

// Of copies that overlap, together.
Joins find_joins(const GraphNeeds& needs, uint64_t context) {
    std::vector<HostCopies::Copy> sorted(needs.copies.begin(), needs.copies.end());
    auto place = [](const HostCopies::Copy& copy) { return std::pair(copy->host.address, host_end(*copy)); };
    std::sort(sorted.begin(), sorted.end(), [&](auto& one, auto& other) { return place(one) < place(other); });
    Joins joins;
    const HostCopy* last = nullptr;
    for (auto& copy : sorted) {
        const auto* begin = copy->host.address;
        if (joins.empty() || joins.back().end <= begin)
            joins.push_back({.begin = begin, .end = host_end(*copy), .first_mirror = copy->mirror.get()});
        auto& join = joins.back();
        join.end = std::max(join.end, host_end(*copy));
        const bool at_last = last && last->host.address == begin && host_end(*last) == host_end(*copy);
        join.can_be &= copy->context == context && (!at_last || same_rows(*last, *copy));
        join.several |= copy->mirror.get() != join.first_mirror;
        last = copy.get();
    }
    std::erase_if(joins, [](auto& join) { return !join.can_be || !join.several; });
    return joins;
}

Join* join_at(Joins& joins, const std::byte* address) {
    auto found = std::partition_point(joins.begin(), joins.end(), [&](auto& join) { return join.end <= address; });
    return found != joins.end() && address >= found->begin ? &*found : nullptr;
}

// Stands for a copy that has the part of the mirror already.
HostCopies::Copy part_of(Join& join, const HostCopy& like, uint64_t context) {
    if (auto known = join.parts.find_same(like)) return known;
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
    join.parts.add(copy);
    return copy;
}

bool is_joined(Joins& joins, const BoxSide& side) {
    return !side.on_device && join_at(joins, handle_of<const std::byte*>(side.address));
}

CUresult join_node(CUgraphNode node, Joins& joins, const GraphNeeds& needs, uint64_t context) {
    CUDA_MEMCPY3D copy{};
    Box box;
    if (auto result = cuGraphMemcpyNodeGetParams(node, &copy); result != CUDA_SUCCESS) return result;
    if (read_3d(&copy, box) != CUDA_SUCCESS || (!is_joined(joins, box.from) && !is_joined(joins, box.to)))
        return CUDA_SUCCESS;
    return set_copy_node(node, &copy, [&](const HostCopy& like) {
        auto* join = join_at(joins, like.host.address);
        return join ? part_of(*join, like, context) : needs.copies.find_same(like);
    });
}

}  // namespace

CUresult join_mirrors(CUgraph graph) {
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    const auto needs = needs_of(graph);
    auto joins = find_joins(*needs, context->handle);
    if (joins.empty()) return CUDA_SUCCESS;
    for (auto& join : joins) {
        auto bytes = static_cast<uint64_t>(join.end - join.begin);
        if (auto result = make_mirror(*context, bytes, join.base); result != CUDA_SUCCESS) return result;
    }
    return for_each_copy_node(graph, [&](auto node) { return join_node(node, joins, *needs, context->handle); });
}

}  // namespace tnr::cuda
