// See process_mappings.hpp.
#include "gpu_client/cuda/process_mappings.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

namespace tnr::cuda {

std::vector<ProcessMapping> process_mappings() {
    std::vector<ProcessMapping> all;
    std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/self/maps", "re"), std::fclose);
    char line[512];
    while (file && std::fgets(line, sizeof line, file.get())) {
        unsigned long begin = 0, end = 0;
        char rights[5] = {};
        if (std::sscanf(line, "%lx-%lx %4s", &begin, &end, rights) == 3)
            all.push_back({begin, end, rights[3] == 's', rights[1] == 'w'});
    }
    return all;
}

SecondPlaces::SecondPlaces(uint64_t address, uint64_t bytes) {
    for (const auto& mapping : process_mappings()) {
        const uint64_t begin = std::max(address, mapping.begin), end = std::min(address + bytes, mapping.end);
        if (begin >= end || !mapping.shared || !mapping.writable) continue;
        // A mapping that is shared is not moved but doubled where its old size is said to be 0.
        const long place = ::syscall(SYS_mremap, begin, 0UL, end - begin, MREMAP_MAYMOVE, 0UL);
        complete_ = place != -1;
        if (!complete_) return;
        auto* there = reinterpret_cast<std::byte*>(place);
        (void)::madvise(there, end - begin, MADV_DONTFORK);
        places_.push_back({begin, end - begin, there});
    }
}

SecondPlaces::~SecondPlaces() {
    for (const auto& place : places_) ::syscall(SYS_munmap, place.place, place.bytes);
}

SecondPlaces::Part SecondPlaces::find(uint64_t address, uint64_t bytes) const {
    auto next = std::find_if(places_.begin(), places_.end(),
                             [&](const Place& place) { return address < place.address + place.bytes; });
    if (next == places_.end()) return {nullptr, bytes};
    if (address < next->address) return {nullptr, std::min(bytes, next->address - address)};
    const uint64_t before = address - next->address;
    return {next->place + before, std::min(bytes, next->bytes - before)};
}

}  // namespace tnr::cuda
