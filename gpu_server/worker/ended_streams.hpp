// Streams that the client has destroyed. Their work goes on, and a wait for their context waits for it, too.
#pragma once

#include <cstdint>
#include <list>

#include "gpu_server/worker/events.hpp"

namespace tnr::worker {

// Used by the dispatcher only, so there is no lock. Contexts are named by number.
class EndedStreams {
public:
    // `last` is recorded behind all work of the stream.
    void add(uint64_t context, SharedEvent last) { streams_.push_back({context, std::move(last)}); }
    // True when all work of the context's ended streams is done.
    bool idle(uint64_t context);
    // Call it when the context ends.
    void forget(uint64_t context);

private:
    struct Ended {
        uint64_t context;
        SharedEvent last;
    };
    std::list<Ended> streams_;
};

}  // namespace tnr::worker
