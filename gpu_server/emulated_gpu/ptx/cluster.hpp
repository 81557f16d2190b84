// Clusters: blocks that run together, wait for each other, and reach each other's shared memory.
#pragma once

#include "gpu_server/emulated_gpu/ptx/decoder.hpp"

namespace tnr::ptx {

void decode_cluster_barrier(Decoder& d);  // barrier.cluster.arrive and .wait

}  // namespace tnr::ptx
