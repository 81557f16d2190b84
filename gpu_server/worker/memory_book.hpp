// What this session holds of each device's memory, and how much the supervisor has granted it. A client asks before it
// maps, but the worker enforces it: it makes nothing beyond what is granted, whatever the client sends.
//
// The accounts and the mappings may be used from any thread. The rest belongs to the dispatcher, or to what it holds all
// records back for (WorkerSession::run_aside).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "gpu_server/worker/memory_accounts.hpp"

namespace tnr::worker {

struct Mapping {
    uint64_t bytes = 0;
    std::shared_ptr<Physical> physical;
    bool for_client = false;  // op_memory_map: the client carves allocations out of it
};

class MemoryBook {
public:
    explicit MemoryBook(size_t devices) : accounts(devices), openings_(devices, std::vector<int>(devices, 0)) {}

    MemoryAccounts accounts;

    void mapped(uint64_t address, Mapping mapping) TNR_EXCLUDES(mutex_);
    // The driver has unmapped all of it.
    void unmapped(uint64_t address, uint64_t bytes) TNR_EXCLUDES(mutex_);
    bool any_mapping(uint64_t address, uint64_t bytes) const TNR_EXCLUDES(mutex_);
    // The mapping that contains the address, with where it begins.
    std::optional<std::pair<uint64_t, Mapping>> find(uint64_t address) const TNR_EXCLUDES(mutex_);
    // Address and bytes of everything that is mapped for the client on the device.
    std::vector<std::pair<uint64_t, uint64_t>> all_for_client(uint32_t device) const TNR_EXCLUDES(mutex_);

    // Devices that may use what is mapped for the client on `device`, itself included.
    std::vector<uint32_t> who_may_use(uint32_t device) const;
    // Openings count; true if this call has opened or closed the memory.
    bool open(uint32_t device, uint32_t to) { return openings_[device][to]++ == 0; }
    bool close(uint32_t device, uint32_t to) { return openings_[device][to] > 0 && --openings_[device][to] == 0; }

    // Peer access from one context to another, as cuCtxEnablePeerAccess gave it; contexts by number, with their devices.
    struct Peers {
        uint64_t context, peer;
        uint32_t device, peer_device;
        bool operator<(const Peers& other) const {
            return std::tie(context, peer, device, peer_device) <
                   std::tie(other.context, other.peer, other.device, other.peer_device);
        }
    };
    std::set<Peers> peers;

private:
    mutable Mutex mutex_;
    std::map<uint64_t, Mapping> mappings_ TNR_GUARDED_BY(mutex_);  // by address
    std::vector<std::vector<int>> openings_;                       // [device][other device]
};

}  // namespace tnr::worker
