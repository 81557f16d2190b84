// Who is connected to a worker's socket: its own client, strangers, or the client about to come back. Any thread: the one that
// receives may be another than the one that wants to know.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <set>

#include "api_client/base/handles.hpp"
#include "api_client/base/mutex.hpp"
#include "gpu_client/protocol/monitor.hpp"

namespace tnr::wire {

class Callers {
public:
    // Takes in what the monitor reported. True if the client's connection has ended.
    bool note(const Monitor::News& news) TNR_EXCLUDES(mutex_);
    // The client says from which port its connection comes. Where we see the same one, nothing between us has made two
    // connections of it, as a proxy would; routers may change addresses, and seldom ports.
    void client_comes_from(uint64_t port) TNR_EXCLUDES(mutex_);
    // The client has spoken over connection `fd`. All earlier reports must have been noted, since descriptors are
    // reused.
    void client_speaks_on(int fd) TNR_EXCLUDES(mutex_);

    // True if anybody is connected: it may turn out to be the client, as handshakes take time.
    bool anybody() const TNR_EXCLUDES(mutex_);
    // The time since the client's machine last sent anything, even if only the answer to a heartbeat. While it is not
    // connected: what that was when its connection ended.
    std::chrono::milliseconds silence() const TNR_EXCLUDES(mutex_);
    // Its connection was closed by its own kernel, since the process has ended: a client that lives resets connections
    // (dialled.hpp), and so do routers. False also where that is not known.
    bool closed_for_good() const TNR_EXCLUDES(mutex_);

private:
    std::chrono::milliseconds silence_now() const TNR_REQUIRES(mutex_);

    mutable Mutex mutex_;
    std::set<int> connections_ TNR_GUARDED_BY(mutex_);
    int client_ TNR_GUARDED_BY(mutex_) = -1;
    // The same connection: a descriptor of our own, which nobody else closes.
    UniqueFd look_at_ TNR_GUARDED_BY(mutex_);
    std::chrono::milliseconds silence_at_end_ TNR_GUARDED_BY(mutex_){0};
    uint64_t comes_from_ TNR_GUARDED_BY(mutex_) = 0;  // its port, as it says
    bool closed_for_good_ TNR_GUARDED_BY(mutex_) = false;
};

uint16_t port_of(const sockaddr_storage& address);

}  // namespace tnr::wire
