// See settings.hpp. To add one: a line in known.
#include "gpu_client/nvidia_smi/settings.hpp"

#include "gpu_client/nvidia_smi/fields.hpp"

namespace tnr::smi {
namespace {

constexpr const char* clocks = "The current user does not have permission to change clocks for GPU ";
constexpr const char* insufficient = ": Insufficient Permissions";

constexpr Setting known[] = {
    {"--persistence-mode", "-pm", true, "Persistence mode", "Unable to set persistence mode for GPU ", insufficient,
     "persistence_mode"},
    {"--power-limit", "-pl", true, "Power limit", "Failed to set power management limit for GPU ", insufficient},
    {"--compute-mode", "-c", true, "Compute mode", "Unable to set the compute mode for GPU ", insufficient},
    {"--multi-instance-gpu", "-mig", true, "MIG mode", "Unable to set MIG mode for GPU ", insufficient,
     "mig.mode.current"},
    {"--ecc-config", "-e", true, "ECC mode", "Unable to set ECC mode for GPU ", insufficient, "ecc.mode.current"},
    {"--reset-ecc-errors", "-p", true, "ECC errors: forget them", "Unable to clear ECC errors for GPU ", insufficient},
    {"--accounting-mode", "-am", true, "Accounting mode", "Unable to set accounting mode for GPU ", insufficient,
     "accounting.mode"},
    {"--clear-accounted-apps", "-caa", false, "Accounted processes: forget them",
     "Unable to clear accounted apps for GPU ", insufficient},
    {"--gpu-reset", "-r", false, "GPU: reset it", "Unable to reset GPU ", insufficient},
    {"--applications-clocks", "-ac", true, "Application clocks", clocks, "."},
    {"--reset-applications-clocks", "-rac", false, "Clocks: back to their default", clocks, "."},
    {"--lock-gpu-clocks", "-lgc", true, "GPU clocks", clocks, "."},
    {"--reset-gpu-clocks", "-rgc", false, "Clocks: back to their default", clocks, "."},
    {"--lock-memory-clocks", "-lmc", true, "Memory clocks", clocks, "."},
    {"--reset-memory-clocks", "-rmc", false, "Clocks: back to their default", clocks, "."},
    {"--gpu-target-temp", "-gtt", true, "Target temperature", "Unable to set target temperature for GPU ",
     insufficient},
};

// 1 and 0, or the words.
bool is_already(const System& system, const Gpu& gpu, const Setting& setting, const std::string& value) {
    if (!setting.field) return false;
    const auto state = find_gpu_field(setting.field)->value(system, gpu);
    return (state == "Enabled" && (value == "1" || value == "ENABLED")) ||
           (state == "Disabled" && (value == "0" || value == "DISABLED"));
}

}  // namespace

std::span<const Setting> settings() {
    return known;
}

SettingAnswer change(const System& system, const Setting& setting, const std::string& value) {
    std::string text;
    for (auto& gpu : system.gpus) {
        if (!is_already(system, gpu, setting, value))
            return {
                text + setting.refusal + gpu.bus_id + setting.after + "\nTerminating early due to previous errors.\n",
                no_permission};
        text += std::string(setting.title) + " is already " + find_gpu_field(setting.field)->value(system, gpu) +
                " for GPU " + gpu.bus_id + ".\n";
    }
    return {text + "All done.\n", 0};
}

}  // namespace tnr::smi
