// The NVLinks of a GPU.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "gpu_client/nvml/library.hpp"

namespace tnr::nvml {

// Those that are up, by number: the uuid of the GPU at the other end, empty where that is a switch.
std::map<unsigned, std::string> links_of(const GpuFacts& gpu);
// What nvmlDeviceGetFieldValues tells of them; nothing for other fields, and where nobody has told of any link.
// `scope`: which link.
std::optional<int64_t> link_field(const GpuFacts& gpu, unsigned field, unsigned scope);

}  // namespace tnr::nvml
