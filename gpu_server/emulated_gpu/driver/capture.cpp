#include "gpu_server/emulated_gpu/driver/capture.hpp"

#include <algorithm>
#include <atomic>
#include <set>
#include <unordered_set>

namespace tnr::emulated {
namespace {

// Those that have begun and not ended, spoilt ones too.
std::set<Capture*>& captures() {
    static std::set<Capture*>& all = *new std::set<Capture*>;
    return all;
}

// How many there are, for calls that want to know without the lock that there is none. A call that runs at the same time
// as the beginning of a capture may come before it or after it.
std::atomic<size_t> going_on{0};

// What this thread may do while it or others capture.
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

uint64_t next_capture_id() {
    static std::atomic<uint64_t> next{1};
    return next++;
}

// The legacy stream waits for blocking streams, so while one of them is captured it would have to be so, too.
bool spoils_legacy(const Stream& legacy, const Capture& capture) {
    return std::any_of(capture.branches.begin(), capture.branches.end(), [&](const auto& branch) {
        return &branch.first->context == &legacy.context && branch.first->blocking();
    });
}

// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT for the legacy stream of a context in which a blocking stream is captured.
CUresult check_legacy(Stream& stream, bool spoil) {
    if (stream.role != Stream::Role::legacy) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (Capture* capture : captures()) {
        if (!spoils_legacy(stream, *capture)) continue;
        if (spoil) capture->invalidated = true;
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return result;
}

CUresult spoil(Capture& capture, CUresult error) {
    capture.invalidated = true;
    return error;
}

CUresult unsupported(Stream& stream) {
    if (CUresult error = check_legacy(stream, true)) return error;
    if (!stream.capture) return CUDA_SUCCESS;
    return spoil(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

// Into the stream's graph. `make(graph, work)` makes the work once it is known to be wanted; it may fail.
template <class Make>
CUresult capture_work(Stream& stream, bool& captured, Make&& make) {
    if (!going_on) return CUDA_SUCCESS;
    LockGuard lock(graph_mutex());
    if (CUresult error = check_legacy(stream, true)) return error;
    if (!stream.capture) return CUDA_SUCCESS;
    if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    Work work;
    if (CUresult error = make(*stream.capture->graph, work)) return error;
    captured = true;
    stream.capture->add(stream, std::move(work));
    return CUDA_SUCCESS;
}

// A kernel that may overlap with the one before it depends on that one's trigger only.
void relax_edges(const NodeWork& work, Edges& edges) {
    auto* kernel = std::get_if<KernelWork>(&work);
    if (!kernel) return;
    for (const CUlaunchAttribute& attribute : kernel->launch.attributes) {
        if (attribute.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) continue;
        if (!attribute.value.programmaticStreamSerializationAllowed) continue;
        for (Edge& edge : edges)
            if (edge.node->work_as<KernelWork>() && is_plain(edge.data)) {
                edge.data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
                edge.data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
            }
    }
}

}  // namespace

Capture::Capture(Stream& from, std::shared_ptr<Graph> into, bool owns, CUstreamCaptureMode how)
    : id(next_capture_id()), origin(&from), graph(std::move(into)), owns_graph(owns), mode(how) {}

GraphNode& Capture::add(Stream& stream, Work work) {
    Edges& frontier = branches[&stream].frontier;
    relax_edges(*work, frontier);
    for (Edge& edge : frontier)  // programmatic edges are between kernels only
        if (!std::holds_alternative<KernelWork>(*work)) edge.data = {};
    GraphNode& node = graph->add(std::move(work), frontier);
    frontier = {{&node, {}}};
    return node;
}

bool Capture::joined() const {
    std::unordered_set<const GraphNode*> reached;
    std::vector<const GraphNode*> next;
    auto reach = [&](const Edges& edges) {
        for (const Edge& edge : edges)
            if (reached.insert(edge.node).second) next.push_back(edge.node);
    };
    auto own = branches.find(origin);
    if (own != branches.end()) reach(own->second.frontier);
    reach(replaced);
    while (!next.empty()) {
        const GraphNode* node = next.back();
        next.pop_back();
        reach(node->dependencies);
    }
    auto all_reached = [&](const Edges& edges) {
        return std::all_of(edges.begin(), edges.end(), [&](const Edge& edge) { return reached.contains(edge.node); });
    };
    return all_reached(abandoned) && std::all_of(branches.begin(), branches.end(), [&](const auto& branch) {
               return all_reached(branch.second.frontier);
           });
}

void Capture::release() {
    auto self = origin->capture;  // the streams may hold the last references to this
    captures().erase(this);
    going_on = captures().size();
    graph->count_capture(-1);
    for (auto& [stream, branch] : branches) stream->capture = nullptr;
    branches.clear();
}

CUresult capture(Stream& stream, const Operation& operation, bool& captured) {
    return capture_work(stream, captured, [&](Graph&, Work& work) {
        work = captured_work(stream, operation);
        return CUDA_SUCCESS;
    });
}

CUresult capture(Stream& stream, const Work& work, bool& captured) {
    return capture_work(stream, captured, [&](Graph&, Work& to_add) {
        to_add = work;
        return CUDA_SUCCESS;
    });
}

CUresult capture_allocation(Stream& stream, const Pool& pool, uint64_t size, CUdeviceptr& address, bool& captured) {
    return capture_work(stream, captured, [&](Graph& graph, Work& work) {
        CUDA_MEM_ALLOC_NODE_PARAMS_v2 given{};
        given.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        given.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        given.poolProps.location.id = pool.device.ordinal;
        given.bytesize = size;
        CUresult result = alloc_work(graph, given, work);
        if (result == CUDA_SUCCESS) address = given.dptr;
        return result;
    });
}

CUresult capture_free(Stream& stream, CUdeviceptr address, bool& captured) {
    return capture_work(stream, captured, [&](Graph& graph, Work& work) { return free_work(graph, address, work); });
}

CUresult capture_record(Stream& stream, Event& event, const EdgeData& data, bool& captured) {
    if (!going_on) return CUDA_SUCCESS;
    LockGuard lock(graph_mutex());
    if (CUresult error = check_legacy(stream, true)) return error;
    if (!stream.capture) return CUDA_SUCCESS;
    Capture& capture = *stream.capture;
    if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    captured = true;
    Edges edges = capture.branches[&stream].frontier;
    for (Edge& edge : edges)
        if (!is_plain(data) && edge.node->work_as<KernelWork>()) edge.data = data;
    LockGuard event_lock(event.mutex);
    event.was_captured = true;
    event.capture = stream.capture;
    event.captured.clear();
    for (const Edge& edge : edges) event.captured.push_back({edge.node, edge.data});
    return CUDA_SUCCESS;
}

CUresult capture_wait(Stream& stream, Event& event, bool& captured) {
    bool from_capture = false;
    {
        LockGuard event_lock(event.mutex);
        from_capture = event.was_captured;
    }
    if (!going_on && !from_capture) return CUDA_SUCCESS;
    LockGuard lock(graph_mutex());
    if (CUresult error = check_legacy(stream, true)) return error;
    std::shared_ptr<Capture> theirs;
    Edges edges;
    {
        LockGuard event_lock(event.mutex);
        theirs = event.capture.lock();
        for (const auto& [node, data] : event.captured) edges.push_back({node, data});
    }
    if (theirs && !captures().contains(theirs.get())) theirs = nullptr;  // it has ended
    if (!stream.capture) {
        if (!from_capture) return CUDA_SUCCESS;
        if (!theirs) return CUDA_ERROR_INVALID_VALUE;
        if (theirs->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        if (stream.role == Stream::Role::legacy) return spoil(*theirs, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        stream.capture = theirs;
        theirs->branches[&stream].frontier = std::move(edges);
        captured = true;
        return CUDA_SUCCESS;
    }
    Capture& mine = *stream.capture;
    if (mine.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!from_capture || !theirs) return spoil(mine, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    if (theirs != stream.capture) {
        theirs->invalidated = true;
        return spoil(mine, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    add_missing(mine.branches[&stream].frontier, edges);
    captured = true;
    return CUDA_SUCCESS;
}

bool is_capturing(Stream& stream) {
    if (!going_on) return false;
    LockGuard lock(graph_mutex());
    return stream.capture != nullptr;
}

CUresult refuse_while_capturing(Stream& stream) {
    if (!going_on) return CUDA_SUCCESS;
    LockGuard lock(graph_mutex());
    return unsupported(stream);
}

CUresult refuse_unsafe() {
    if (!going_on) return CUDA_SUCCESS;
    LockGuard lock(graph_mutex());
    return refuse_unsafe_locked();
}

CUresult refuse_unsafe_locked() {
    CUresult result = CUDA_SUCCESS;
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return result;
    for (Capture* capture : captures()) {
        bool mine = capture->thread == std::this_thread::get_id();
        bool forbids =
            mine ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                 : thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!forbids) continue;
        capture->invalidated = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult refuse_wait(Stream& stream) {
    if (!going_on) return CUDA_SUCCESS;
    LockGuard lock(graph_mutex());
    if (CUresult error = unsupported(stream)) return error;
    return refuse_unsafe_locked();
}

CUresult refuse_wait(Context& context) {
    if (!going_on) return CUDA_SUCCESS;
    LockGuard lock(graph_mutex());
    CUresult result = CUDA_SUCCESS;
    for (Capture* capture : captures())
        if (std::any_of(capture->branches.begin(), capture->branches.end(),
                        [&](const auto& branch) { return &branch.first->context == &context; }))
            result = spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return result ? result : refuse_unsafe_locked();
}

CUresult refuse_wait(Event& event) {
    std::shared_ptr<Capture> capture;
    bool was_captured = false;
    {
        LockGuard event_lock(event.mutex);
        was_captured = event.was_captured;
        capture = event.capture.lock();
    }
    if (!going_on && !was_captured) return CUDA_SUCCESS;
    LockGuard lock(graph_mutex());
    if (!was_captured) return refuse_unsafe_locked();
    if (!capture || !captures().contains(capture.get())) return CUDA_ERROR_INVALID_VALUE;  // it has ended
    return spoil(*capture, CUDA_ERROR_CAPTURED_EVENT);
}

void abandon_capture(Stream& stream) {
    if (!going_on) return;
    LockGuard lock(graph_mutex());
    auto capture = std::move(stream.capture);
    stream.capture = nullptr;
    if (!capture) return;
    if (capture->origin == &stream) {  // nobody can end it any more
        capture->release();
        if (capture->owns_graph) unlist(*capture->graph);
        return;
    }
    add_missing(capture->abandoned, capture->branches[&stream].frontier);
    capture->branches.erase(&stream);
}

CUresult begin_capture(Stream& stream, std::shared_ptr<Graph> graph, Edges frontier, CUstreamCaptureMode mode) {
    if (stream.role == Stream::Role::legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream.capture) return CUDA_ERROR_ILLEGAL_STATE;
    bool owns = !graph;
    if (owns) graph = make_graph(true);
    auto fresh = std::make_shared<Capture>(stream, graph, owns, mode);
    fresh->branches[&stream].frontier = std::move(frontier);
    graph->count_capture(1);
    captures().insert(fresh.get());
    going_on = captures().size();
    stream.capture = std::move(fresh);
    return CUDA_SUCCESS;
}

CUresult end_capture(Stream& stream, CUgraph* graph) {
    if (CUresult error = check_legacy(stream, true)) return error;
    auto capture = stream.capture;
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != &stream) return spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    // Whoever ends it, it is over.
    bool wrong_thread =
        capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id();
    CUresult result = wrong_thread           ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
                      : capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : !capture->joined()   ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                             : CUDA_SUCCESS;
    capture->release();
    if (graph) *graph = result ? nullptr : capture->graph->as<CUgraph>();
    if ((result || !graph) && capture->owns_graph) unlist(*capture->graph);
    return result;
}

void exchange_capture_mode(CUstreamCaptureMode& mode) {
    std::swap(mode, thread_mode);
}

CUresult query_capture(Stream& stream, std::shared_ptr<Capture>& capture) {
    capture = stream.capture;
    return check_legacy(stream, false);
}

CUresult use_capture(Stream& stream, std::shared_ptr<Capture>& capture) {
    capture = stream.capture;
    if (CUresult error = check_legacy(stream, true)) return error;
    return capture && capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

}  // namespace tnr::emulated
