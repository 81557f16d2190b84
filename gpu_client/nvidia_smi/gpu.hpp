// One GPU as nvidia-smi shows it: every value as text, "[N/A]" where NVML has none.
#pragma once

#include <nvml.h>

#include <string>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::smi {

inline constexpr const char* not_available = "[N/A]";

struct Process {
    unsigned pid;
    std::string name;
    unsigned long long used_bytes;
};

struct Gpu {
    unsigned index = 0;
    nvmlDevice_t handle = nullptr;
    std::string name, uuid, bus_id;
    nvmlReturn_t memory_known = NVML_ERROR_UNKNOWN;
    unsigned long long memory_total = 0, memory_used = 0;  // bytes
    std::vector<Process> processes;
};

struct System {
    std::string driver_version;
    std::string cuda_version;  // "13.0"
    std::vector<Gpu> gpus;
};

// Starts NVML and asks it. `only`: indices, UUIDs or bus ids of the GPUs wanted; empty for all.
Result<System> read_system(const std::vector<std::string>& only);

}  // namespace tnr::smi
