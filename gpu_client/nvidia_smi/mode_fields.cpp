// How a GPU is set up: its modes, as fields of --query-gpu. See field_groups.hpp.
#include "gpu_client/nvidia_smi/field_groups.hpp"

namespace tnr::smi {
namespace {

template <auto Function>
std::string switched(const System&, const Gpu& gpu) {
    nvmlEnableState_t state{};
    if (auto result = Function(gpu.handle, &state); result != NVML_SUCCESS) return missing(result);
    return state == NVML_FEATURE_ENABLED ? "Enabled" : "Disabled";
}

std::string compute_mode(const System&, const Gpu& gpu) {
    static constexpr const char* names[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
    nvmlComputeMode_t mode{};
    auto result = nvmlDeviceGetComputeMode(gpu.handle, &mode);
    return result == NVML_SUCCESS && mode < 4u ? names[mode] : missing(result);
}

// Of two states, as NVML tells modes that change with the next reset.
enum Which { current, pending };
template <auto Function, class State, Which Wanted>
std::string mode(const System&, const Gpu& gpu) {
    State states[2] = {};
    auto result = Function(gpu.handle, &states[current], &states[pending]);
    if (result != NVML_SUCCESS) return missing(result);
    return states[Wanted] ? "Enabled" : "Disabled";
}
template <Which Wanted>
constexpr auto ecc_mode = mode<nvmlDeviceGetEccMode, nvmlEnableState_t, Wanted>;
template <Which Wanted>
constexpr auto mig_mode = mode<nvmlDeviceGetMigMode, unsigned, Wanted>;
template <Which Wanted>
constexpr auto gsp_mode = mode<nvmlDeviceGetGspFirmwareMode, unsigned, Wanted>;

std::string addressing_mode(const System&, const Gpu& gpu) {
    nvmlDeviceAddressingMode_t told{};
    told.version = nvmlDeviceAddressingMode_v1;
    if (auto result = nvmlDeviceGetAddressingMode(gpu.handle, &told); result != NVML_SUCCESS) return missing(result);
    return told.value == NVML_DEVICE_ADDRESSING_MODE_NONE  ? "None"
           : told.value == NVML_DEVICE_ADDRESSING_MODE_HMM ? "HMM"
                                                           : "ATS";
}

std::string c2c_mode(const System&, const Gpu& gpu) {
    nvmlC2cModeInfo_v1_t told{};
    auto result = nvmlDeviceGetC2cModeInfoV(gpu.handle, &told);
    if (result != NVML_SUCCESS) return missing(result);
    return told.isC2cEnabled ? "Enabled" : "Disabled";
}

}  // namespace

std::vector<Field> mode_fields() {
    return {
        {"persistence_mode", "", switched<nvmlDeviceGetPersistenceMode>},
        {"accounting.mode", "", switched<nvmlDeviceGetAccountingMode>},
        {"display_attached", "", [](const System&, const Gpu&) { return std::string("No"); }},
        {"display_mode", "", switched<nvmlDeviceGetDisplayMode>},
        {"display_active", "", switched<nvmlDeviceGetDisplayActive>},
        {"compute_mode", "", compute_mode},
        {"ecc.mode.current", "", ecc_mode<current>},
        {"ecc.mode.pending", "", ecc_mode<pending>},
        {"mig.mode.current", "", mig_mode<current>},
        {"mig.mode.pending", "", mig_mode<pending>},
        {"gsp.mode.current", "", gsp_mode<current>},
        {"gsp.mode.default", "", gsp_mode<pending>},
        {"c2c.mode", "", c2c_mode},
        {"addressing_mode", "", addressing_mode},
    };
}

}  // namespace tnr::smi
