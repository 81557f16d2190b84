// Which addresses are reserved, and what is mapped there. The address map knows mappings too, but only what they are.
#pragma once

#include <map>

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/driver/multicast.hpp"
#include "gpu_server/emulated_gpu/driver/physical_memory.hpp"

namespace tnr::emulated {

// Memory, or a multicast object; never both.
struct Mapping {
    uint64_t bytes = 0;
    uint64_t offset = 0;  // in what is mapped
    std::shared_ptr<PhysicalMemory> memory = {};
    std::shared_ptr<Multicast> multicast = {};
};

// Its lock is outside those of Multicast, AddressMap and Registry.
struct VirtualMemory {
    tnr::Mutex mutex;
    std::map<uint64_t, uint64_t> reserved TNR_GUARDED_BY(mutex);  // begin -> bytes
    std::map<uint64_t, Mapping> mapped TNR_GUARDED_BY(mutex);

    static VirtualMemory& get();

    bool within_reservation(uint64_t address, uint64_t size) const TNR_REQUIRES(mutex);
    bool any_mapping(uint64_t address, uint64_t size) const TNR_REQUIRES(mutex);
    // Do whole mappings make up the range without a gap?
    bool exactly_mapped(uint64_t address, uint64_t size) const TNR_REQUIRES(mutex);
    // The mapping that contains the address; null if none does.
    const std::pair<const uint64_t, Mapping>* find(uint64_t address) const TNR_REQUIRES(mutex);
    // Shows the memory from where it is now, wherever it is mapped.
    void remap(const PhysicalMemory& memory) TNR_REQUIRES(mutex);
};

// Nothing may still be running that uses the memory.
void wait_for_everything();

}  // namespace tnr::emulated
