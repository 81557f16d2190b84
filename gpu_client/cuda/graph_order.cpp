// See graph_order.hpp.
#include "gpu_client/cuda/graph_order.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "gpu_client/cuda/graph_copy_nodes.hpp"
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
    std::map<std::pair<uint64_t, uint64_t>, uint32_t>
        index;  // by address and size: parts of one may begin at one place
    std::vector<std::array<HostCopies::Copy, 2>>
        copies;  // of each mirror the first one each way, to the device at [true]

    explicit Mirrors(const GraphNeeds& needs) {
        for (auto& copy : needs.copies) {
            auto& host = copy->host;
            auto [entry, is_new] = index.emplace(key_of(*copy), static_cast<uint32_t>(all.size()));
            if (is_new) {
                all.push_back({*copy->mirror, mirrored_bytes(*copy), value_of(host.address),
                               extent(host.row_bytes, host.rows, host.pitch)});
                copies.emplace_back();
            }
            auto& first = copies[entry->second][copy->to_device];
            if (!first) first = copy;
        }
    }
    static std::pair<uint64_t, uint64_t> key_of(const HostCopy& copy) { return {*copy.mirror, mirrored_bytes(copy)}; }
    uint32_t of(const HostCopy& copy) const { return index.at(key_of(copy)); }
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

// Copies to the host last, in the order in which launches reach them, without those that are gone: nothing would be in
// their mirrors. A copy to the device that is gone may stay: what it brings is for nobody.
std::shared_ptr<GraphNeeds> in_order(const GraphNeeds& needs, const Mirrors& mirrors, const Order& order) {
    auto place = [&](const HostCopies::Copy& copy) { return copy->to_device ? 0 : order.unseen[mirrors.of(*copy)]; };
    std::set<uint32_t> seen;
    std::set<uint64_t> tickets;
    for (auto& function : order.functions) {
        seen.insert(function.seen.begin(), function.seen.end());
        tickets.insert(function.ticket);
    }
    std::vector<HostCopies::Copy> copies;
    for (auto& copy : needs.copies) {
        const bool unseen = copy->to_device || place(copy) != 0;
        if (!unseen && seen.count(mirrors.of(*copy)) == 0) continue;
        copies.push_back(std::make_shared<HostCopy>(*copy));
        copies.back()->seen_by_function = !unseen;
    }
    std::stable_sort(copies.begin(), copies.end(), [&](auto& one, auto& other) { return place(one) < place(other); });
    auto ordered = std::make_shared<GraphNeeds>(needs);
    ordered->copies = {};
    for (auto& copy : copies) ordered->copies.add(std::move(copy));
    std::erase_if(ordered->functions, [&](auto& function) { return tickets.count(*function.ticket) == 0; });
    ordered->may_be_less = ordered->holds_events = false;
    return ordered;
}

bool has_memory(const GraphFunction& function) {
    auto memory = memory_of_function(*function.ticket);
    return memory && (!memory->seen.empty() || !memory->brings.empty());
}

// Mirrors hold it without order. Functions that know mirrors by now must hear that the graph has none any more: what they
// see there would be written over what the GPU has.
bool any_order_does(const GraphNeeds& needs) {
    if (needs.may_be_less) return false;
    if (needs.copies.empty()) return std::none_of(needs.functions.begin(), needs.functions.end(), has_memory);
    return needs.functions.empty() && !needs.meets_others && !any_overlap(needs.copies, needs.copies);
}

// `tangled`: as the worker says it; 0: mirrors hold it in this order.
CUresult order_needs(CUgraph graph, uint8_t& tangled) {
    tangled = 0;
    auto needs = needs_of(graph);
    if (!needs || any_order_does(*needs)) return CUDA_SUCCESS;
    const Mirrors mirrors(*needs);
    if (mirrors.all.size() > wire::graph_mirrors_max)
        return static_cast<CUresult>(unsupported("a graph with functions and so many copies from or to the host"));
    Order order;
    if (auto result = ask_order(graph, mirrors, order); result != CUDA_SUCCESS) return result;
    if (order.unseen.size() != mirrors.all.size()) return CUDA_ERROR_UNKNOWN;
    for (auto& function : order.functions) set_function_memory(function.ticket, memory_of(function, mirrors));
    auto ordered = in_order(*needs, mirrors, order);
    set_needs(graph, ordered->empty() ? nullptr : ordered);
    tangled = order.tangled;
    return CUDA_SUCCESS;
}

