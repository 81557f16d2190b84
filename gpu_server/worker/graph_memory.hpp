// Memory that graphs allocate when they run, charged to the session like any other. The driver reserves it in a launch,
// all graphs of a device together, and keeps it for the next launches. So before a launch the session is charged with
// the most that the driver may reserve, and after it with what it has.
//
// Belongs to the dispatcher, or to what it holds all records back for.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu_client/protocol/graph_records.hpp"
#include "gpu_server/worker/device.hpp"
#include "gpu_server/worker/memory_accounts.hpp"

namespace tnr::worker {

// An executable graph that allocates. Its nodes' addresses are fixed, and memory that it uses for one allocation after
// the other has one address: so this is what it needs.
struct AllocatingGraph {
    std::vector<uint64_t> bytes;  // of each device
    uint64_t launched = 0;        // in which of GraphMemory's periods; 0: never
};

// Asks the driver. No bytes at all: the graph does not allocate.
std::vector<uint64_t> memory_needed_by(CUgraph graph, const std::vector<Device>& devices);

class GraphMemory {
public:
    GraphMemory(MemoryAccounts& accounts, const std::vector<Device>& devices)
        : accounts_(accounts), devices_(devices), of_(devices.size()) {}

    // Takes the most that a launch may need beyond what is charged. False: the account of `device` lacks so many bytes.
    bool charge(const AllocatingGraph& graph, uint32_t& device, uint64_t& lacking);
    void launched(AllocatingGraph& graph);
    // Gives back what the driver has not reserved, or not any more.
    void settle();
    // Makes the driver give up what no graph needs now. Waits for the GPU.
    void trim();
    // The supervisor has granted more, for graphs. The client hears of it with changes().
    void granted(uint32_t device, uint64_t bytes);

    // What the client does not know yet. It counts its grant itself: what graphs have taken is not there to be mapped.
    wire::GraphMemoryChanges changes();
    // What graphs have given back and the client does not know of: its own from now on, as if it had been granted
    // again.
    uint64_t hand_out(uint32_t device);
    bool concern(uint32_t device) const { return of_[device].charged != 0 || of_[device].told != 0; }

private:
    struct OfDevice {
        uint64_t charged = 0;
        uint64_t wanted = 0;   // the sum of all that has been launched in this period
        uint64_t told = 0;     // of `charged`, to the client
        uint64_t granted = 0;  // not told yet
    };
    uint64_t reserved(uint32_t device) const;

    MemoryAccounts& accounts_;
    const std::vector<Device>& devices_;
    std::vector<OfDevice> of_;
    uint64_t period_ = 1;  // ends when the driver has given up what it can
};

}  // namespace tnr::worker
