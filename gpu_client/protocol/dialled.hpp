// The TCP connections of a client's latest dial: all of them end when one does.
//
// A ZeroMQ socket must not be closed while one of its connections lives. It goes on sending what is queued for up to
// the linger time but reads nothing more; if the peer then closes and a heartbeat is due, ZeroMQ aborts the program
// (4.3.4, stream_engine_base.cpp, out_event: "!_io_error").
//
// A process that lives never just closes a connection: where the connection is broken for ZeroMQ, it is reset. So an ordinary
// close (FIN) that reaches the worker was the kernel's, after the process's end: see callers.hpp.
#pragma once

#include <map>

#include "api_client/base/handles.hpp"
#include "gpu_client/protocol/monitor.hpp"

namespace tnr::wire {

class Dialled {
public:
    void note(const Monitor::News& news);
    bool any() const { return !connections_.empty(); }
    // Ends the connections so that the peer and ZeroMQ's thread notice. `anew`: they are reset, since the process lives on and
    // dials again; else what was sent last still arrives.
    void cut(bool anew);
    // Our end's, of the connection that was made first; 0: there is none.
    uint16_t port() const;

private:
    bool ending_ = false;  // cut, and not to be dialled again
    std::map<int, UniqueFd>
        connections_;  // by ZeroMQ's descriptor; ours refers to the same connection, and nobody else closes it
};

}  // namespace tnr::wire
