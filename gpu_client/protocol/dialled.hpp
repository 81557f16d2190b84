// The TCP connections of a client's latest dial: all of them end when one does.
//
// A ZeroMQ socket must not be closed while one of its connections lives. It goes on sending what is queued for up to
// the linger time but reads nothing more; if the peer then closes and a heartbeat is due, ZeroMQ aborts the program
// (4.3.4, stream_engine_base.cpp, out_event: "!_io_error").
#pragma once

#include <map>

#include "api_client/base/handles.hpp"
#include "gpu_client/protocol/monitor.hpp"

namespace tnr::wire {

class Dialled {
public:
    void note(const Monitor::News& news);
    bool any() const { return !connections_.empty(); }
    // Ends the connections so that the peer and ZeroMQ's thread notice.
    void cut() const;

private:
    std::map<int, UniqueFd>
        connections_;  // by ZeroMQ's descriptor; ours refers to the same connection, and nobody else closes it
};

}  // namespace tnr::wire
