// Who is connected to a worker's socket: its own client, strangers, or the client about to come back.
#pragma once

#include <chrono>
#include <set>

#include "api_client/base/handles.hpp"
#include "gpu_client/protocol/monitor.hpp"

namespace tnr::wire {

class Callers {
public:
    // What the monitor told. True: it was the client's connection that ended.
    bool note(const Monitor::News& news);
    // The client has spoken over connection `fd`. Everything told before must have been noted: numbers are used again.
    void client_speaks_on(int fd);

    // Somebody is connected who may turn out to be the client: handshakes take time.
    bool anybody() const { return !connections_.empty(); }
    // Since the client's machine last sent anything, be it only the answer to a heartbeat. While it is not connected: how
    // long that was when its connection ended.
    std::chrono::milliseconds silence() const;

private:
    std::set<int> connections_;
    int client_ = -1;
    UniqueFd look_at_;  // the same connection: a number of our own that nobody closes behind our back
    std::chrono::milliseconds silence_at_end_{0};
};

}  // namespace tnr::wire
