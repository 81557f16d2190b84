// Device memory that stands for memory of the program in graphs: see graph_needs.hpp.
#pragma once

#include "gpu_client/cuda/host_copies.hpp"
#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// One of that size in the context.
CUresult make_mirror(const Context& context, uint64_t bytes, std::shared_ptr<const uint64_t>& mirror);

// Of a copy in a graph that kernels launch, or run or not: nobody could fill or fetch its mirror then.
CUresult refuse_mirrors();

// Of a change of an instance beside these copies of it, if kernels have got the memory of one of them only after the instance
// was made: its mirror would not follow what other nodes do there.
CUresult refuse_late_sharing(const HostCopies& copies);

// Gives the copy, which says its rows and slices, the mirror of `same`, one of the same rows that the graph already has,
// so that a graph that brings something there and fetches it again finds it. Null: a mirror of its own.
CUresult give_mirror(const Context& context, HostCopy& copy, const HostCopy* same);

}  // namespace tnr::cuda
