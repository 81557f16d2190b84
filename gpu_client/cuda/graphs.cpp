// Graphs: what cuda.calls cannot say of their calls.
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/graph_objects.hpp"
#include "gpu_client/cuda/graph_order.hpp"
#include "gpu_client/cuda/graphs_for_kernels.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/mirrors.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/cuda/table_call.hpp"
#include "gpu_client/protocol/graph_records.hpp"

namespace tnr::cuda {

CUresult check_cuGraphCreate(CUgraph*, unsigned flags) {
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// A child graph ends with its node, and what is being captured into cannot.
CUresult check_cuGraphDestroy(CUgraph handle) {
    auto* graph = find_graph(handle);
    if (!graph || graph->holder != 0) return CUDA_ERROR_INVALID_VALUE;
    return is_captured_into(handle) ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
}

CUresult check_cuGraphDestroyNode(CUgraphNode handle) {
    if (auto* node = find_graph_node(handle)) needs_may_be_less(handle_of<CUgraph>(node->graph));
    return CUDA_SUCCESS;
}

// Not captured: it waits for nothing that a graph could hold.
CUresult check_cuGraphUpload(CUgraphExec, CUstream in) {
    StreamRef stream;
    auto result = resolve_stream(in, stream);
    if (result == CUDA_SUCCESS) result = refuse_work(stream);
    return result == CUDA_SUCCESS ? refuse_in_capture(stream) : result;
}

// What launches of the child need, those of the graph need.
CUresult check_cuGraphAddChildGraphNode(CUgraphNode*, CUgraph graph, const CUgraphNode*, size_t, CUgraph child) {
    if (auto result = prepare_for_body(graph, child); result != CUDA_SUCCESS) return result;
    if (auto needs = needs_of(child)) add_needs(graph, *needs);
    return CUDA_SUCCESS;
}

static CUresult check_update(CUgraphExec exec, CUgraph graph) {
    auto result = is_for_kernels(exec) ? prepare_for_kernels(graph) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? order_needs(graph) : result;
}

// What a call answers that is refused here.
CUresult check_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
    *info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
    return check_update(exec, graph);
}
CUresult check_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* blamed,
                                 CUgraphExecUpdateResult* update) {
    *blamed = nullptr;
    *update = CU_GRAPH_EXEC_UPDATE_ERROR;
    return check_update(exec, graph);
}

// An instance that was updated copies from and to where the graph says, and no longer as it did.
static void note_update(CUgraphExec handle, CUgraph graph) {
    set_needs(handle, needs_of(graph));
    if (auto* exec = find_graph_exec(handle)) exec->graph = 0;
}
void note_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo*) {
    note_update(exec, graph);
}
void note_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode*, CUgraphExecUpdateResult*) {
    note_update(exec, graph);
}
CUresult check_cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode, CUgraph child) {
    if (auto needs = needs_of(exec))
        if (auto result = refuse_late_sharing(needs->copies); result != CUDA_SUCCESS) return result;
    return order_needs(child);
}

// What the node had until now copies nothing any more.
static void drop_inside(CUgraphExec exec, CUgraphNode node, GraphNeeds& needs) {
    HostCopies gone;
    CUgraph inside = nullptr;
    auto& known = find_graph_exec(exec)->needs_inside;
    if (auto before = known.find(value_of(node)); before != known.end()) {
        if (before->second) gone = before->second->copies;
    } else if (needs.functions.empty() && cuGraphChildGraphNodeGetGraph(node, &inside) == CUDA_SUCCESS) {
        (void)find_copies_inside(inside, needs, gone);
    }
    for (auto& copy : gone) {
        bool one = false;  // the same graph may be inside another node, too
        needs.copies.erase_if([&](auto& other) {
            bool is = !one && !other->to_device && !copy->to_device && other->mirror == copy->mirror;
            one |= is;
            return is;
        });
    }
}

void note_cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
    auto needs = needs_of(exec), more = needs_of(child);
    auto all = needs ? std::make_shared<GraphNeeds>(*needs) : std::make_shared<GraphNeeds>();
    if (needs && !needs->copies.empty()) drop_inside(exec, node, *all);
    if (more) all->add(*more);
    find_graph_exec(exec)->needs_inside[value_of(node)] = std::move(more);
    if (needs || !all->empty()) set_needs(exec, all);
}

// What a graph inside another needs is known with the needs of the outer one.
static CUresult order_for_instance(CUgraph handle, std::shared_ptr<const GraphNeeds>& inside) {
    auto* graph = find_graph(handle);
    return graph && graph->holder != 0 ? order_needs_inside(handle, inside) : order_needs(handle);
}