// Launches of it fetch before the program sees its events.
void hold_events(CUgraph graph) {
    auto needs = needs_of(graph);
    auto holding = needs ? std::make_shared<GraphNeeds>(*needs) : std::make_shared<GraphNeeds>();
    holding->holds_events = true;
    set_needs(graph, std::move(holding));
}

// What is shared by now is no business of the order any more, so no mirror may stand for a part of it.
bool overlaps_shared(const GraphNeeds& left, const GraphNeeds& before) {
    HostCopies shared;
    for (auto& copy : before.copies)
        if (std::find(left.copies.begin(), left.copies.end(), copy) == left.copies.end()) shared.add(copy);
    return any_overlap(left.copies, shared);
}

}  // namespace

CUresult find_copies_inside(CUgraph inside, const GraphNeeds& of_instance, HostCopies& found) {
    const Mirrors mirrors(of_instance);
    Order order;
    auto result = ask_order(inside, mirrors, order);
    if (result != CUDA_SUCCESS) return result;
    if (order.unseen.size() != mirrors.all.size()) return CUDA_ERROR_UNKNOWN;
    for (auto& copy : of_instance.copies)
        if (!copy->to_device && order.unseen[mirrors.of(*copy)] != 0) found.add(copy);
    return CUDA_SUCCESS;
}

CUresult order_needs_inside(CUgraph inside, std::shared_ptr<const GraphNeeds>& own) {
    auto all = needs_of(inside);
    own = nullptr;
    if (!all || all->copies.empty()) return order_needs(inside);
    if (!all->functions.empty() || all->allocates) return CUDA_ERROR_NOT_SUPPORTED;
    auto needs = std::make_shared<GraphNeeds>();
    needs->meets_others = all->meets_others;
    if (auto result = find_copies_of_nodes(inside, all->copies, needs->copies); result != CUDA_SUCCESS) return result;
    if (needs->copies.empty()) return CUDA_SUCCESS;
    const Mirrors mirrors(*needs);
    Order order;
    if (mirrors.all.size() > wire::graph_mirrors_max) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto result = ask_order(inside, mirrors, order); result != CUDA_SUCCESS) return result;
    if (order.unseen.size() != mirrors.all.size()) return CUDA_ERROR_UNKNOWN;
    if (order.tangled != 0) return CUDA_ERROR_NOT_SUPPORTED;
    own = in_order(*needs, mirrors, order);
    return CUDA_SUCCESS;
}

CUresult order_needs(CUgraph graph) {
    auto* object = find_graph(graph);
    auto all = needs_of(graph);
    const bool more_than_others = all && (!all->copies.empty() || !all->functions.empty() || all->allocates);
    if (object && object->holder != 0 && more_than_others) return CUDA_ERROR_NOT_SUPPORTED;  // it has no instances
    uint8_t tangled = 0;
    auto result = follow_shared_copies(graph);
    if (result == CUDA_SUCCESS) result = order_needs(graph, tangled);
    if (result != CUDA_SUCCESS || !tangled) return result;
    auto before = needs_of(graph);
    result = share_pinned_copies(graph);
    auto left = needs_of(graph);
    if (result != CUDA_SUCCESS || !left) return result;
    if (!overlaps_shared(*left, *before)) {
        if (result = join_mirrors(graph); result == CUDA_SUCCESS) result = order_needs(graph, tangled);
        const bool only_events = tangled == wire::OrderGraph<>::events_too_early;
        if (only_events && result == CUDA_SUCCESS) hold_events(graph);
        if (result != CUDA_SUCCESS || !tangled || only_events) return result;
    }
    return static_cast<CUresult>(unsupported(
        "a graph's copy of host memory, not pinned, that something before it or beside it changes, or that an "
        "event of the graph waits for or follows"));
}

}  // namespace tnr::cuda
