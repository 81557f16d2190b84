// Stream capture: while it is on, what would be done is written into a graph instead. A capture begins in one stream;
// others join it by waiting for an event that was recorded in it. Guarded by graph_mutex(), as graphs are; calls that
// have nothing to do with captures only read a counter.
#pragma once

#include <map>
#include <memory>
#include <thread>

#include "gpu_server/emulated_gpu/driver/graph.hpp"
#include "gpu_server/emulated_gpu/driver/pool.hpp"

namespace tnr::emulated {

class Capture {
public:
    // A stream that takes part: what its next node comes after.
    struct Branch {
        Edges frontier;
        // What the last query gave out; good until the next one.
        std::vector<CUgraphNode> shown_nodes;
        std::vector<EdgeData> shown_data;
    };

    Capture(Stream& from, std::shared_ptr<Graph> into, bool owns, CUstreamCaptureMode how);

    const uint64_t id;
    Stream* const origin;
    const std::shared_ptr<Graph> graph;
    const bool owns_graph;  // begun without one
    const CUstreamCaptureMode mode;
    const std::thread::id thread = std::this_thread::get_id();
    bool invalidated = false;
    std::map<Stream*, Branch> branches;
    Edges abandoned;  // the frontiers of streams that were destroyed
    Edges replaced;   // what the program has put something else in the place of: nobody need come back from there

    GraphNode& add(Stream& stream, Work work);
    // Has every branch come back to the stream that it began in?
    bool joined() const;
    // All its streams are ordinary ones again.
    void release();
};

// Writes the operation into the graph if the stream is being captured, and sets `captured`.
CUresult capture(Stream& stream, const Operation& operation, bool& captured);
// The same for other work that only graphs know.
CUresult capture(Stream& stream, const Work& work, bool& captured);
// The same for memory that the graph allocates and frees at each launch.
CUresult capture_allocation(Stream& stream, const Pool& pool, uint64_t size, CUdeviceptr& address, bool& captured);
CUresult capture_free(Stream& stream, CUdeviceptr address, bool& captured);
// The same for an event's record in the stream; `data` is that of the edges to what will wait for it.
CUresult capture_record(Stream& stream, Event& event, const EdgeData& data, bool& captured);
// The same for waiting; a stream that waits for a captured event joins its capture.
CUresult capture_wait(Stream& stream, Event& event, bool& captured);

bool is_capturing(Stream& stream);
// The error of a call that captured streams do not allow; it spoils the capture.
CUresult refuse_while_capturing(Stream& stream);
// The error of a call that captures forbid because they cannot see it: what it does would be missing in the graph.
CUresult refuse_unsafe();
CUresult refuse_unsafe_locked();  // by who holds graph_mutex()
// Of a call that waits: either reason. For a stream, for a whole context, for an event that may have been captured.
CUresult refuse_wait(Stream& stream);
CUresult refuse_wait(Context& context);
CUresult refuse_wait(Event& event);
// The stream is going away.
void abandon_capture(Stream& stream);

CUresult begin_capture(Stream& stream, std::shared_ptr<Graph> graph, Edges frontier, CUstreamCaptureMode mode);
CUresult end_capture(Stream& stream, CUgraph* graph);
// Of this thread.
void exchange_capture_mode(CUstreamCaptureMode& mode);
// The capture that the stream takes part in, or null; for the legacy stream the error of using it.
CUresult query_capture(Stream& stream, std::shared_ptr<Capture>& capture);
// The same for a call that gives the stream work: using the legacy stream spoils what it must not wait for.
CUresult use_capture(Stream& stream, std::shared_ptr<Capture>& capture);

}  // namespace tnr::emulated
