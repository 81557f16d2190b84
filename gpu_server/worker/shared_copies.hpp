// Which records need not stay behind those that wait for a function of the client's.
//
// The GPU stands at a function of the program, and the function touches memory that the program shares with the GPU: the
// client moves that to and fro in a stream that does nothing else. Meanwhile the worker may be holding records back until
// the driver has returned from a call that waits for the GPU, and so for the function. Copies of that stream, and waits for
// it, go ahead then, in their own order. Belongs to the dispatcher.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "gpu_client/protocol/record.hpp"

namespace tnr::worker {

class SharedCopies {
public:
    // From here on may_go() is asked about the records that are held back, one after the other from the first.
    void begin();
    bool may_go(const wire::Record& record);
    // A copy in the stream has these flags: it may be one of these streams from now on.
    void note(uint64_t stream, uint32_t flags);
    bool is_of(uint64_t stream) const { return streams_.contains(stream); }
    // The number is a new stream's from here on.
    void forget(uint64_t stream) { streams_.erase(stream); }

private:
    bool may_go(uint64_t stream, uint32_t flags, uint64_t address, uint64_t bytes);
    bool is_there(uint64_t address, uint64_t bytes) const;

    std::set<uint64_t> streams_;                             // numbers
    std::vector<std::pair<uint64_t, uint64_t>> not_mapped_;  // ranges that records before this one will map
    bool blocked_ = false;                                   // something of the streams has to wait for its turn
};

}  // namespace tnr::worker
