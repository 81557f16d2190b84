// The fields of --query-gpu and --query-compute-apps.
#pragma once

#include <string>
#include <vector>

#include "gpu_client/nvidia_smi/gpu.hpp"

namespace tnr::smi {

// One column: its value is a number with a unit, or text.
struct Field {
    const char* name;  // as the user writes it: "memory.total"
    const char* unit;  // "MiB"; empty: none
    std::string (*value)(const System& system, const Gpu& gpu);
};
const std::vector<Field>& gpu_fields();
// The field of this name (or alias); null when there is none.
const Field* find_gpu_field(const std::string& name);

struct ProcessField {
    const char* name;
    const char* unit;
    std::string (*value)(const Gpu& gpu, const Process& process);
};
const std::vector<ProcessField>& process_fields();
const ProcessField* find_process_field(const std::string& name);

std::string mib(unsigned long long bytes);
// What is shown in place of a value: a GPU without that sensor is one thing, a GPU that is gone another.
std::string missing(nvmlReturn_t why);

}  // namespace tnr::smi
