// The limits of this server that a user can meet, in words: for `status`, so that nobody has to guess what was too much.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu_server/watch/pool_state.hpp"

namespace tnr::server {

// Those of serve's options are told as they are in force: `host_bytes_per_gpu` as `--host-memory-mib` or the node decides.
std::vector<watch::LimitState> limit_list(uint64_t host_bytes_per_gpu);

}  // namespace tnr::server
