// Stream capture: while it is on, what would be done is written into a graph instead.
#pragma once

#include "gpu_server/emulated_gpu/driver/operation.hpp"

namespace tnr::emulated {

class Event;

class Capture {
public:
    virtual ~Capture() = default;
    virtual CUresult add(Stream& stream, Operation operation) = 0;
    virtual CUresult record(Stream& stream, Event& event) = 0;
};

// The capture that the stream takes part in, or null.
std::shared_ptr<Capture> capture_of(Stream& stream);
// If the event or the stream is being captured, does in the graph what waiting means there and sets `done`.
CUresult capture_wait(Stream& stream, Event& event, bool& done);
// The error of a call that would have to wait for the stream, or that captured streams do not allow.
CUresult refuse_while_capturing(Stream& stream);

}  // namespace tnr::emulated
