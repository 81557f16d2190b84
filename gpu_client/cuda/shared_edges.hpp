// The ends of registered memory: bytes that share their pages with something else of the program. Such pages cannot be
// taken from it, so of these bytes, fewer than two pages for each piece of memory, what differs is copied: to the GPU
// before it gets the memory; back when the program has waited for the GPU, or a stream waits for a function of the
// program; and both ways in rounds while work goes on for long (page_turns.hpp).
//
// The program may read and write here at any time, and nothing tells us. So its words are read and written whole, like
// atomic variables, and written only where the GPU has changed something.
//
// Knows nothing of the network. Not for several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gpu_client/cuda/live_pages.hpp"

namespace tnr::cuda {

struct SharedEdge {
    uint64_t host = 0, device = 0, bytes = 0;
    uint64_t memory = 0;                  // where the memory begins here
    uint64_t context = 0, transfers = 0;  // as in SharedRange
    PageBytes known;                      // what both sides had when they were last compared, as here() gives it

    // So many zeros come before the content, wherever it is copied to, so that its words are the program's.
    size_t lead() const { return host % sizeof(uint64_t); }
    // What the program has.
    PageBytes here() const;
    bool changed_here() const;
    // The program's content is `now`: what the GPU is to get of it, from the lowest address on.
    std::vector<ByteRun> changed_to(PageBytes now);
    // The GPU's content is `seen`: what is new there is the program's, too. What the program has written meanwhile stays.
    void take_in(PageBytes seen);
};
using Edges = std::vector<std::shared_ptr<SharedEdge>>;

// What the program has in all of them at one moment: a flag is not newer than what was written before it. Unless the program
// changes its words all the time.
std::vector<PageBytes> settled_content(const Edges& edges);

}  // namespace tnr::cuda
