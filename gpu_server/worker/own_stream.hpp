// A stream of the worker's own, for a copy to the client that one of the program's streams waits for: at a gate, or at a
// function of a graph.
//
// It has the greatest priority. A GPU has few queues, and streams of one priority share them: behind a stream that stands, in
// the queue of both, the copy would wait for what waits for it. (The documentation of cuStreamWaitValue32 warns of it.) A
// program that gives all its streams the greatest priority still has some of that risk.
#pragma once

#include "driver_table.hpp"

namespace tnr::worker {

// In the current context. The caller destroys it.
CUresult make_own_stream(CUstream& stream);

}  // namespace tnr::worker
