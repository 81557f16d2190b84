// Stream capture as this process sees it: which streams take part, what that forbids, and what a launch of the captured
// graph will need of the program. The worker's driver makes the graph; it captures in relaxed mode, since all its calls
// come from our worker's threads, so what a mode forbids to which thread is decided here.
//
// While nothing is captured, all of it costs one load.
#pragma once

#include <atomic>

#include "gpu_client/cuda/graph_needs.hpp"
#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

extern std::atomic<size_t> captures_going_on;
inline bool anything_captures() {
    return __builtin_expect(captures_going_on.load(std::memory_order_relaxed) != 0, false);
}

// True if what the stream is given is captured.
inline bool is_captured(const StreamRef& stream) {
    return anything_captures() && stream.object && stream.object->capture != 0;
}

// Each returns the driver's error for a call that captures forbid, and spoils them as the driver does; CUDA_SUCCESS if
// the call may go on.
CUresult refuse_work_slowly(const StreamRef& stream);
CUresult refuse_wait_slowly(const StreamRef& stream);
CUresult refuse_wait_slowly(const Context& context);
CUresult refuse_unsafe_slowly();
// Work that is put into the stream.
inline CUresult refuse_work(const StreamRef& stream) {
    return anything_captures() ? refuse_work_slowly(stream) : CUDA_SUCCESS;
}
// Waiting for the stream's or the context's work, or asking whether it is done.
inline CUresult refuse_wait(const StreamRef& stream) {
    return anything_captures() ? refuse_wait_slowly(stream) : CUDA_SUCCESS;
}
inline CUresult refuse_wait(const Context& context) {
    return anything_captures() ? refuse_wait_slowly(context) : CUDA_SUCCESS;
}
CUresult refuse_wait(const Event& event);
// What a capture cannot see, such as allocating.
inline CUresult refuse_unsafe() {
    return anything_captures() ? refuse_unsafe_slowly() : CUDA_SUCCESS;
}
// What cannot be captured: into a captured stream.
CUresult refuse_in_capture(const StreamRef& stream);

// True if a stream of the context is captured. We ask nothing of the worker then that waits for the context.
bool captures_in(const Context& context);

// A stream that waits for an event that was recorded in a captured stream joins its capture.
CUresult capture_wait(const StreamRef& stream, Event& event);
// The stream is destroyed.
void capture_stream_gone(Stream& stream);

// Adds to what the graph needs that is being captured from the stream. False if there is none.
bool add_needs(const StreamRef& stream, const GraphNeeds& more);
// True if what is captured from the stream goes into a body of a conditional node.
bool is_captured_into_body(const StreamRef& stream);
// True while streams are captured into the graph, as far as the program knows.
bool is_captured_into(CUgraph graph);
// A copy of the same rows that was added so far; null: none.
HostCopies::Copy same_copy_so_far(const StreamRef& stream, const HostCopy& like);

// The stream's capture begins: into `graph`, or null into one of its own.
void capture_begins(const StreamRef& stream, CUstreamCaptureMode mode, CUgraph graph);
// What is left of a capture that has ended.
struct EndedCapture {
    bool spoilt = false, owns_graph = false;
    bool wrong_thread = false;  // has ended it, and it is lost
    CUgraph graph = nullptr;    // if the program knows it
    GraphNeeds needs;
};
CUresult capture_ends(const StreamRef& stream, EndedCapture& ended);
CUstreamCaptureMode& capture_mode_of_thread();
CUresult find_capture(const StreamRef& stream, CUstreamCaptureStatus& status, uint64_t& id);
// What the stream's next node comes after, as the program was told; good until it asks again. Null: no capture any more.
struct ShownDependencies {
    std::vector<CUgraphNode> nodes;
    std::vector<CUgraphEdgeData> data;
};
const ShownDependencies* show_dependencies(const StreamRef& stream, CUgraph graph, ShownDependencies shown);

}  // namespace tnr::cuda
