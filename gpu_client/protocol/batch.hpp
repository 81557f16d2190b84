// A batch as it arrived.
#pragma once

#include "gpu_client/protocol/channel.hpp"
#include "gpu_client/protocol/wire.hpp"

namespace tnr::wire {

// `records` views into `frames[0]`; bulk frames are frames[1…].
struct Batch {
    BatchHeader header{};
    std::span<const std::byte> records;
    Frames frames;
    size_t bytes = 0;
    Channel::Way way;  // by which it came
};

}  // namespace tnr::wire
