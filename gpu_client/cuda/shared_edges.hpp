// The ends of registered memory: bytes that share their pages with something else of the program. Such pages cannot be
// taken from it, so these bytes, fewer than two pages for each piece of memory, are copied: to the GPU before it gets
// the memory, if the program has changed them, and back when the program has waited for the GPU, or a stream waits for
// a function of the program.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace tnr::cuda {

struct Transfers;  // page_transfers.hpp

struct SharedEdge {
    uint64_t host = 0, device = 0, bytes = 0;
    uint64_t memory = 0;                  // where the memory begins here
    uint64_t context = 0, transfers = 0;  // as in SharedRange
    std::vector<std::byte> known;         // what both sides had when the bytes were last copied
};

void add_edge(SharedEdge edge);
// Of the memory that begins there. What the GPU has changed comes back first if `fetch`.
void remove_edges(uint64_t memory, bool fetch);
void remove_edges_of(uint64_t context);
// The GPU's turns are counted: what was given in turns up to `finished` is known to be complete.
void give_edges(uint64_t turn);
void fetch_edges(uint64_t finished);
// For a function of the program that a stream waits for: what the GPU has changed by now comes here; and what the program has
// changed since is given back, if no other thread has given it meanwhile. Whoever lets the stream go on waits for `used`
// before (finish_for_stream).
void lend_edges();
void return_edges(std::vector<Transfers>& used);

extern std::atomic<size_t> shared_edges;  // how many there are

}  // namespace tnr::cuda
