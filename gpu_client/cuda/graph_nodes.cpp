// See graph_nodes.hpp; and the calls that add and change nodes of any kind.
#include "gpu_client/cuda/graph_nodes.hpp"

#include <algorithm>

#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/other_devices.hpp"
#include "gpu_client/cuda/shared_memory.hpp"

namespace tnr::cuda {

bool is_plain(const NodePlace& place) {
    constexpr size_t many = 64;  // each is compared with each
    auto* graph = find_graph(place.graph);
    if (!graph || graph->holder != 0 || place.count > many) return false;
    for (size_t i = 0; i < place.count; ++i) {
        auto* node = find_graph_node(place.dependencies[i]);
        if (!node || node->graph != graph->handle) return false;
        if (std::count(place.dependencies, place.dependencies + i, place.dependencies[i]) != 0) return false;
    }
    return true;
}

bool plain_cuGraphAddEmptyNode(CUgraphNode*, CUgraph graph, const CUgraphNode* dependencies, size_t count) {
    return is_plain({nullptr, graph, dependencies, count});
}
bool plain_cuGraphAddMemsetNode(CUgraphNode*, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                const CUDA_MEMSET_NODE_PARAMS* fill, CUcontext context) {
    const uint64_t unit = fill->elementSize;
    const bool sound = (unit == 1 || unit == 2 || unit == 4) && fill->dst % unit == 0 && fill->height == 1 &&
                       fill->width != 0 && fill->width <= UINT32_MAX && is_allocated(fill->dst, fill->width * unit);
    return sound && value_of(context) == current_context_handle() && !is_elsewhere(fill->dst) &&
           is_plain({nullptr, graph, dependencies, count});
}

// The worker's memory goes on where an allocation ends, so its driver would not mind. What cannot be a fill is left to it.
static CUresult check_filled(const CUDA_MEMSET_NODE_PARAMS& fill) {
    uint64_t row = 0, rows = 0, bytes = 0;
    bool finite = !__builtin_mul_overflow(uint64_t{fill.width}, uint64_t{fill.elementSize}, &row) && fill.height != 0 &&
                  !__builtin_mul_overflow(fill.height > 1 ? uint64_t{fill.pitch} : 0, fill.height - 1, &rows) &&
                  !__builtin_add_overflow(row, rows, &bytes);
    bool beyond = finite && device_of_address(fill.dst) && !is_allocated(fill.dst, bytes);
    return beyond ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
static CUresult check_filled_in(CUcontext handle, const CUDA_MEMSET_NODE_PARAMS& fill) {
    auto* context = find_context(handle);
    if (context && !open_to_device_of(*context, fill.dst)) return CUDA_ERROR_INVALID_VALUE;
    return check_filled(fill);
}
CUresult check_cuGraphAddMemsetNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                                    const CUDA_MEMSET_NODE_PARAMS* fill, CUcontext context) {
    return check_filled_in(context, *fill);
}
CUresult check_cuGraphMemsetNodeSetParams(CUgraphNode, const CUDA_MEMSET_NODE_PARAMS* fill) {
    return check_filled(*fill);
}
CUresult check_cuGraphExecMemsetNodeSetParams(CUgraphExec, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS* fill,
                                              CUcontext context) {
    return check_filled_in(context, *fill);
}

CUresult put_on_gpu(CUDA_MEMSET_NODE_PARAMS& fill) {
    const auto elsewhere = addresses_elsewhere();
    Context* context = nullptr;
    const bool may_be = elsewhere.first <= fill.dst && fill.dst < elsewhere.behind;
    if (!may_be || current_context(context) != CUDA_SUCCESS) return CUDA_SUCCESS;
    uint64_t device = 0;
    const auto result = find_elsewhere(*context, fill.dst, device);
    if (result == CUDA_SUCCESS) fill.dst = device;
    // What is no such memory, the driver there refuses.
    return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_SUCCESS;
}
void take_from_gpu(CUDA_MEMSET_NODE_PARAMS& fill) {
    SharedMemory shared;
    if (find_shared(fill.dst, shared) && fill.dst - shared.device < shared.bytes)
        fill.dst += shared.host - shared.device;
}

CUresult list_nodes(CUgraph graph, std::vector<CUgraphNode>& nodes) {
    size_t count = 0;
    if (auto result = cuGraphGetNodes(graph, nullptr, &count); result != CUDA_SUCCESS) return result;
    nodes.resize(count);
    return cuGraphGetNodes(graph, nodes.data(), &count);
}

CUresult for_each_copy_node(CUgraph graph, const std::function<CUresult(CUgraphNode)>& use) {
    std::vector<CUgraphNode> nodes;
    if (auto result = list_nodes(graph, nodes); result != CUDA_SUCCESS) return result;
    for (auto node : nodes) {
        auto type = CU_GRAPH_NODE_TYPE_EMPTY;
        CUgraph inside = nullptr;
        auto result = cuGraphNodeGetType(node, &type);
        if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_MEMCPY) result = use(node);
        if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_GRAPH)
            result = cuGraphChildGraphNodeGetGraph(node, &inside);
        if (result == CUDA_SUCCESS && inside) result = for_each_copy_node(inside, use);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

void put_place(TableCall& call, const Minted<CUgraphNode>& made, const NodePlace& place) {
    call.put(made.number());
    call.handle(place.graph);
    call.put_count(place.count);
    if (place.count > wire::list_items_max) return;  // the call is refused
    for (size_t i = 0; i < place.count; ++i) call.handle(place.dependencies[i]);
}

namespace {

CUDA_KERNEL_NODE_PARAMS kernel_of(const CUDA_KERNEL_NODE_PARAMS_v3& all) {
    return {all.func,      all.gridDimX,       all.gridDimY,     all.gridDimZ, all.blockDimX, all.blockDimY,
            all.blockDimZ, all.sharedMemBytes, all.kernelParams, all.extra,    all.kern,      all.ctx};
}
CUDA_BATCH_MEM_OP_NODE_PARAMS batch_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& all) {
    return {all.ctx, all.count, all.paramArray, all.flags};
}
CUDA_MEMSET_NODE_PARAMS memset_of(const CUDA_MEMSET_NODE_PARAMS_v2& all) {
    return {all.dst, all.pitch, all.value, all.elementSize, all.width, all.height};
}

// The bodies go with the node, and so does the list of them.
CUresult add_conditional(const NodePlace& place, CUDA_CONDITIONAL_NODE_PARAMS& given) {
    if (!place.out || (place.count != 0 && !place.dependencies)) return CUDA_ERROR_INVALID_VALUE;
    uint64_t context = 0;
    if (auto result = number_of(given.ctx, context); result != CUDA_SUCCESS) return result;
    TableCall call(wire::AddConditionalNode<>::op, wire::AddConditionalNode<>::way);
    Minted<CUgraphNode> made;
    put_place(call, made, place);
    call.put(wire::ConditionalWork<>{given.handle, static_cast<uint32_t>(given.type), given.size, context});
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::AddConditionalNode<>::Reply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    *place.out = made.keep(call);
    auto bodies = std::make_shared<std::vector<CUgraph>>(reply.bodies.size());
    NamedGraph where{.graph = value_of(place.graph), .node = value_of(*place.out)};
    for (size_t i = 0; i < bodies->size(); ++i) find_numbered(call.session(), reply.bodies[i], where, (*bodies)[i]);
    given.phGraph_out = bodies->data();
    if (auto* node = find_graph_node(*place.out)) node->bodies = std::move(bodies);
    return CUDA_SUCCESS;
}

CUresult move_child(const NodePlace& place, CUgraph child) {
    auto* graph = find_graph(child);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    // NVIDIA's driver takes a graph that would hold itself and has no instance of it; nobody here need walk through one.
    if (holds(child, place.graph)) return CUDA_ERROR_INVALID_VALUE;
    if (graph->holder != 0) return CUDA_ERROR_NOT_SUPPORTED;
    auto needs = needs_of(child);
    const wire::ChildWork<wire::Numbers> work{graph->number};
    if (auto result = add_node(wire::MoveChildGraph<>::op, place, work); result != CUDA_SUCCESS) return result;
    moved_into(child, *place.out);
    if (needs) add_needs(place.graph, *needs);
    return CUDA_SUCCESS;
}

CUresult set_child(CUgraphNode node, const CUDA_CHILD_GRAPH_NODE_PARAMS& given) {
    auto* changed = find_graph_node(node);
    auto* graph = find_graph(given.graph);
    bool may = changed && graph && given.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
    if (!may) return CUDA_ERROR_INVALID_VALUE;
    auto needs = needs_of(given.graph);
    const wire::ChildWork<wire::Numbers> work{graph->number};
    if (auto result = set_node(wire::SetChildGraph<>::op, node, work); result != CUDA_SUCCESS) return result;
    forget_graphs_in(node);
    needs_may_be_less(handle_of<CUgraph>(changed->graph));
    if (needs) add_needs(handle_of<CUgraph>(changed->graph), *needs);
    return CUDA_SUCCESS;
}

CUresult add_allocation(const NodePlace& place, CUDA_MEM_ALLOC_NODE_PARAMS_v2& given) {
    CUDA_MEM_ALLOC_NODE_PARAMS params{given.poolProps, given.accessDescs, given.accessDescCount, given.bytesize, 0};
    auto result = cuGraphAddMemAllocNode(place.out, place.graph, place.dependencies, place.count, &params);
    if (result == CUDA_SUCCESS) given.dptr = params.dptr;
    return result;
}

CUresult no_such_node(CUgraphNodeType type) {
    bool known = type > CU_GRAPH_NODE_TYPE_EMPTY && type <= CU_GRAPH_NODE_TYPE_CONDITIONAL;
    return known ? static_cast<CUresult>(unsupported("a graph node of this type")) : CUDA_ERROR_INVALID_VALUE;
}

CUresult add_any(const NodePlace& place, CUgraphNodeParams& node) {
    auto [out, graph, after, count] = place;
    switch (node.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: {
            auto kernel = kernel_of(node.kernel);
            return cuGraphAddKernelNode_v2(out, graph, after, count, &kernel);
        }
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return cuGraphAddMemcpyNode(out, graph, after, count, &node.memcpy.copyParams, node.memcpy.copyCtx);
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            auto fill = memset_of(node.memset);
            return cuGraphAddMemsetNode(out, graph, after, count, &fill, node.memset.ctx);
        }
        case CU_GRAPH_NODE_TYPE_HOST: {
            CUDA_HOST_NODE_PARAMS host{node.host.fn, node.host.userData};
            return cuGraphAddHostNode(out, graph, after, count, &host);
        }
        case CU_GRAPH_NODE_TYPE_GRAPH:
            if (node.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) return move_child(place, node.graph.graph);
            return cuGraphAddChildGraphNode(out, graph, after, count, node.graph.graph);
        case CU_GRAPH_NODE_TYPE_EMPTY:
            return cuGraphAddEmptyNode(out, graph, after, count);
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return cuGraphAddEventWaitNode(out, graph, after, count, node.eventWait.event);
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return cuGraphAddEventRecordNode(out, graph, after, count, node.eventRecord.event);
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
            return add_allocation(place, node.alloc);
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            return cuGraphAddMemFreeNode(out, graph, after, count, node.free.dptr);
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            return add_conditional(place, node.conditional);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
            auto batch = batch_of(node.memOp);
            return cuGraphAddBatchMemOpNode(out, graph, after, count, &batch);
        }
        default:
            return no_such_node(node.type);
    }
}

