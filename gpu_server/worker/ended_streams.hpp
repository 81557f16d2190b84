// Streams that the client has destroyed. Their work goes on, and a wait for their context waits for it, too.
#pragma once

#include <cstdint>
#include <list>
#include <set>

#include "gpu_server/worker/events.hpp"

namespace tnr::worker {

// Used by the dispatcher only, so there is no lock. Contexts are named by number.
class EndedStreams {
public:
    // `last` is recorded behind all work of the stream.
    void add(uint64_t context, SharedEvent last) { streams_.push_back({context, std::move(last)}); }
    // The stream does not tell what it still works on.
    void add_untold(uint64_t context) { untold_.insert(context); }
    // True when all work of the context's ended streams is done, false also where that cannot be known.
    bool idle(uint64_t context);
    // Call it when the context ends.
    void forget(uint64_t context);

private:
    struct Ended {
        uint64_t context;
        SharedEvent last;
    };
    std::list<Ended> streams_;
    std::set<uint64_t> untold_;  // contexts
};

}  // namespace tnr::worker
