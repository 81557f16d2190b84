// What the supervisor knows of a GPU without asking any NVML.
#pragma once

#include "gpu_client/protocol/gpu_facts.hpp"
#include "gpu_server/supervisor/nvml_source.hpp"

namespace tnr::server {

GpuSnapshot own_facts(const std::vector<NvmlDevice>& devices);

}  // namespace tnr::server
