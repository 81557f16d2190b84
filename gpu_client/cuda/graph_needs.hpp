// What launches of a graph need of the program: its memory, for copies from and to the host, and its functions.
//
// A host copy in a graph is one between the device and a mirror of the host memory, which is device memory of ours. So
// each launch copies what the program has in that memory by then into the mirror, and after it what the graph has put
// into a mirror back, both in the stream's order and by the ordinary way of copies. Copies of overlapping memory may have
// parts of one mirror (graph_joined_copies.hpp). A function of the program in the graph is given what copies before it
// have put into their mirrors, and what it may have changed goes into the mirrors of copies behind it when it has run;
// graph_order.hpp finds out which those are, and whether something else in the middle of a launch (an event that it records
// or waits for) needs what would be copied only after it, or before.
//
// Launches wait for what they fetch into memory that is not pinned, as CUDA's own copies to such memory do.
#pragma once

#include <memory>
#include <vector>

#include "gpu_client/cuda/host_copies.hpp"

namespace tnr::cuda {

struct GraphFunction {
    // By which the worker names a function of the program. It is given back with the last graph that has it.
    std::shared_ptr<const uint64_t> ticket;
    uint64_t node = 0;  // handle of the node that it was added or set as
};

struct GraphNeeds {
    HostCopies copies;
    std::vector<GraphFunction> functions;
    bool allocates = false;    // memory, or frees it: a launch may be wrong, so the program waits for the answer
    bool may_be_less = false;  // a node is gone, say: order_needs() asks what is still there
    // It records or waits for events, or writes or waits for words: what others do may come before a part of a launch, or
    // behind it.
    bool meets_others = false;
    std::vector<uint64_t> recorded = {};  // handles of events that it records, or did
    // It records events after copies to the host that a launch fetches only behind it: the program sees none of its events
    // as complete before the launch has fetched them.
    bool holds_events = false;

    bool empty() const { return copies.empty() && functions.empty() && !allocates && !meets_others; }
    void add(const GraphNeeds& more) {
        for (auto& copy : more.copies) copies.add(copy);
        functions.insert(functions.end(), more.functions.begin(), more.functions.end());
        allocates |= more.allocates;
        may_be_less |= more.may_be_less;
        meets_others |= more.meets_others;
        recorded.insert(recorded.end(), more.recorded.begin(), more.recorded.end());
        holds_events |= more.holds_events;
    }
};

inline GraphNeeds meeting_others() {
    GraphNeeds needs;
    needs.meets_others = true;
    return needs;
}
inline GraphNeeds recording(uint64_t event) {
    auto needs = meeting_others();
    needs.recorded.push_back(event);
    return needs;
}

}  // namespace tnr::cuda
