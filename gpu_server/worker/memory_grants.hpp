// Memory that is charged to a session.
#pragma once

#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

// Calls `make` with physical memory that is charged to the session's account. Clients ask for a grant before they need
// it; for those that do not (older ones, in cuMemCreate) the supervisor is asked here, and graphs give up what they do
// not need. Without a grant the call fails.
template <class Make>
Answer with_memory(WorkerSession& session, const Call& call, const Resolved::Device& on, uint64_t bytes, Make make) {
    auto device = on.number;
    auto& accounts = session.memory.accounts;
    uint64_t lacking = 0;
    if (bytes != 0) session.unmapped_tiles.sweep();
    if (accounts.take(device, bytes, lacking)) return make(std::make_shared<Physical>(accounts, device, bytes));
    return session.run_aside(call, [&session, &accounts, device, bytes, make]() -> CUresult {
        uint64_t lacking = 0;
        session.graph_memory.settle();
        bool taken = accounts.take(device, bytes, lacking);
        if (!taken) {
            accounts.grant(device, ask_and_wait(session.supervisor, device, lacking));
            taken = accounts.take(device, bytes, lacking);
        }
        if (!taken) {
            session.graph_memory.trim();
            taken = accounts.take(device, bytes, lacking);
        }
        return taken ? make(std::make_shared<Physical>(accounts, device, bytes)) : CUDA_ERROR_OUT_OF_MEMORY;
    });
}

}  // namespace tnr::worker
