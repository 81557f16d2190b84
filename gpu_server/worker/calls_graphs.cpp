// Captures and graphs, beyond what the table says of them.
#include <bit>

#include "gpu_client/protocol/graph_records.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/graph_calls.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

// Our own calls come from any thread: in relaxed mode none of them disturbs a capture.
static Answer begin_capture(WorkerSession&, Call&, const wire::BeginCapture<Resolved>& wanted) {
    if (!driver().cuStreamBeginCapture_v2) return CUDA_ERROR_NOT_SUPPORTED;
    return driver().cuStreamBeginCapture_v2(wanted.named.handle, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static std::vector<CUgraphEdgeData> edges_of(const wire::EdgeList& data) {
    std::vector<CUgraphEdgeData> edges;
    for (auto& edge : data) edges.push_back(std::bit_cast<CUgraphEdgeData>(edge));
    return edges;
}

static Answer begin_capture_to_graph(WorkerSession&, Call&, const wire::BeginCaptureToGraph<Resolved>& wanted) {
    if (!driver().cuStreamBeginCaptureToGraph) return CUDA_ERROR_NOT_SUPPORTED;
    auto nodes = handles_of(wanted.dependencies);
    auto edges = edges_of(wanted.data);
    if (!edges.empty() && edges.size() != nodes.size()) return CUDA_ERROR_INVALID_VALUE;
    return driver().cuStreamBeginCaptureToGraph(wanted.stream.handle, wanted.graph.handle, nodes.data(),
                                                edges.empty() ? nullptr : edges.data(), nodes.size(),
                                                CU_STREAM_CAPTURE_MODE_RELAXED);
}

CUgraph graph_of_capture(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = nullptr;
    if (driver().cuStreamGetCaptureInfo_v2)
        (void)driver().cuStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, nullptr, nullptr);
    return graph;
}

static Answer end_capture(WorkerSession& session, Call& call, const wire::EndCapture<Resolved>& wanted) {
    if (!driver().cuStreamEndCapture) return CUDA_ERROR_NOT_SUPPORTED;
    auto& graphs = session.handles.graphs;
    auto known = graphs.known_number(graph_of_capture(wanted.stream.handle));
    CUgraph graph = nullptr;
    auto result = driver().cuStreamEndCapture(wanted.stream.handle, &graph);
    if (result == CUDA_SUCCESS && wanted.discard) {
        graphs.forget_graph(known);
        return driver().cuGraphDestroy(graph);
    }
    // The driver destroys the graph of a capture that fails, except one that was the program's before.
    if (result != CUDA_SUCCESS && known >= wire::first_number_of_worker) graphs.forget_graph(known);
    if (result != CUDA_SUCCESS) return result;
    if (known == 0 && !call.in.enter(wanted.graph, graph)) return CUDA_ERROR_INVALID_VALUE;
    call.reply(wire::EndCapture<>::Reply{known != 0 ? known : wanted.graph});
    return result;
}

static Answer capture_info(WorkerSession& session, Call& call, const wire::GetCaptureInfo<Resolved>& wanted) {
    auto& table = driver();
    if (!table.cuStreamGetCaptureInfo_v3 && (wanted.with_data || !table.cuStreamGetCaptureInfo_v2))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = nullptr;
    const CUgraphNode* nodes = nullptr;
    const CUgraphEdgeData* data = nullptr;
    size_t count = 0;
    auto result = table.cuStreamGetCaptureInfo_v3
                      ? table.cuStreamGetCaptureInfo_v3(wanted.stream.handle, &status, nullptr, &graph, &nodes,
                                                        wanted.with_data ? &data : nullptr, &count)
                      : table.cuStreamGetCaptureInfo_v2(wanted.stream.handle, &status, nullptr, &graph, &nodes, &count);
    if (result != CUDA_SUCCESS) return result;
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (count > wire::list_items_max) return CUDA_ERROR_NOT_SUPPORTED;
    auto& graphs = session.handles.graphs;
    wire::GetCaptureInfo<>::Reply reply;
    reply.graph = graphs.number_of(graph, {});
    for (size_t i = 0; i < count; ++i) reply.dependencies.push_back(graphs.number_of(nodes[i], {.graph = reply.graph}));
    for (size_t i = 0; data && i < count; ++i) reply.data.push_back(std::bit_cast<wire::EdgeData>(data[i]));
    call.reply(reply);
    return result;
}

static Answer instantiate(WorkerSession& session, Call& call, const wire::InstantiateGraph<Resolved>& wanted) {
    if (!driver().cuGraphInstantiateWithParams) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto room = call.in.room_for<CUgraphExec>(wanted.exec); room != CUDA_SUCCESS) return room;
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.flags = wanted.flags;
    // Such a graph is uploaded by its first launch (calls_graph_memory.cpp).
    if (session.handles.graphs.any_allocates && !memory_needed_by(wanted.graph.handle, session.devices).empty())
        params.flags &= ~cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
    params.hUploadStream = wanted.upload.handle;
    CUgraphExec made = nullptr;
    auto result = driver().cuGraphInstantiateWithParams(&made, wanted.graph.handle, &params);
    if (result == CUDA_SUCCESS && !call.in.enter(wanted.exec, made)) return CUDA_ERROR_INVALID_VALUE;
    call.reply(wire::InstantiateGraph<>::Reply{params.result_out, call.in.number_of(params.hErrNode_out)});
    return result;
}

// Only of instances that need it: a handle tells where the driver keeps its own.
static Answer name_for_kernels(WorkerSession&, Call& call, const wire::GraphForKernels<Resolved>& asked) {
    cuuint64_t flags = 0;
    if (!driver().cuGraphExecGetFlags) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto result = driver().cuGraphExecGetFlags(asked.exec.handle, &flags); result != CUDA_SUCCESS) return result;
    if (!(flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)) return CUDA_ERROR_NOT_SUPPORTED;
    call.reply(wire::GraphForKernels<>::Reply{reinterpret_cast<uint64_t>(asked.exec.handle)});
    return CUDA_SUCCESS;
}

void add_graph_calls(HandlerTable& table) {
    table.add<begin_capture>();
    table.add<begin_capture_to_graph>();
    table.add<end_capture>();
    table.add<capture_info>();
    table.add<instantiate>();
    table.add<name_for_kernels>();
}

}  // namespace tnr::worker
