// Device memory that stands for memory of the program in graphs: see graph_needs.hpp.
#pragma once

#include "gpu_client/cuda/graph_needs.hpp"
#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// A copy between the host's rows, of which `copy` says the slices, and the device in a graph that already has `before`:
// where the host's side is. The same rows have the same mirror, so that a graph that brings something there and fetches it
// again finds it.
CUresult mirror_copy(const Context& context, const HostRows& host, bool to_device, const GraphNeeds& before,
                     HostCopy& copy);
// Rows that are copied, and how far into the mirror they begin.
struct MirroredRows {
    HostRows host;
    uint64_t offset = 0;
};
std::vector<MirroredRows> slices_of(const HostCopy& copy);
bool overlap(const HostRows& one, const HostRows& other);

}  // namespace tnr::cuda