CUresult check_cuGraphInstantiateWithFlags(CUgraphExec*, CUgraph graph, unsigned long long flags) {
    if (auto result = refuse_unsafe(); result != CUDA_SUCCESS) return result;
    bool for_kernels = flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    auto result = for_kernels ? prepare_for_kernels(graph) : CUDA_SUCCESS;
    std::shared_ptr<const GraphNeeds> inside;  // once more when it is made
    return result == CUDA_SUCCESS ? order_for_instance(graph, inside) : result;
}
static void keep_needs_inside(CUgraphExec exec, CUgraph graph) {
    std::shared_ptr<const GraphNeeds> inside;
    auto* object = find_graph(graph);
    if (object && object->holder != 0 && needs_of(exec) && order_needs_inside(graph, inside) == CUDA_SUCCESS)
        set_needs(exec, inside);
}
void note_cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
    keep_needs_inside(*exec, graph);
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) name_for_kernels(*exec);
}

static CUresult note_recorded_by_graphs(CUevent handle) {
    auto* event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_VALUE;
    event->in_graphs = true;
    return CUDA_SUCCESS;
}

CUresult check_cuGraphAddEventRecordNode(CUgraphNode*, CUgraph graph, const CUgraphNode*, size_t, CUevent event) {
    add_needs(graph, recording(value_of(event)));
    return note_recorded_by_graphs(event);
}
CUresult check_cuGraphAddEventWaitNode(CUgraphNode*, CUgraph graph, const CUgraphNode*, size_t, CUevent) {
    add_needs(graph, meeting_others());
    return CUDA_SUCCESS;
}
CUresult check_cuGraphEventRecordNodeSetEvent(CUgraphNode handle, CUevent event) {
    if (auto* node = find_graph_node(handle)) add_needs(handle_of<CUgraph>(node->graph), recording(value_of(event)));
    return note_recorded_by_graphs(event);
}
CUresult check_cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode, CUevent event) {
    if (auto needs = needs_of(exec); needs && needs->holds_events) {
        auto all = std::make_shared<GraphNeeds>(*needs);
        all->recorded.push_back(value_of(event));
        set_needs(exec, all);
    }
    return note_recorded_by_graphs(event);
}

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

// The forms of CUDA 10 and 11 answer with a node that is to blame and with words; those of today have no such answers.
static CUresult instantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* blamed, char* log, size_t log_bytes) {
    if (blamed) *blamed = nullptr;
    if (log && log_bytes != 0) *log = 0;
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}
CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* blamed, char* log, size_t bytes) {
    return instantiate(exec, graph, blamed, log, bytes);
}
CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* blamed, char* log, size_t bytes) {
    return instantiate(exec, graph, blamed, log, bytes);
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* wanted) {
    return guarded("cuGraphInstantiateWithParams", [&]() -> CUresult {
        if (!out || !wanted) return CUDA_ERROR_INVALID_VALUE;
        TableCall call(wire::InstantiateGraph<>::op, wire::InstantiateGraph<>::way);
        Minted<CUgraphExec> made;
        call.put(made.number());
        call.handle(graph);
        call.put(wanted->flags);
        // Without the flag, what the program left there is no stream.
        call.handle((wanted->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0 ? wanted->hUploadStream : nullptr);
        wanted->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
        wanted->hErrNode_out = nullptr;
        if (auto result = refuse_unsafe(); result != CUDA_SUCCESS) return result;
        bool for_kernels = wanted->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
        if (auto result = for_kernels ? prepare_for_kernels(graph) : CUDA_SUCCESS; result != CUDA_SUCCESS) {
            if (result == CUDA_ERROR_NOT_SUPPORTED)
                wanted->result_out = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
            return result;
        }
        std::shared_ptr<const GraphNeeds> inside;
        if (auto result = order_for_instance(graph, inside); result != CUDA_SUCCESS) return result;
        auto result = call.send();
        wire::InstantiateGraph<>::Reply reply;
        if (call.read(reply)) {
            wanted->result_out = static_cast<CUgraphInstantiateResult>(reply.result);
            if (reply.blamed != 0) find_numbered(call.session(), reply.blamed, call.named(), wanted->hErrNode_out);
        }
        if (result != CUDA_SUCCESS) return result;
        *out = made.keep(call);
        keep_needs_inside(*out, graph);
        if (for_kernels) name_for_kernels(*out);
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
