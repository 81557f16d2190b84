// One column of --query-gpu: its value is a number with a unit, or text.
#pragma once

#include <string>

#include "gpu_client/nvidia_smi/gpu.hpp"

namespace tnr::smi {

struct Field {
    const char* name;  // as the user writes it: "memory.total"
    const char* unit;  // "MiB"; empty: none
    std::string (*value)(const System& system, const Gpu& gpu);
};

std::string mib(unsigned long long bytes);
// What is shown in place of a value: a GPU without that sensor is one thing, a GPU that is gone another.
std::string missing(nvmlReturn_t why);

}  // namespace tnr::smi
