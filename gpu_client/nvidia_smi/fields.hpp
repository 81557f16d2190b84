// The fields of --query-gpu and --query-compute-apps.
#pragma once

#include <string>
#include <vector>

#include "gpu_client/nvidia_smi/field.hpp"

namespace tnr::smi {

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

}  // namespace tnr::smi
