// Green contexts, and the resources of devices that they are made of. The client has numbers of both. The dispatcher's.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <vector>

#include "driver_table.hpp"
#include "gpu_server/worker/limits.hpp"

namespace tnr::worker {

struct GreenContext {
    CUgreenCtx handle = nullptr;
    uint32_t device = 0;  // number
};

// What the driver has told of devices' resources: it may hold addresses of ours, so the client gets and gives numbers.
// The same resource has the same number, so a program that goes on asking does not fill this.
class DeviceResources {
public:
    // 0: there are too many.
    uint64_t number_of(const CUdevResource& resource);
    // Null when the number is unknown.
    const CUdevResource* find(uint64_t number) const;

private:
    using Content = std::array<std::byte, sizeof(CUdevResource)>;
    std::map<Content, uint64_t> numbers_;
    std::vector<CUdevResource> all_;  // number 1 first
};

}  // namespace tnr::worker
