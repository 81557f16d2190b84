// The options of nvidia-smi that change a GPU. It belongs to the pool, so whoever asks is told what NVIDIA's tool tells a
// user without permission: they exist, and are refused. What is already as wanted needs no permission.
#pragma once

#include <span>
#include <string>

#include "gpu_client/nvidia_smi/gpu.hpp"

namespace tnr::smi {

struct Setting {
    const char* name;     // "--persistence-mode"
    const char* letters;  // "-pm"
    bool takes_value;
    const char* title;    // "Persistence mode"
    const char* refusal;  // what is said before and after the GPU's bus id
    const char* after;
    const char* field = nullptr;  // of --query-gpu, where the value can be compared with it
};
std::span<const Setting> settings();

// NVML_ERROR_NO_PERMISSION, as the exit status.
inline constexpr int no_permission = 4;

struct SettingAnswer {
    std::string text;
    int status;
};
SettingAnswer change(const System& system, const Setting& setting, const std::string& value);

}  // namespace tnr::smi
