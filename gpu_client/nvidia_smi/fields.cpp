// See fields.hpp. To add one: a line in gpu_fields().
#include "gpu_client/nvidia_smi/fields.hpp"

#include <cstdio>
#include <ctime>

namespace tnr::smi {

std::string mib(unsigned long long bytes) {
    return std::to_string(bytes >> 20);
}

// What is shown in place of a value: a GPU without that sensor is one thing, a GPU that is gone another.
static std::string missing(nvmlReturn_t why) {
    return why == NVML_ERROR_GPU_IS_LOST ? "[GPU is lost]" : not_available;
}

// The value of an NVML function with one number, as text.
template <auto Function, class Number = unsigned>
static std::string number(const System&, const Gpu& gpu) {
    Number value{};
    auto result = Function(gpu.handle, &value);
    return result == NVML_SUCCESS ? std::to_string(static_cast<long long>(value)) : missing(result);
}

static std::string watt_text(unsigned milliwatts) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.2f", milliwatts / 1000.0);
    return buffer;
}

template <auto Function>
static std::string watts(const System&, const Gpu& gpu) {
    unsigned milliwatts = 0;
    auto result = Function(gpu.handle, &milliwatts);
    return result == NVML_SUCCESS ? watt_text(milliwatts) : missing(result);
}

template <auto Function, nvmlClockType_t Type>
static std::string clock(const System&, const Gpu& gpu) {
    unsigned mhz = 0;
    auto result = Function(gpu.handle, Type, &mhz);
    return result == NVML_SUCCESS ? std::to_string(mhz) : missing(result);
}

template <auto Function>
static std::string switched(const System&, const Gpu& gpu) {
    nvmlEnableState_t state{};
    if (auto result = Function(gpu.handle, &state); result != NVML_SUCCESS) return missing(result);
    return state == NVML_FEATURE_ENABLED ? "Enabled" : "Disabled";
}

template <auto Function>
static std::string text(const System&, const Gpu& gpu) {
    char buffer[96] = {};
    auto result = Function(gpu.handle, buffer, sizeof buffer);
    return result == NVML_SUCCESS ? buffer : missing(result);
}

static std::string hexadecimal(const char* format, unsigned long long value) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, format, value);
    return buffer;
}

static std::string pci(const Gpu& gpu, const char* format, unsigned nvmlPciInfo_t::*part) {
    nvmlPciInfo_t info{};
    auto result = nvmlDeviceGetPciInfo(gpu.handle, &info);
    return result == NVML_SUCCESS ? hexadecimal(format, info.*part) : missing(result);
}

static std::string clock_reasons(const System&, const Gpu& gpu) {
    unsigned long long reasons = 0;
    auto result = nvmlDeviceGetCurrentClocksEventReasons(gpu.handle, &reasons);
    return result == NVML_SUCCESS ? hexadecimal("0x%016llX", reasons) : missing(result);
}

// What a coder does; how long that was measured goes with it, but is not shown.
template <auto Function>
static std::string coder(const System&, const Gpu& gpu) {
    unsigned percent = 0, period_us = 0;
    auto result = Function(gpu.handle, &percent, &period_us);
    return result == NVML_SUCCESS ? std::to_string(percent) : missing(result);
}

template <unsigned Which>
static std::string power_limit(const System&, const Gpu& gpu) {
    unsigned milliwatts[2] = {};
    auto result = nvmlDeviceGetPowerManagementLimitConstraints(gpu.handle, &milliwatts[0], &milliwatts[1]);
    return result == NVML_SUCCESS ? watt_text(milliwatts[Which]) : missing(result);
}

static std::string utilization(const Gpu& gpu, unsigned nvmlUtilization_t::*part) {
    nvmlUtilization_t rates{};
    auto result = nvmlDeviceGetUtilizationRates(gpu.handle, &rates);
    return result == NVML_SUCCESS ? std::to_string(rates.*part) : missing(result);
}

static std::string memory(const Gpu& gpu, unsigned long long bytes) {
    return gpu.memory_known == NVML_SUCCESS ? mib(bytes) : missing(gpu.memory_known);
}

static std::string temperature(const System&, const Gpu& gpu) {
    unsigned celsius = 0;
    auto result = nvmlDeviceGetTemperature(gpu.handle, NVML_TEMPERATURE_GPU, &celsius);
    return result == NVML_SUCCESS ? std::to_string(celsius) : missing(result);
}