bool is_plain_edge(const CUgraphEdgeData& edge) {
    return edge.from_port == 0 && edge.to_port == 0 && edge.type == 0;
}

// Edges with data are added behind the node, which goes again if they cannot be.
CUresult add_with_edges(const NodePlace& place, const CUgraphEdgeData* data, CUgraphNodeParams& node) {
    if (!place.out || (place.count != 0 && !place.dependencies)) return CUDA_ERROR_INVALID_VALUE;
    if (place.count > wire::list_items_max) return CUDA_ERROR_INVALID_VALUE;
    if (!data || std::all_of(data, data + place.count, is_plain_edge)) return add_any(place, node);
    CUgraphNode made = nullptr;
    if (auto result = add_any({&made, place.graph, nullptr, 0}, node); result != CUDA_SUCCESS) return result;
    std::vector<CUgraphNode> to(place.count, made);
    auto result = cuGraphAddDependencies_v2(place.graph, place.dependencies, to.data(), data, place.count);
    if (result == CUDA_SUCCESS)
        *place.out = made;
    else
        (void)cuGraphDestroyNode(made);
    return result;
}

CUresult set_any(CUgraphNode handle, const CUgraphNodeParams& node) {
    switch (node.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: {
            auto kernel = kernel_of(node.kernel);
            return cuGraphKernelNodeSetParams_v2(handle, &kernel);
        }
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return cuGraphMemcpyNodeSetParams(handle, &node.memcpy.copyParams);
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            auto fill = memset_of(node.memset);
            return cuGraphMemsetNodeSetParams(handle, &fill);
        }
        case CU_GRAPH_NODE_TYPE_HOST: {
            CUDA_HOST_NODE_PARAMS host{node.host.fn, node.host.userData};
            return cuGraphHostNodeSetParams(handle, &host);
        }
        case CU_GRAPH_NODE_TYPE_GRAPH:
            return set_child(handle, node.graph);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
            auto batch = batch_of(node.memOp);
            return cuGraphBatchMemOpNodeSetParams(handle, &batch);
        }
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return cuGraphEventWaitNodeSetEvent(handle, node.eventWait.event);
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return cuGraphEventRecordNodeSetEvent(handle, node.eventRecord.event);
        default:
            return no_such_node(node.type);
    }
}

