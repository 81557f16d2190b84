// Copies as nodes of graphs. Where a side is the host's, the node has a mirror of it: graph_needs.hpp.
#include "gpu_client/cuda/graph_copy_nodes.hpp"

#include <algorithm>
#include <array>

#include "gpu_client/cuda/boxes.hpp"
#include "gpu_client/cuda/graph_functions.hpp"
#include "gpu_client/cuda/graph_nodes.hpp"
#include "gpu_client/cuda/graph_pinned_copies.hpp"
#include "gpu_client/cuda/graphs_for_kernels.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/mirrors.hpp"
#include "gpu_client/cuda/other_devices.hpp"

namespace tnr::cuda {

namespace {

struct PreparedCopy {
    wire::CopyWork<> work;
    wire::CopyArrays<> arrays;
    std::vector<std::shared_ptr<HostCopy>> host;  // of the sides that are the host's

    bool has_arrays() const { return arrays.to != 0 || arrays.from != 0; }
};

// What travels of it.
struct WithArrays {
    wire::CopyWork<> work;
    wire::CopyArrays<> arrays;
    auto fields() { return std::tie(work, arrays); }
};

// Calls `send` with what is to travel.
template <class Send>
CUresult send_copy(const PreparedCopy& copy, Send&& send) {
    return copy.has_arrays() ? send(WithArrays{copy.work, copy.arrays}) : send(copy.work);
}

void read_array(BoxSide& side, uint64_t& number, std::array<uint64_t, 3>& place) {
    if (!side.array) return;
    number = side.array->number;
    place = {side.x_bytes, side.y, side.z};
}

bool is_sound_node_side(const BoxSide& side, const Box& box) {
    if (box.row_bytes > side.pitch || (box.slices > 1 && side.slice_bytes % side.pitch != 0)) return false;
    uint64_t bytes = (box.slices - 1) * side.slice_bytes + extent(box.row_bytes, box.rows, side.pitch);
    if (side.array) return true;
    return side.on_device ? is_allocated(side.address, bytes) : side.address != 0;
}

FindSame find_same_in(const std::shared_ptr<const GraphNeeds>& needs) {
    return [needs](const HostCopy& like) { return needs ? needs->copies.find_same(like) : nullptr; };
}

// Makes the host's side a mirror.
CUresult mirror_side(const Context& context, const Box& box, bool to_device, const FindSame& find_same, BoxSide& side,
                     PreparedCopy& copy) {
    const uint64_t slice_rows = box.slices > 1 ? side.slice_bytes / side.pitch : box.rows;
    const uint64_t rows = (box.slices - 1) * slice_rows + box.rows;
    auto host = std::make_shared<HostCopy>();
    host->to_device = to_device;
    host->host = {handle_of<std::byte*>(side.address), box.row_bytes, rows, side.pitch};
    if (slice_rows != box.rows) host->slice_rows = slice_rows, host->copied_rows = box.rows;
    auto result = give_mirror(context, *host, find_same(*host).get());
    if (result != CUDA_SUCCESS) return result;
    side.address = *host->mirror;
    side.pitch = host->joined != 0 ? side.pitch : box.row_bytes;
    side.slice_bytes = side.pitch * slice_rows;
    copy.host.push_back(std::move(host));
    return CUDA_SUCCESS;
}

CUresult prepare(CUgraph graph, const CUDA_MEMCPY3D* given, CUcontext handle, const FindSame& find_same,
                 PreparedCopy& copy) {
    auto* context = find_context(handle);
    if (auto result = context ? usable(context) : CUDA_ERROR_INVALID_CONTEXT; result != CUDA_SUCCESS) return result;
    if (!given) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = prepare_for_body(graph, *context, *given); result != CUDA_SUCCESS) return result;
    Box box;
    if (auto result = read_3d(given, box); result != CUDA_SUCCESS) return result;
    if (box.row_bytes == 0 || box.rows == 0 || box.slices == 0) return CUDA_ERROR_INVALID_VALUE;
    flatten(box);
    if (!is_sound_node_side(box.to, box) || !is_sound_node_side(box.from, box)) return CUDA_ERROR_INVALID_VALUE;
    if (!pools_let_copy(box.to.address, box.from.address, *context)) return CUDA_ERROR_INVALID_VALUE;
    for (auto* side : {&box.to, &box.from})
        if (side->on_device && !open_to_device_of(*context, side->address)) return CUDA_ERROR_INVALID_VALUE;
    auto result = CUDA_SUCCESS;
    if (!box.from.on_device) result = mirror_side(*context, box, true, find_same, box.from, copy);
    if (result == CUDA_SUCCESS && !box.to.on_device)
        result = mirror_side(*context, box, false, find_same, box.to, copy);
    read_array(box.to, copy.arrays.to, copy.arrays.to_place);
    read_array(box.from, copy.arrays.from, copy.arrays.from_place);
    copy.work = {box.to.address,   box.to.pitch,   box.to.slice_bytes / box.to.pitch,
                 box.from.address, box.from.pitch, box.from.slice_bytes / box.from.pitch,
                 box.row_bytes,    box.rows,       box.slices,
                 context->number};
    return result;
}

// What the node does now, as the worker's driver sees it.
CUresult ask_work(CUgraphNode handle, wire::CopyWork<>& work) {
    TableCall call(wire::GetCopyNode<>::op, wire::GetCopyNode<>::way);
    call.handle(handle);
    auto result = call.send();
    return result == CUDA_SUCCESS ? call.take(work) : result;
}

// The node's copy that way. Captured copies do not know their nodes, and those of a clone know the original's: of these, the
// ones of the same rows have the same mirror, and any one of them is the node's. `old`: what the graph's node does.
HostCopies::Copy copy_of(const HostCopies& copies, CUgraphNode node, const wire::CopyWork<>& old, bool to_device) {
    const uint64_t mirror = to_device ? old.from : old.to;
    const uint64_t pitch = to_device ? old.from_pitch : old.to_pitch, slice = to_device ? old.from_rows : old.to_rows;
    const uint64_t bytes = extent(old.row_bytes, (old.slices - 1) * slice + old.rows, pitch);
    auto* here = find_graph_node(node);
    HostCopies::Copy found;
    // Parts of a mirror may begin at one place.
    auto fits = [&](const HostCopy& one) {
        return *one.mirror == mirror && (one.joined == 0 || mirrored_bytes(one) == bytes);
    };
    for (auto& one : copies) {
        if (one->to_device != to_device) continue;
        if (one->node == value_of(node)) return one;
        auto* its = graph_nodes().find(one->node);
        bool known = its && here && its->graph == here->graph;
        if (!found && !known && fits(*one)) found = one;
    }
    return found;
}

// The needs with another copy for the node.
std::shared_ptr<GraphNeeds> with_copy(const std::shared_ptr<const GraphNeeds>& needs, CUgraphNode node,
                                      const wire::CopyWork<>& old, const PreparedCopy& copy) {
    auto changed = needs ? std::make_shared<GraphNeeds>(*needs) : std::make_shared<GraphNeeds>();
    for (bool to_device : {true, false})
        if (auto gone = copy_of(changed->copies, node, old, to_device))
            changed->copies.erase_if([&](auto& one) { return one == gone; });
    for (auto& one : copy.host) {
        one->node = value_of(node);
        changed->copies.add(one);
    }
    return changed->empty() ? nullptr : changed;
}

// Of one row between memory of the current context's GPU: the driver has nothing to refuse about it.
bool is_plain_copy(const PreparedCopy& copy, CUcontext context) {
    return copy.host.empty() && !copy.has_arrays() && copy.work.rows == 1 && copy.work.slices == 1 &&
           value_of(context) == current_context_handle() && !is_elsewhere(copy.work.to) &&
           !is_elsewhere(copy.work.from);
}

bool same_ends(const CUDA_MEMCPY3D& one, const CUDA_MEMCPY3D& other) {
    return one.srcMemoryType == other.srcMemoryType && one.dstMemoryType == other.dstMemoryType;
}

void remember(CUgraphNode handle, const CUDA_MEMCPY3D& given) {
    auto* node = find_graph_node(handle);
    if (!node) return;
    node->other_ends |= node->copy && !same_ends(*node->copy, given);
    node->copy = std::make_shared<CUDA_MEMCPY3D>(given);
}

// The ends of an instance's copy stay of the types that they are named as, where the program has named them.
bool keeps_ends(CUgraphNode handle, const CUDA_MEMCPY3D* given) {
    auto* node = find_graph_node(handle);
    return !node || !node->copy || node->other_ends || !given || same_ends(*node->copy, *given);
}

CUresult add_copy(const NodePlace& place, const CUDA_MEMCPY3D* given, CUcontext context) {
    PreparedCopy copy;
    auto find_same = [&](const HostCopy& like) { return same_copy_in(place.graph, like); };
    if (auto bad = prepare(place.graph, given, context, find_same, copy); bad != CUDA_SUCCESS) return bad;
    const bool plain = is_plain_copy(copy, context);
    auto result =
        send_copy(copy, [&](const auto& work) { return add_node(wire::AddCopyNode<>::op, place, work, plain); });
    if (result != CUDA_SUCCESS) return result;
    remember(*place.out, *given);
    GraphNeeds more;
    for (auto& one : copy.host) {
        one->node = value_of(*place.out);
        more.copies.add(one);
    }
    add_needs(place.graph, more);
    return CUDA_SUCCESS;
}

// What an instance's node has copied one way until now, and the functions that see or bring it. They are told of the new
// copy.
struct CopyUntilNow {
    HostCopies::Copy copy;  // null: none
    std::vector<ToldFunction> functions;
};
using CopiesUntilNow = std::array<CopyUntilNow, 2>;  // to the device at [true]

CUresult find_until_now(const GraphNeeds& needs, CUgraphNode node, const wire::CopyWork<>& old, CopiesUntilNow& found) {
    auto* object = find_graph_node(node);
    if (!object) return CUDA_ERROR_INVALID_VALUE;
    for (bool to_device : {false, true}) {
        auto& one = found[to_device];
        one.copy = copy_of(needs.copies, node, old, to_device);
        if (!one.copy) continue;
        auto result = find_functions_of(needs, handle_of<CUgraph>(object->graph), *one.copy, one.functions);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

// Others copy into or out of its mirror, too; `same_way`: as it does.
bool has_company(const GraphNeeds& needs, const HostCopies::Copy& copy, bool same_way) {
    return std::any_of(needs.copies.begin(), needs.copies.end(), [&](auto& other) {
        return other != copy && other->mirror == copy->mirror && (!same_way || other->to_device == copy->to_device);
    });
}

// Whether functions can be told of the new copy.
bool can_follow(const GraphNeeds& needs, const CopyUntilNow& until_now, const HostCopy* now) {
    if (until_now.functions.empty()) return !now || now->to_device || needs.functions.empty() || until_now.copy;
    return now && !has_company(needs, until_now.copy, true);
}

bool overlaps_another(const GraphNeeds& needs, const CopiesUntilNow& until_now, const HostCopy& copy) {
    return std::any_of(needs.copies.begin(), needs.copies.end(), [&](auto& other) {
        return other != until_now[0].copy && other != until_now[1].copy && other->to_device != copy.to_device &&
               other->mirror != copy.mirror && overlap(other->host, copy.host);
    });
}

// Functions of a graph know the order that it was instantiated with.
CUresult check_order(const GraphNeeds& needs, const CopiesUntilNow& until_now, PreparedCopy& copy) {
    for (bool to_device : {false, true}) {
        auto found =
            std::find_if(copy.host.begin(), copy.host.end(), [&](auto& one) { return one->to_device == to_device; });
        auto* now = found != copy.host.end() ? found->get() : nullptr;
        auto& before = until_now[to_device];
        if (!can_follow(needs, before, now))
            return static_cast<CUresult>(unsupported("an instance's new host copy that functions cannot follow"));
        if (!now) continue;
        if (overlaps_another(needs, until_now, *now))
            return static_cast<CUresult>(unsupported("an instance's new copy of overlapping host memory"));
        now->seen_by_function = before.copy && before.copy->seen_by_function;
        now->disabled = before.copy && before.copy->disabled;
        if (to_device) copy.work.from_host = before.functions.empty();
    }
    return CUDA_SUCCESS;
}

// No mirror of an instance's new copy would follow what others do in the middle of a launch.
CUresult share_beside_others(CUcontext handle, const CUDA_MEMCPY3D* given) {
    Box box;
    auto* context = find_context(handle);
    if (!context || !given) return CUDA_SUCCESS;  // for prepare() to refuse
    if (auto result = read_3d(given, box); result != CUDA_SUCCESS) return result;
    auto result = share_box(*context, box);
    return result != CUDA_ERROR_NOT_SUPPORTED
               ? result
               : static_cast<CUresult>(unsupported("an instance's new copy of host memory, not pinned, beside events"));
}

CUresult set_copy(CUgraphExec exec, CUgraphNode handle, const CUDA_MEMCPY3D* given, CUcontext context) {
    if (!find_graph_exec(exec) || !keeps_ends(handle, given)) return CUDA_ERROR_INVALID_VALUE;
    const auto before = needs_of(exec);
    const auto needs = before ? before : std::make_shared<const GraphNeeds>();
    wire::CopyWork<> old;
    if (auto result = ask_work(handle, old); result != CUDA_SUCCESS) return result;
    CopiesUntilNow until_now;
    if (auto result = find_until_now(*needs, handle, old, until_now); result != CUDA_SUCCESS) return result;
    if (auto result = needs->meets_others ? share_beside_others(context, given) : CUDA_SUCCESS; result != CUDA_SUCCESS)
        return result;
    auto find_same = [&](const HostCopy& like) {
        auto& one = until_now[like.to_device];
        if (one.functions.empty()) return needs->copies.find_same(like);
        bool fits = one.copy->joined == 0 && mirrored_bytes(*one.copy) == mirrored_bytes(like) &&
                    !has_company(*needs, one.copy, false);
        return fits ? one.copy : nullptr;
    };
    PreparedCopy copy;
    auto* node = find_graph_node(handle);
    const auto graph = handle_of<CUgraph>(node ? node->graph : 0);
    if (auto result = prepare(graph, given, context, find_same, copy); result != CUDA_SUCCESS) return result;
    if (!copy.host.empty() && is_for_kernels(exec)) return refuse_mirrors();
    if (auto result = check_order(*needs, until_now, copy); result != CUDA_SUCCESS) return result;
    auto others = needs->copies;
    others.erase_if([&](auto& one) { return one == until_now[0].copy || one == until_now[1].copy; });
    if (auto result = refuse_late_sharing(others); result != CUDA_SUCCESS) return result;
    auto result = send_copy(
        copy, [&](const auto& work) { return set_exec_node(wire::SetExecCopyNode<>::op, exec, handle, work); });
    if (result != CUDA_SUCCESS) return result;
    set_needs(exec, with_copy(needs, handle, old, copy));
    for (auto& one : copy.host)
        if (auto& before = until_now[one->to_device]; result == CUDA_SUCCESS)
            result = tell_functions(exec, before.functions, before.copy, one);
    return result;
}

// The needs with `now` in the place of a copy.
std::shared_ptr<GraphNeeds> with_instead(const GraphNeeds& needs, const HostCopies::Copy& before,
                                         const HostCopies::Copy& now) {
    auto changed = std::make_shared<GraphNeeds>(needs);
    changed->copies = {};
    for (auto& copy : needs.copies) changed->copies.add(copy == before ? now : copy);
    return changed;
}

// An instance's copy does nothing, or does it again. Functions know mirrors: what another copy brings there, they see.
CUresult enable_copy(CUgraphExec exec, CUgraphNode node, bool enabled) {
    auto type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (auto result = cuGraphNodeGetType(node, &type); result != CUDA_SUCCESS) return result;
    if (type != CU_GRAPH_NODE_TYPE_MEMCPY) return CUDA_SUCCESS;
    // A node that the instance does not have may copy what one of its own does.
    unsigned before = 0;
    if (auto result = cuGraphNodeGetEnabled(exec, node, &before); result != CUDA_SUCCESS) return result;
    wire::CopyWork<> work;
    CopiesUntilNow until_now;
    if (auto result = ask_work(node, work); result != CUDA_SUCCESS) return result;
    if (auto result = find_until_now(*needs_of(exec), node, work, until_now); result != CUDA_SUCCESS) return result;
    for (auto& [copy, functions] : until_now) {
        if (!copy) continue;
        auto now = std::make_shared<HostCopy>(*copy);
        now->node = value_of(node);
        now->disabled = !enabled;
        const auto needs = needs_of(exec);
        set_needs(exec, with_instead(*needs, copy, now));
        if (has_company(*needs, copy, true)) continue;
        if (auto result = tell_functions(exec, functions, copy, now); result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

// A side of a node that the program has not described, such as one that was captured.
struct ShownSide {
    CUmemorytype type = CU_MEMORYTYPE_DEVICE;
    void* host = nullptr;
    CUdeviceptr device = 0;
    size_t pitch = 0;
};
ShownSide show_side(const HostCopies::Copy& copy, uint64_t address, uint64_t pitch) {
    if (!copy) return {CU_MEMORYTYPE_DEVICE, nullptr, address, pitch};
    return {CU_MEMORYTYPE_HOST, copy->host.address, 0, copy->host.pitch};
}

// Rows that lie behind each other in the mirror and on the device were captured as one.
void show_rows(const HostRows& host, wire::CopyWork<>& work) {
    if (work.rows != 1 || work.slices != 1 || work.row_bytes != host.row_bytes * host.rows) return;
    work.row_bytes = work.to_pitch = work.from_pitch = host.row_bytes;
    work.rows = host.rows;
}

CUresult show_copy(CUgraphNode handle, CUDA_MEMCPY3D* out) {
    auto* node = find_graph_node(handle);
    if (!node || !out) return CUDA_ERROR_INVALID_VALUE;
    if (node->copy) {
        *out = *node->copy;
        return CUDA_SUCCESS;
    }
    wire::CopyWork<> work;
    if (auto result = ask_work(handle, work); result != CUDA_SUCCESS) return result;
    auto needs = needs_of(handle_of<CUgraph>(node->graph));
    auto brought = needs ? copy_of(needs->copies, handle, work, true) : nullptr;
    auto fetched = needs ? copy_of(needs->copies, handle, work, false) : nullptr;
    for (auto& copy : {brought, fetched})
        if (copy) show_rows(copy->host, work);
    auto from = show_side(brought, work.from, work.from_pitch);
    auto to = show_side(fetched, work.to, work.to_pitch);
    *out = {};
    out->srcMemoryType = from.type, out->srcHost = from.host, out->srcDevice = from.device;
    out->srcPitch = from.pitch, out->srcHeight = work.from_rows;
    out->dstMemoryType = to.type, out->dstHost = to.host, out->dstDevice = to.device;
    out->dstPitch = to.pitch, out->dstHeight = work.to_rows;
    out->WidthInBytes = work.row_bytes, out->Height = work.rows, out->Depth = work.slices;
    return CUDA_SUCCESS;
}

}  // namespace

CUresult set_copy_node(CUgraphNode handle, const CUDA_MEMCPY3D* given, const FindSame& find_same) {
    auto* node = find_graph_node(handle);
    if (!node) return CUDA_ERROR_INVALID_VALUE;
    auto graph = handle_of<CUgraph>(node->graph);
    auto needs = needs_of(graph);
    PreparedCopy copy;
    auto result = prepare(graph, given, handle_of<CUcontext>(current_context_handle()),
                          find_same ? find_same : find_same_in(needs), copy);
    if (result != CUDA_SUCCESS) return result;
    wire::CopyWork<> old;
    if (result = ask_work(handle, old); result != CUDA_SUCCESS) return result;
    result = send_copy(copy, [&](const auto& work) { return set_node(wire::SetCopyNode<>::op, handle, work); });
    if (result != CUDA_SUCCESS) return result;
    remember(handle, *given);
    set_needs(graph, with_copy(needs, handle, old, copy));
    return result;
}

CUresult find_copies_of_nodes(CUgraph graph, const HostCopies& all, HostCopies& found) {
    size_t count = 0;
    auto result = cuGraphGetNodes(graph, nullptr, &count);
    std::vector<CUgraphNode> nodes(count);
    if (result == CUDA_SUCCESS && count != 0) result = cuGraphGetNodes(graph, nodes.data(), &count);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
        auto type = CU_GRAPH_NODE_TYPE_EMPTY;
        CUgraph inside = nullptr;
        wire::CopyWork<> work;
        result = cuGraphNodeGetType(nodes[i], &type);
        if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return CUDA_ERROR_NOT_SUPPORTED;
        if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
            result = cuGraphChildGraphNodeGetGraph(nodes[i], &inside);
            if (result == CUDA_SUCCESS) result = find_copies_of_nodes(inside, all, found);
        }
        if (type != CU_GRAPH_NODE_TYPE_MEMCPY || result != CUDA_SUCCESS) continue;
        result = ask_work(nodes[i], work);
        for (bool to_device : {false, true})
            if (auto copy = copy_of(all, nodes[i], work, to_device); copy && result == CUDA_SUCCESS) found.add(copy);
    }
    return result;
}

CUresult check_cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
    auto needs = find_graph_exec(exec) && find_graph_node(node) ? needs_of(exec) : nullptr;
    return needs && !needs->copies.empty() ? enable_copy(exec, node, enabled != 0) : CUDA_SUCCESS;
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                      const CUDA_MEMCPY3D* given, CUcontext context) {
    return guarded("cuGraphAddMemcpyNode", [&] { return add_copy({out, graph, dependencies, count}, given, context); });
}
CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* out) {
    return guarded("cuGraphMemcpyNodeGetParams", [&] { return show_copy(node, out); });
}
CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* given) {
    return guarded("cuGraphMemcpyNodeSetParams", [&] { return set_copy_node(node, given); });
}
CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* given,
                                                CUcontext context) {
    return guarded("cuGraphExecMemcpyNodeSetParams", [&] { return set_copy(exec, node, given, context); });
}

}  // extern "C"
