// See graph_order.hpp.
#include "gpu_client/cuda/graph_order.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "gpu_client/cuda/graph_joined_copies.hpp"
#include "gpu_client/cuda/graph_pinned_copies.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_functions.hpp"
#include "gpu_client/cuda/table_call.hpp"
#include "gpu_client/protocol/graph_records.hpp"

namespace tnr::cuda {

namespace {

using Order = wire::OrderGraph<>::Reply;

// The mirrors of a graph's copies, each once, and which one a copy has.
struct Mirrors {
    decltype(wire::OrderGraph<>::mirrors) all;
    std::unordered_map<uint64_t, uint32_t> index;  // by address
    std::vector<std::array<HostCopies::Copy, 2>>
        copies;  // of each mirror the first one each way, to the device at [true]

    explicit Mirrors(const GraphNeeds& needs) {
        for (auto& copy : needs.copies) {
            auto& host = copy->host;
            auto [entry, is_new] = index.emplace(*copy->mirror, static_cast<uint32_t>(all.size()));
            if (is_new) {
                all.push_back({*copy->mirror, host.row_bytes * host.rows, value_of(host.address),
                               extent(host.row_bytes, host.rows, host.pitch)});
                copies.emplace_back();
            }
            auto& first = copies[entry->second][copy->to_device];
            if (!first) first = copy;
        }
    }
    uint32_t of(const HostCopy& copy) const { return index.at(*copy.mirror); }
    // Null: the graph has no such copy any more.
    HostCopies::Copy any_copy(uint32_t mirror, bool to_device) const {
        return mirror < copies.size() ? copies[mirror][to_device] : nullptr;
    }
};

CUresult ask_order(CUgraph graph, const Mirrors& mirrors, Order& order) {
    TableCall call(wire::OrderGraph<>::op, wire::OrderGraph<>::way);
    call.handle(graph);
    call.put(mirrors.all);
    auto result = call.send();
    return result == CUDA_SUCCESS ? call.take(order) : result;
}

FunctionMemory memory_of(const wire::FunctionOrder& function, const Mirrors& mirrors) {
    FunctionMemory memory;
    for (auto mirror : function.seen)
        if (auto copy = mirrors.any_copy(mirror, false)) memory.seen.push_back(copy);
    for (auto mirror : function.brings)
        if (auto copy = mirrors.any_copy(mirror, true)) memory.brings.push_back(copy);
    return memory;
}

// Copies to the host last, in the order in which launches reach them.
std::shared_ptr<GraphNeeds> in_order(const GraphNeeds& needs, const Mirrors& mirrors, const Order& order) {
    auto place = [&](const HostCopies::Copy& copy) { return copy->to_device ? 0 : order.unseen[mirrors.of(*copy)]; };
    std::vector<HostCopies::Copy> copies;
    for (auto& copy : needs.copies) {
        copies.push_back(std::make_shared<HostCopy>(*copy));
        copies.back()->seen_by_function = !copy->to_device && place(copy) == 0;
    }
    std::stable_sort(copies.begin(), copies.end(), [&](auto& one, auto& other) { return place(one) < place(other); });
    auto ordered = std::make_shared<GraphNeeds>(needs);
    ordered->copies = {};
    for (auto& copy : copies) ordered->copies.add(std::move(copy));
    return ordered;
}

// `tangled`: no order is right.
CUresult order_needs(CUgraph graph, bool& tangled) {
    tangled = false;
    auto needs = needs_of(graph);
    if (!needs || needs->copies.empty() || (needs->functions.empty() && !any_overlap(needs->copies, needs->copies)))
        return CUDA_SUCCESS;
    const Mirrors mirrors(*needs);
    if (mirrors.all.size() > wire::graph_mirrors_max)
        return static_cast<CUresult>(unsupported("a graph with functions and so many copies from or to the host"));
    Order order;
    if (auto result = ask_order(graph, mirrors, order); result != CUDA_SUCCESS) return result;
    tangled = order.tangled != 0;
    if (tangled) return CUDA_ERROR_NOT_SUPPORTED;
    if (order.unseen.size() != mirrors.all.size()) return CUDA_ERROR_UNKNOWN;
    for (auto& function : order.functions) set_function_memory(function.ticket, memory_of(function, mirrors));
    set_needs(graph, in_order(*needs, mirrors, order));
    return CUDA_SUCCESS;
}

// What is shared by now is no business of the order any more, so no mirror may stand for a part of it.
bool overlaps_shared(const GraphNeeds& left, const GraphNeeds& before) {
    HostCopies shared;
    for (auto& copy : before.copies)
        if (std::find(left.copies.begin(), left.copies.end(), copy) == left.copies.end()) shared.add(copy);
    return any_overlap(left.copies, shared);
}

}  // namespace

CUresult order_needs(CUgraph graph) {
    bool tangled = false;
    auto before = needs_of(graph);
    auto result = order_needs(graph, tangled);
    if (!tangled) return result;
    if (result = share_pinned_copies(graph); result != CUDA_SUCCESS) return result;
    auto left = needs_of(graph);
    if (!left) return CUDA_SUCCESS;
    bool refused = overlaps_shared(*left, *before);
    if (!refused && any_overlap(left->copies, left->copies)) {
        if (left->functions.empty()) result = join_mirrors(graph);
        if (result != CUDA_SUCCESS) return result;
        left = needs_of(graph);
        refused = any_overlap(left->copies, left->copies);
    }
    if (!refused) return order_needs(graph, tangled);
    return static_cast<CUresult>(
        unsupported("a graph's copy from host memory, not pinned, that a copy before it changes partly"));
}

}  // namespace tnr::cuda
