// See ended_streams.hpp.
#include "gpu_server/worker/ended_streams.hpp"

#include <algorithm>

namespace tnr::worker {

bool EndedStreams::idle(uint64_t context) {
    auto ours = [&](const Ended& stream) { return stream.context == context; };
    streams_.remove_if([&](const Ended& stream) { return ours(stream) && is_reached(stream.last); });
    return !untold_.contains(context) && std::none_of(streams_.begin(), streams_.end(), ours);
}

void EndedStreams::forget(uint64_t context) {
    streams_.remove_if([&](const Ended& stream) { return stream.context == context; });
    untold_.erase(context);
}

}  // namespace tnr::worker
