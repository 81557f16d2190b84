// cuStreamBeginCapture and what belongs to it.
#include <utility>

#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/per_thread.hpp"

using namespace tnr::emulated;

namespace {

// A stream under the lock of graphs.
template <class Call>
CUresult on_captured_stream(CUstream handle, Call&& call) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        tnr::LockGuard lock(graph_mutex());
        return call(stream);
    });
}

bool is_mode(CUstreamCaptureMode mode) {
    return mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
           mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

CUresult begin(CUstream handle, CUstreamCaptureMode mode) {
    return on_captured_stream(handle, [&](Stream& stream) -> CUresult {
        if (!is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
        return begin_capture(stream, nullptr, {}, mode);
    });
}

CUresult begin_to_graph(CUstream handle, CUgraph graph_handle, const CUgraphNode* dependencies, const EdgeData* data,
                        size_t count, CUstreamCaptureMode mode) {
    return on_captured_stream(handle, [&](Stream& stream) -> CUresult {
        auto graph = find<Graph>(graph_handle);
        if (!graph || !is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
        Edges edges;
        if (CUresult error = read_edges(*graph, dependencies, data, count, edges)) return error;
        return begin_capture(stream, graph, std::move(edges), mode);
    });
}

CUresult end(CUstream handle, CUgraph* graph) {
    return on_captured_stream(handle, [&](Stream& stream) { return end_capture(stream, graph); });
}

CUstreamCaptureStatus status_of(const std::shared_ptr<Capture>& capture) {
    if (!capture) return CU_STREAM_CAPTURE_STATUS_NONE;
    return capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult is_capturing_now(CUstream handle, CUstreamCaptureStatus* status) {
    return on_captured_stream(handle, [&](Stream& stream) -> CUresult {
        if (!status) return CUDA_ERROR_INVALID_VALUE;
        std::shared_ptr<Capture> capture;
        if (CUresult error = query_capture(stream, capture)) return error;
        *status = status_of(capture);
        return CUDA_SUCCESS;
    });
}

struct CaptureInfo {
    CUstreamCaptureStatus* status = nullptr;
    cuuint64_t* id = nullptr;
    CUgraph* graph = nullptr;
    const CUgraphNode** nodes = nullptr;
    const CUgraphEdgeData** data = nullptr;
    size_t* count = nullptr;
};

CUresult capture_info(CUstream handle, const CaptureInfo& out) {
    return on_captured_stream(handle, [&](Stream& stream) -> CUresult {
        if (!out.status || (out.data && !out.nodes)) return CUDA_ERROR_INVALID_VALUE;
        std::shared_ptr<Capture> capture;
        if (CUresult error = query_capture(stream, capture)) return error;
        *out.status = status_of(capture);
        if (*out.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
        Capture::Branch& branch = capture->branches[&stream];
        branch.shown_nodes.clear();
        branch.shown_data.clear();
        for (const Edge& edge : branch.frontier) {
            if (out.nodes && !out.data && !is_plain(edge.data)) return CUDA_ERROR_LOSSY_QUERY;
            branch.shown_nodes.push_back(edge.node->as<CUgraphNode>());
            branch.shown_data.push_back(edge.data);
        }
        if (out.id) *out.id = capture->id;
        if (out.graph) *out.graph = capture->graph->as<CUgraph>();
        if (out.nodes) *out.nodes = branch.shown_nodes.data();
        if (out.data) *out.data = branch.shown_data.data();
        if (out.count) *out.count = branch.shown_nodes.size();
        return CUDA_SUCCESS;
    });
}

CUresult update_dependencies(CUstream handle, const CUgraphNode* nodes, const EdgeData* data, size_t count,
                             unsigned flags) {
    return on_captured_stream(handle, [&](Stream& stream) -> CUresult {
        if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
        std::shared_ptr<Capture> capture;
        if (CUresult error = query_capture(stream, capture)) return error;
        if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
        if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        Edges edges;
        if (CUresult error = read_edges(*capture->graph, nodes, data, count, edges)) return error;
        Edges& frontier = capture->branches[&stream].frontier;
        if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) add_missing(capture->replaced, std::exchange(frontier, {}));
        add_missing(frontier, edges);
        return CUDA_SUCCESS;
    });
}

}  // namespace

TNR_LATER(cuStreamBeginCapture, (CUstream stream), begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL))
TNR_LATER(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), begin(stream, mode))
TNR_LATER(cuStreamBeginCaptureToGraph,
          (CUstream stream, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* data, size_t count,
           CUstreamCaptureMode mode),
          begin_to_graph(stream, graph, dependencies, data, count, mode))
TNR_LATER(cuStreamEndCapture, (CUstream stream, CUgraph* graph), end(stream, graph))
TNR_LATER(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus* status), is_capturing_now(stream, status))

TNR_LATER(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id),
          capture_info(stream, {status, id}))
TNR_LATER(cuStreamGetCaptureInfo_v2,
          (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
           size_t* count),
          capture_info(stream, {status, id, graph, nodes, nullptr, count}))
TNR_LATER(cuStreamGetCaptureInfo_v3,
          (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
           const CUgraphEdgeData** data, size_t* count),
          capture_info(stream, {status, id, graph, nodes, data, count}))
TNR_LATER(cuStreamUpdateCaptureDependencies, (CUstream stream, CUgraphNode* nodes, size_t count, unsigned flags),
          update_dependencies(stream, nodes, nullptr, count, flags))
TNR_LATER(cuStreamUpdateCaptureDependencies_v2,
          (CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData* data, size_t count, unsigned flags),
          update_dependencies(stream, nodes, data, count, flags))

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    return initialized([&]() -> CUresult {
        if (!mode || !is_mode(*mode)) return CUDA_ERROR_INVALID_VALUE;
        exchange_capture_mode(*mode);
        return CUDA_SUCCESS;
    });
}
