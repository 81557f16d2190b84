// See shared_memory.hpp.
#include "gpu_client/cuda/shared_memory.hpp"

#include <iterator>
#include <map>

#include "api_client/base/mutex.hpp"

namespace tnr::cuda {

std::atomic<size_t> shared_memories{0};

namespace {
struct All {
    Mutex mutex;
    std::map<uint64_t, SharedMemory> by_host TNR_GUARDED_BY(mutex);
    std::map<uint64_t, uint64_t> by_device TNR_GUARDED_BY(mutex);  // where it is here
};
All& all() {
    static auto* memories = new All;
    return *memories;
}

template <class Map>
auto at_or_before(Map& map, uint64_t address) {
    auto after = map.upper_bound(address);
    return after == map.begin() ? map.end() : std::prev(after);
}
}  // namespace

void note_shared(const SharedMemory& memory) {
    LockGuard lock(all().mutex);
    all().by_host[memory.host] = memory;
    all().by_device[memory.device] = memory.host;
    shared_memories = all().by_host.size();
}

void forget_shared(uint64_t host) {
    LockGuard lock(all().mutex);
    auto found = all().by_host.find(host);
    if (found == all().by_host.end()) return;
    all().by_device.erase(found->second.device);
    all().by_host.erase(found);
    shared_memories = all().by_host.size();
}

bool find_shared(uint64_t address, SharedMemory& found) {
    if (!anything_shared()) return false;
    LockGuard lock(all().mutex);
    if (auto here = at_or_before(all().by_host, address); here != all().by_host.end()) {
        found = here->second;
        if (address - found.host < found.bytes) return true;
    }
    auto there = at_or_before(all().by_device, address);
    if (there == all().by_device.end()) return false;
    found = all().by_host[there->second];
    return address - found.device < found.bytes;
}

std::vector<SharedMemory> shared_memory_of(uint64_t context) {
    std::vector<SharedMemory> memories;
    LockGuard lock(all().mutex);
    for (auto& [host, memory] : all().by_host)
        if (memory.context == context) memories.push_back(memory);
    return memories;
}

}  // namespace tnr::cuda
