// The sizes of machines that AWS has.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "api_client/providers/aws/api.hpp"

namespace tnr::aws {

struct Type {
    std::string name = {};
    int cpus = 0, memory_mib = 0;
};
// A region's x86 machines on Nitro (what is older has other disks and drivers), on demand, without accelerators: GPUs are what
// the pool is for. They come in ten pages, so they are asked for once a day.
Result<std::vector<Type>> machine_types(Api& api, const CloudWorld& world, const std::string& region);

// By name, all that can be had in a place: "region", or "availability-zone" with a zone's name.
Result<std::set<std::string>> offered_in(Api& api, const std::string& region, const std::string& kind,
                                         const std::string& place);

}  // namespace tnr::aws