CUresult set_any(CUgraphExec exec, CUgraphNode handle, const CUgraphNodeParams& node) {
    switch (node.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: {
            auto kernel = kernel_of(node.kernel);
            return cuGraphExecKernelNodeSetParams_v2(exec, handle, &kernel);
        }
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return cuGraphExecMemcpyNodeSetParams(exec, handle, &node.memcpy.copyParams, node.memcpy.copyCtx);
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            auto fill = memset_of(node.memset);
            return cuGraphExecMemsetNodeSetParams(exec, handle, &fill, node.memset.ctx);
        }
        case CU_GRAPH_NODE_TYPE_HOST: {
            CUDA_HOST_NODE_PARAMS host{node.host.fn, node.host.userData};
            return cuGraphExecHostNodeSetParams(exec, handle, &host);
        }
        case CU_GRAPH_NODE_TYPE_GRAPH:
            return cuGraphExecChildGraphNodeSetParams(exec, handle, node.graph.graph);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
            auto batch = batch_of(node.memOp);
            return cuGraphExecBatchMemOpNodeSetParams(exec, handle, &batch);
        }
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return cuGraphExecEventWaitNodeSetEvent(exec, handle, node.eventWait.event);
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return cuGraphExecEventRecordNodeSetEvent(exec, handle, node.eventRecord.event);
        default:
            return no_such_node(node.type);
    }
}

}  // namespace

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                   const CUgraphEdgeData* data, size_t count, CUgraphNodeParams* node) {
    return guarded("cuGraphAddNode", [&]() -> CUresult {
        return node ? add_with_edges({out, graph, dependencies, count}, data, *node) : CUDA_ERROR_INVALID_VALUE;
    });
}
CUresult CUDAAPI cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                CUgraphNodeParams* node) {
    return cuGraphAddNode_v2(out, graph, dependencies, nullptr, count, node);
}
CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams* node) {
    return guarded("cuGraphNodeSetParams",
                   [&]() -> CUresult { return node ? set_any(handle, *node) : CUDA_ERROR_INVALID_VALUE; });
}
CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode handle, CUgraphNodeParams* node) {
    return guarded("cuGraphExecNodeSetParams",
                   [&]() -> CUresult { return node ? set_any(exec, handle, *node) : CUDA_ERROR_INVALID_VALUE; });
}

}  // extern "C"
