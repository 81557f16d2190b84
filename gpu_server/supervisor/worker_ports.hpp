// The ports of workers: one each, from its start to its end.
//
// A port is bound at the start but refuses connections until its worker serves. A client whose worker has died learns so
// at once that way, where it would otherwise talk to a worker that waits for somebody else. For the same reason the port
// that has been free for longest is taken first.
#pragma once

#include <deque>
#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"
#include "gpu_server/supervisor/endpoint.hpp"

namespace tnr::server {

class WorkerPorts {
public:
    // `range` empty: whatever the kernel gives.
    WorkerPorts(std::string host, PortRange range);

    // A socket that is bound, not listening. `endpoint` receives where.
    Result<UniqueFd> take(Endpoint& endpoint);
    void give_back(int port);
    // By a worker that an earlier server has started (handover.hpp).
    void is_taken(int port);
    // How many are not taken; without a range, more than anybody needs.
    size_t left() const;

private:
    std::string host_;
    PortRange range_;
    std::deque<int> free_;  // longest unused first
};

}  // namespace tnr::server
