// What NVML tells about GPUs, as it travels from the supervisor to a client's libnvidia-ml.so.1.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr {

// The numbers NVML has one function each for, by these names; one that is absent is not supported by that GPU. Nothing
// is made up: an emulated GPU has no temperature.
namespace gpu_value {
// 1: the hardware does not answer any more, and NVML says so of everything else.
inline constexpr const char* lost = "lost";
inline constexpr const char* temperature_c = "temperature_c";
inline constexpr const char* memory_temperature_c = "memory_temperature_c";
inline constexpr const char* fan_percent = "fan_percent";
inline constexpr const char* power_mw = "power_mw";
inline constexpr const char* power_limit_mw = "power_limit_mw";
inline constexpr const char* energy_mj = "energy_mj";  // since the node's driver was loaded
inline constexpr const char* gpu_percent = "gpu_percent";
inline constexpr const char* memory_percent = "memory_percent";
inline constexpr const char* encoder_percent = "encoder_percent";
inline constexpr const char* decoder_percent = "decoder_percent";
inline constexpr const char* performance_state = "performance_state";
inline constexpr const char* persistence = "persistence";
inline constexpr const char* compute_mode = "compute_mode";
inline constexpr const char* ecc = "ecc";
inline constexpr const char* mig = "mig";
inline constexpr const char* pcie_generation = "pcie_generation";
inline constexpr const char* pcie_width = "pcie_width";
inline constexpr const char* pcie_generation_max = "pcie_generation_max";
inline constexpr const char* pcie_width_max = "pcie_width_max";
inline constexpr const char* pcie_replays = "pcie_replays";
inline constexpr const char* power_limit_default_mw = "power_limit_default_mw";
inline constexpr const char* power_limit_min_mw = "power_limit_min_mw";
inline constexpr const char* power_limit_max_mw = "power_limit_max_mw";
inline constexpr const char* fans = "fans";
inline constexpr const char* brand = "brand";                    // nvmlBrandType_t
inline constexpr const char* virtualization = "virtualization";  // nvmlGpuVirtualizationMode_t
inline constexpr const char* gsp_firmware = "gsp_firmware";
inline constexpr const char* multi_gpu_board = "multi_gpu_board";
inline constexpr const char* clock_reasons = "clock_reasons";  // nvmlClocksEventReason… bits
inline constexpr const char* multiprocessors = "multiprocessors";
inline constexpr const char* memory_bus_bits = "memory_bus_bits";
inline constexpr const char* pci_device_id = "pci_device_id";  // and the vendor's, as NVML combines them
inline constexpr const char* pci_subsystem_id = "pci_subsystem_id";
inline constexpr const char* compute_major = "compute_major";
inline constexpr const char* compute_minor = "compute_minor";
// By nvmlTemperatureThresholds_t, as far as all GPUs have them: shutdown, slowdown, most for the memory, for the GPU.
inline constexpr const char* temperature_limit_c[] = {"temperature_shutdown_c", "temperature_slowdown_c",
                                                      "temperature_memory_max_c", "temperature_gpu_max_c"};
// By nvmlMemoryErrorType_t and nvmlEccCounterType_t.
inline constexpr const char* ecc_errors[2][2] = {{"ecc_corrected", "ecc_corrected_ever"},
                                                 {"ecc_uncorrected", "ecc_uncorrected_ever"}};
// In the order of nvmlDeviceGetRemappedRows.
inline constexpr const char* remapped_rows[] = {"remapped_rows_correctable", "remapped_rows_uncorrectable",
                                                "remapping_pending", "remapping_failed"};
// By nvmlClockType_t: graphics, SM, memory, video.
inline constexpr const char* clock_mhz[] = {"clock_graphics_mhz", "clock_sm_mhz", "clock_memory_mhz",
                                            "clock_video_mhz"};
inline constexpr const char* clock_max_mhz[] = {"clock_graphics_max_mhz", "clock_sm_max_mhz", "clock_memory_max_mhz",
                                                "clock_video_max_mhz"};
}  // namespace gpu_value

struct GpuFacts {
    std::string name;
    std::string uuid;  // 32 hex digits
    int pci_domain = 0, pci_bus = 0, pci_device = 0;
    uint64_t memory_total = 0, memory_used = 0;  // bytes
    int cuda_version = 0;                        // 13000
    std::string driver_version;                  // "580.159.04"; empty: there is none (emulated)
    std::map<std::string, int64_t> values;
    // What works between its memory and another GPU's, by that one's uuid: bit i for nvmlGpuP2PCapsIndex_t i.
    std::map<std::string, uint32_t> peers;
    // NVLinks that are up, by number: the uuid of the GPU at the other end, empty where that is a switch.
    std::map<unsigned, std::string> links;
};

// A process as the client's machine knows it.
struct GpuProcess {
    unsigned device = 0;  // index into GpuSnapshot::devices
    int pid = 0;
    std::string name;
    uint64_t used_bytes = 0;
};

struct GpuSnapshot {
    std::vector<GpuFacts> devices;
    std::vector<GpuProcess> processes;
};

// "GPU-12345678-…" of 32 hex digits, as CUDA_VISIBLE_DEVICES and nvidia-smi spell it.
std::string uuid_text(const std::string& hex);

nlohmann::json to_json(const GpuSnapshot& snapshot);
Result<GpuSnapshot> snapshot_from_json(const nlohmann::json& value);  // foreign bytes: never throws

}  // namespace tnr
