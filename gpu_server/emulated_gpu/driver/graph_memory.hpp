// Memory that graphs allocate and free when they run. Its address is fixed when the node is made, and from then on the
// memory can be used; what a launch does with it is counted when the launch is made, in the order of the launches.
#pragma once

#include "gpu_server/emulated_gpu/driver/memory.hpp"

namespace tnr::emulated {

struct Plan;
class Graph;

class GraphAllocation {
public:
    GraphAllocation(Device& owner, uint64_t begin, uint64_t size) : device(owner), address(begin), bytes(size) {}
    ~GraphAllocation();

    Device& device;
    const uint64_t address, bytes;
    // Guarded by graph_mutex().
    std::weak_ptr<const Graph> graph;  // whose node allocates it; another one may get its place in memory
    bool freed_inside = false;         // that graph frees it, too
    bool freed_elsewhere = false;      // another graph does
    bool live = false;                 // allocated by the newest launch and not freed since
    bool charged = false;              // of the device's memory
    Point busy;                        // the newest launch that has to do with it
};

// A graph's own allocation. `like` says who may use it.
CUresult allocate_for_graph(Device& device, uint64_t size, uint64_t access,
                            std::shared_ptr<GraphAllocation>& allocation);
std::shared_ptr<GraphAllocation> graph_allocation(uint64_t address);
// Freed by a stream or by a call, outside of graphs; whoever frees it holds it until it has got there. Null unless it
// is live.
std::shared_ptr<GraphAllocation> free_outside(uint64_t address);

// Gives back what graphs have taken of the device and do not need. Takes no lock.
void release_graph_memory(Device& device);

// Takes note of what a launch of the plan in the stream will allocate and free, unless that is wrong.
CUresult account_for_launch(const Plan& plan, bool auto_free, const Stream& stream);
void note_launch(const Plan& plan, const Point& point);

}  // namespace tnr::emulated