static std::string performance_state(const System&, const Gpu& gpu) {
    nvmlPstates_t state{};
    auto result = nvmlDeviceGetPerformanceState(gpu.handle, &state);
    return result == NVML_SUCCESS ? "P" + std::to_string(state) : missing(result);
}

static std::string compute_mode(const System&, const Gpu& gpu) {
    static constexpr const char* names[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
    nvmlComputeMode_t mode{};
    auto result = nvmlDeviceGetComputeMode(gpu.handle, &mode);
    return result == NVML_SUCCESS && mode < 4u ? names[mode] : missing(result);
}

static std::string ecc_mode(const System&, const Gpu& gpu) {
    nvmlEnableState_t current{}, pending{};
    auto result = nvmlDeviceGetEccMode(gpu.handle, &current, &pending);
    if (result != NVML_SUCCESS) return missing(result);
    return current == NVML_FEATURE_ENABLED ? "Enabled" : "Disabled";
}

static std::string mig_mode(const System&, const Gpu& gpu) {
    unsigned current = 0, pending = 0;
    auto result = nvmlDeviceGetMigMode(gpu.handle, &current, &pending);
    if (result != NVML_SUCCESS) return missing(result);
    return current ? "Enabled" : "Disabled";
}

static std::string ecc_errors(const System&, const Gpu& gpu) {
    unsigned long long count = 0;
    auto result =
        nvmlDeviceGetTotalEccErrors(gpu.handle, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, &count);
    return result == NVML_SUCCESS ? std::to_string(count) : missing(result);
}

static std::string compute_capability(const System&, const Gpu& gpu) {
    int major = 0, minor = 0;
    if (nvmlDeviceGetCudaComputeCapability(gpu.handle, &major, &minor) != NVML_SUCCESS) return not_available;
    return std::to_string(major) + "." + std::to_string(minor);
}

static std::string timestamp(const System&, const Gpu&) {
    char text[40];
    auto now = std::time(nullptr);
    std::tm local{};
    std::strftime(text, sizeof text, "%Y/%m/%d %H:%M:%S.000", localtime_r(&now, &local));
    return text;
}

using S = const System&;
using G = const Gpu&;

const std::vector<Field>& gpu_fields() {
    static const std::vector<Field> fields{
        {"timestamp", "", timestamp},
        {"driver_version", "", [](S system, G) { return system.driver_version; }},
        {"count", "", [](S system, G) { return std::to_string(system.gpus.size()); }},
        {"name", "", [](S, G gpu) { return gpu.name; }},
        {"uuid", "", [](S, G gpu) { return gpu.uuid; }},
        {"index", "", [](S, G gpu) { return std::to_string(gpu.index); }},
        {"pci.bus_id", "", [](S, G gpu) { return gpu.bus_id; }},
        {"pci.domain", "", [](S, G gpu) { return pci(gpu, "0x%04llX", &nvmlPciInfo_t::domain); }},
        {"pci.bus", "", [](S, G gpu) { return pci(gpu, "0x%02llX", &nvmlPciInfo_t::bus); }},
        {"pci.device", "", [](S, G gpu) { return pci(gpu, "0x%02llX", &nvmlPciInfo_t::device); }},
        {"pci.device_id", "", [](S, G gpu) { return pci(gpu, "0x%08llX", &nvmlPciInfo_t::pciDeviceId); }},
        {"pci.sub_device_id", "", [](S, G gpu) { return pci(gpu, "0x%08llX", &nvmlPciInfo_t::pciSubSystemId); }},
        {"serial", "", text<nvmlDeviceGetSerial>},
        {"vbios_version", "", text<nvmlDeviceGetVbiosVersion>},
        {"compute_cap", "", compute_capability},
        {"memory.total", "MiB", [](S, G gpu) { return memory(gpu, gpu.memory_total); }},
        {"memory.used", "MiB", [](S, G gpu) { return memory(gpu, gpu.memory_used); }},
        {"memory.free", "MiB", [](S, G gpu) { return memory(gpu, gpu.memory_total - gpu.memory_used); }},
        {"utilization.gpu", "%", [](S, G gpu) { return utilization(gpu, &nvmlUtilization_t::gpu); }},
        {"utilization.memory", "%", [](S, G gpu) { return utilization(gpu, &nvmlUtilization_t::memory); }},
        {"utilization.encoder", "%", coder<nvmlDeviceGetEncoderUtilization>},
        {"utilization.decoder", "%", coder<nvmlDeviceGetDecoderUtilization>},
        {"temperature.gpu", "", temperature},
        {"fan.speed", "%", number<nvmlDeviceGetFanSpeed>},
        {"pstate", "", performance_state},
        {"power.draw", "W", watts<nvmlDeviceGetPowerUsage>},
        {"power.limit", "W", watts<nvmlDeviceGetEnforcedPowerLimit>},
        {"power.default_limit", "W", watts<nvmlDeviceGetPowerManagementDefaultLimit>},
        {"power.min_limit", "W", power_limit<0>},
        {"power.max_limit", "W", power_limit<1>},
        {"clocks_event_reasons.active", "", clock_reasons},
        {"clocks.gr", "MHz", clock<nvmlDeviceGetClockInfo, NVML_CLOCK_GRAPHICS>},
        {"clocks.sm", "MHz", clock<nvmlDeviceGetClockInfo, NVML_CLOCK_SM>},
        {"clocks.mem", "MHz", clock<nvmlDeviceGetClockInfo, NVML_CLOCK_MEM>},
        {"clocks.video", "MHz", clock<nvmlDeviceGetClockInfo, NVML_CLOCK_VIDEO>},
        {"clocks.max.gr", "MHz", clock<nvmlDeviceGetMaxClockInfo, NVML_CLOCK_GRAPHICS>},
        {"clocks.max.sm", "MHz", clock<nvmlDeviceGetMaxClockInfo, NVML_CLOCK_SM>},
        {"clocks.max.mem", "MHz", clock<nvmlDeviceGetMaxClockInfo, NVML_CLOCK_MEM>},
        {"pcie.link.gen.current", "", number<nvmlDeviceGetCurrPcieLinkGeneration>},
        {"pcie.link.gen.max", "", number<nvmlDeviceGetMaxPcieLinkGeneration>},
        {"pcie.link.width.current", "", number<nvmlDeviceGetCurrPcieLinkWidth>},
        {"pcie.link.width.max", "", number<nvmlDeviceGetMaxPcieLinkWidth>},
        {"pcie.replay_counter", "", number<nvmlDeviceGetPcieReplayCounter>},
        {"persistence_mode", "", switched<nvmlDeviceGetPersistenceMode>},
        {"display_mode", "", switched<nvmlDeviceGetDisplayMode>},
        {"display_active", "", switched<nvmlDeviceGetDisplayActive>},
        {"compute_mode", "", compute_mode},
        {"ecc.mode.current", "", ecc_mode},
        {"ecc.errors.uncorrected.volatile.total", "", ecc_errors},
        {"mig.mode.current", "", mig_mode},
    };
    return fields;
}

const Field* find_gpu_field(const std::string& name) {
    static const std::vector<std::pair<std::string, std::string>> aliases{
        {"gpu_name", "name"},
        {"gpu_uuid", "uuid"},
        {"gpu_bus_id", "pci.bus_id"},
        {"clocks.current.sm", "clocks.sm"},
        {"clocks.current.memory", "clocks.mem"},
        {"clocks.current.graphics", "clocks.gr"},
        {"enforced.power.limit", "power.limit"},
        {"power.draw.instant", "power.draw"},
        {"power.draw.average", "power.draw"},
        {"gpu_serial", "serial"},
        {"clocks_throttle_reasons.active", "clocks_event_reasons.active"},
        {"clocks.max.graphics", "clocks.max.gr"},
        {"clocks.max.memory", "clocks.max.mem"},
        {"clocks.current.video", "clocks.video"},
    };
    auto wanted = name;
    for (auto& [alias, real] : aliases)
        if (alias == name) wanted = real;
    for (auto& field : gpu_fields())
        if (wanted == field.name) return &field;
    return nullptr;
}

const std::vector<ProcessField>& process_fields() {
    using P = const Process&;
    static const std::vector<ProcessField> fields{
        {"gpu_name", "", [](G gpu, P) { return gpu.name; }},
        {"gpu_uuid", "", [](G gpu, P) { return gpu.uuid; }},
        {"gpu_bus_id", "", [](G gpu, P) { return gpu.bus_id; }},
        {"pid", "", [](G, P process) { return std::to_string(process.pid); }},
        {"process_name", "", [](G, P process) { return process.name; }},
        {"used_gpu_memory", "MiB", [](G, P process) { return mib(process.used_bytes); }},
    };
    return fields;
}

const ProcessField* find_process_field(const std::string& name) {
    auto wanted = name == "name" ? "process_name" : name == "used_memory" ? "used_gpu_memory" : name;
    for (auto& field : process_fields())
        if (wanted == field.name) return &field;
    return nullptr;
}

}  // namespace tnr::smi
