// How much of each device's memory the supervisor has granted this session, and how much of it is used. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "driver_table.hpp"

namespace tnr::worker {

class MemoryAccounts {
public:
    explicit MemoryAccounts(size_t devices) : accounts_(devices) {}

    void grant(uint32_t device, uint64_t bytes);
    // False if too little of the grant is left; `lacking` says how much more it takes.
    bool take(uint32_t device, uint64_t bytes, uint64_t& lacking);
    void give_back(uint32_t device, uint64_t bytes);
    uint64_t used(uint32_t device);
    // The grant is so much smaller; returns by how much, as what is used stays granted.
    uint64_t shrink(uint32_t device, uint64_t bytes);

private:
    struct Account {
        uint64_t granted = 0, used = 0;
    };
    Mutex mutex_;
    std::vector<Account> accounts_ TNR_GUARDED_BY(mutex_);
};

// Physical memory, charged to the session's account until its handle is released and no mapping is left.
class Physical {
public:
    // `bytes` have been taken from `accounts` already.
    Physical(MemoryAccounts& accounts, uint32_t device, uint64_t bytes)
        : device(device), accounts_(accounts), bytes_(bytes) {}
    ~Physical() { accounts_.give_back(device, bytes_); }
    Physical(const Physical&) = delete;
    Physical& operator=(const Physical&) = delete;

    // Something that must last as long as this memory is used. Call it before anybody else knows of the memory.
    void keep(std::shared_ptr<void> what) { kept_ = std::move(what); }

    const uint32_t device;

private:
    MemoryAccounts& accounts_;
    const uint64_t bytes_;
    std::shared_ptr<void> kept_;
};

class Multicast;

// Made by the program itself: cuMemCreate, cuMulticastCreate. Or by another process of the claim.
struct Created {
    CUmemGenericAllocationHandle handle{};
    std::shared_ptr<Physical> physical;
    uint64_t bytes = 0;                         // 0: another process made it
    std::shared_ptr<Multicast> multicast = {};  // null: it is memory
};

}  // namespace tnr::worker
