// The calls that begin, end and ask about captures: captures.hpp keeps what is going on.
#include <bit>

#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/page_transfers.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/cuda/table_call.hpp"
#include "gpu_client/protocol/graph_records.hpp"

namespace tnr::cuda {

static bool is_mode(CUstreamCaptureMode mode) {
    return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

static CUresult resolve_for_begin(CUstream handle, CUstreamCaptureMode mode, StreamRef& stream) {
    if (!is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = resolve_stream(handle, stream); result != CUDA_SUCCESS) return result;
    if (!stream.object) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return stream.object->capture == 0 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

static CUresult begin_capture(CUstream handle, CUstreamCaptureMode mode) {
    StreamRef stream;
    if (auto result = resolve_for_begin(handle, mode, stream); result != CUDA_SUCCESS) return result;
    watch_before_capture(stream);
    RemoteCall call(wire::BeginCapture<>{stream.number});
    call.use(stream);
    auto result = call.send();
    if (result == CUDA_SUCCESS) capture_begins(stream, mode, nullptr);
    return result;
}

struct Dependencies {
    const CUgraphNode* nodes;
    const CUgraphEdgeData* data;
    size_t count;
};

static CUresult number_all(const Dependencies& given, wire::NodeList<uint64_t>& nodes, wire::EdgeList& data) {
    if ((given.count != 0 && !given.nodes) || given.count > wire::list_items_max) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < given.count; ++i) {
        uint64_t number = 0;
        if (auto result = number_of(given.nodes[i], number); result != CUDA_SUCCESS) return result;
        nodes.push_back(number);
        if (given.data) data.push_back(std::bit_cast<wire::EdgeData>(given.data[i]));
    }
    return CUDA_SUCCESS;
}

static CUresult begin_capture_to_graph(CUstream handle, CUgraph graph, const Dependencies& after,
                                       CUstreamCaptureMode mode) {
    StreamRef stream;
    if (auto result = resolve_for_begin(handle, mode, stream); result != CUDA_SUCCESS) return result;
    wire::BeginCaptureToGraph<> record{stream.number, 0, {}, {}};
    if (auto result = number_of(graph, record.graph); result != CUDA_SUCCESS) return result;
    if (auto result = number_all(after, record.dependencies, record.data); result != CUDA_SUCCESS) return result;
    watch_before_capture(stream);
    RemoteCall call(record);
    call.use(stream);
    auto result = call.send();
    if (result == CUDA_SUCCESS) capture_begins(stream, mode, graph);
    return result;
}

static CUresult end_capture(CUstream handle, CUgraph* out) {
    StreamRef stream;
    if (auto result = resolve_stream(handle, stream); result != CUDA_SUCCESS) return result;
    EndedCapture ended;
    if (auto result = capture_ends(stream, ended); result != CUDA_SUCCESS) return result;
    const bool discard = ended.owns_graph && (ended.spoilt || ended.wrong_thread || !out);
    CUgraph unwanted = nullptr;  // or the program has it already
    if (!out) out = &unwanted;
    *out = nullptr;
    Minted<CUgraph> made;
    TableCall call(wire::EndCapture<>::op, wire::EndCapture<>::way);
    call.put(wire::EndCapture<>{stream.number, made.number(), static_cast<uint8_t>(discard)});
    call.use(stream);
    auto result = call.send();
    wire::EndCapture<>::Reply reply;
    // Of what has spoilt it only we know; the worker's driver may have found other faults at the end.
    if (ended.spoilt && (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED))
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (ended.wrong_thread) result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (result == CUDA_SUCCESS && !discard) result = call.take(reply);
    if (result != CUDA_SUCCESS || discard) {
        if (ended.graph && ended.owns_graph) forget(ended.graph);
        return result;
    }
    if (reply.graph == made.number())
        *out = made.keep(call);
    else
        find_numbered(call.session(), reply.graph, {}, *out);
    add_needs(*out, ended.needs);
    return CUDA_SUCCESS;
}

// What a program wants to know of a stream; null: not that.
struct CaptureQuestion {
    CUstreamCaptureStatus* status = nullptr;
    cuuint64_t* id = nullptr;
    CUgraph* graph = nullptr;
    const CUgraphNode** nodes = nullptr;
    const CUgraphEdgeData** data = nullptr;
    size_t* count = nullptr;

    bool about_graph() const { return graph || nodes || data || count; }
    void answer_none() const {
        if (id) *id = 0;
        if (graph) *graph = nullptr;
        if (nodes) *nodes = nullptr;
        if (data) *data = nullptr;
        if (count) *count = 0;
    }
};

static CUresult ask_about_graph(const CaptureQuestion& question, const StreamRef& stream) {
    RemoteCall call(wire::GetCaptureInfo<>{stream.number, static_cast<uint8_t>(question.data != nullptr)});
    call.in_context(contexts().find(stream.object->context));
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::GetCaptureInfo<>::Reply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    CUgraph graph = nullptr;
    find_numbered(call.session(), reply.graph, {}, graph);
    ShownDependencies shown;
    for (auto number : reply.dependencies) {
        CUgraphNode node = nullptr;
        find_numbered(call.session(), number, {.graph = value_of(graph)}, node);
        shown.nodes.push_back(node);
    }
    for (auto& edge : reply.data) shown.data.push_back(std::bit_cast<CUgraphEdgeData>(edge));
    auto* kept = show_dependencies(stream, graph, std::move(shown));
    if (!kept) return CUDA_ERROR_ILLEGAL_STATE;  // another thread has ended it
    if (question.graph) *question.graph = graph;
    if (question.nodes) *question.nodes = kept->nodes.data();
    if (question.data) *question.data = kept->data.data();
    if (question.count) *question.count = kept->nodes.size();
    return CUDA_SUCCESS;
}

static CUresult capture_info(CUstream handle, const CaptureQuestion& question) {
    if (!question.status) return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    if (auto result = resolve_stream(handle, stream); result != CUDA_SUCCESS) return result;
    question.answer_none();
    uint64_t id = 0;
    if (auto result = find_capture(stream, *question.status, id); result != CUDA_SUCCESS) return result;
    if (*question.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (question.id) *question.id = id;
    return question.about_graph() ? ask_about_graph(question, stream) : CUDA_SUCCESS;
}

CUresult check_cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode*, const CUgraphEdgeData*, size_t,
                                                    unsigned) {
    StreamRef stream;
    if (auto result = resolve_stream(handle, stream); result != CUDA_SUCCESS) return result;
    return is_captured(stream) ? refuse_work(stream) : CUDA_ERROR_ILLEGAL_STATE;
}

CUresult check_cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, size_t count, unsigned flags) {
    return check_cuStreamUpdateCaptureDependencies_v2(stream, nodes, nullptr, count, flags);
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

// The first form, of CUDA 10.0, knew no modes.
CUresult CUDAAPI cuStreamBeginCapture(CUstream stream) {
    return guarded("cuStreamBeginCapture", [&] { return begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL); });
}
CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    return guarded("cuStreamBeginCapture", [&] { return begin_capture(stream, mode); });
}
CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                             const CUgraphEdgeData* data, size_t count, CUstreamCaptureMode mode) {
    return guarded("cuStreamBeginCaptureToGraph", [&] {
        return begin_capture_to_graph(stream, graph, {nodes, data, count}, mode);
    });
}
CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    return guarded("cuStreamEndCapture", [&] { return end_capture(stream, graph); });
}
CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    return guarded("cuStreamIsCapturing", [&] { return capture_info(stream, {.status = status}); });
}
CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
    return guarded("cuStreamGetCaptureInfo", [&] { return capture_info(stream, {.status = status, .id = id}); });
}
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                           CUgraph* graph, const CUgraphNode** nodes, size_t* count) {
    return guarded("cuStreamGetCaptureInfo", [&] {
        return capture_info(stream, {status, id, graph, nodes, nullptr, count});
    });
}
CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                           CUgraph* graph, const CUgraphNode** nodes, const CUgraphEdgeData** data,
                                           size_t* count) {
    return guarded("cuStreamGetCaptureInfo", [&] {
        return capture_info(stream, {status, id, graph, nodes, data, count});
    });
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    return guarded("cuThreadExchangeStreamCaptureMode", [&]() -> CUresult {
        if (!mode || !is_mode(*mode)) return CUDA_ERROR_INVALID_VALUE;
        std::swap(*mode, capture_mode_of_thread());
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
