// See fields.hpp. To add one: a line in told_fields(), or in a file of field_groups.hpp.
#include "gpu_client/nvidia_smi/fields.hpp"

#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "gpu_client/nvidia_smi/field_groups.hpp"

namespace tnr::smi {

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

template <auto Function>
static std::string clock_reasons(const System&, const Gpu& gpu) {
    unsigned long long reasons = 0;
    auto result = Function(gpu.handle, &reasons);
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

static std::string reserved_memory(const System&, const Gpu& gpu) {
    nvmlMemory_v2_t told{};
    told.version = nvmlMemory_v2;
    auto result = nvmlDeviceGetMemoryInfo_v2(gpu.handle, &told);
    return result == NVML_SUCCESS ? mib(told.reserved) : missing(result);
}

static std::string host_name(const System&, const Gpu&) {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? name : not_available;
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

static std::vector<Field> told_fields() {
    return {
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
        {"memory.reserved", "MiB", reserved_memory},
        {"utilization.gpu", "%", [](S, G gpu) { return utilization(gpu, &nvmlUtilization_t::gpu); }},
        {"utilization.memory", "%", [](S, G gpu) { return utilization(gpu, &nvmlUtilization_t::memory); }},
        {"utilization.encoder", "%", coder<nvmlDeviceGetEncoderUtilization>},
        {"utilization.decoder", "%", coder<nvmlDeviceGetDecoderUtilization>},
        {"temperature.gpu", "", temperature},
        {"fan.speed", "%", number<nvmlDeviceGetFanSpeed>},
        {"pstate", "", performance_state},
        {"power.draw", "W", watts<nvmlDeviceGetPowerUsage>},
        {"power.draw.average", "W", watts<nvmlDeviceGetPowerUsage>},
        {"power.draw.instant", "W", watts<nvmlDeviceGetPowerUsage>},
        {"power.limit", "W", watts<nvmlDeviceGetEnforcedPowerLimit>},
        {"enforced.power.limit", "W", watts<nvmlDeviceGetEnforcedPowerLimit>},
        {"power.default_limit", "W", watts<nvmlDeviceGetPowerManagementDefaultLimit>},
        {"power.min_limit", "W", power_limit<0>},
        {"power.max_limit", "W", power_limit<1>},
        {"clocks_event_reasons.supported", "", clock_reasons<nvmlDeviceGetSupportedClocksEventReasons>},
        {"clocks_event_reasons.active", "", clock_reasons<nvmlDeviceGetCurrentClocksEventReasons>},
        {"clocks.current.graphics", "MHz", clock<nvmlDeviceGetClockInfo, NVML_CLOCK_GRAPHICS>},
        {"clocks.current.sm", "MHz", clock<nvmlDeviceGetClockInfo, NVML_CLOCK_SM>},
        {"clocks.current.memory", "MHz", clock<nvmlDeviceGetClockInfo, NVML_CLOCK_MEM>},
        {"clocks.current.video", "MHz", clock<nvmlDeviceGetClockInfo, NVML_CLOCK_VIDEO>},
        {"clocks.max.graphics", "MHz", clock<nvmlDeviceGetMaxClockInfo, NVML_CLOCK_GRAPHICS>},
        {"clocks.max.sm", "MHz", clock<nvmlDeviceGetMaxClockInfo, NVML_CLOCK_SM>},
        {"clocks.max.memory", "MHz", clock<nvmlDeviceGetMaxClockInfo, NVML_CLOCK_MEM>},
        {"pcie.link.gen.current", "", number<nvmlDeviceGetCurrPcieLinkGeneration>},
        {"pcie.link.gen.max", "", number<nvmlDeviceGetMaxPcieLinkGeneration>},
        {"pcie.link.width.current", "", number<nvmlDeviceGetCurrPcieLinkWidth>},
        {"pcie.link.width.max", "", number<nvmlDeviceGetMaxPcieLinkWidth>},
        {"pcie.replay_counter", "", number<nvmlDeviceGetPcieReplayCounter>},
        {"hostname", "", host_name},
    };
}

const std::vector<Field>& gpu_fields() {
    static const std::vector<Field> fields = [] {
        auto all = told_fields();
        for (auto& more : {mode_fields(), health_fields(), untold_fields()})
            all.insert(all.end(), more.begin(), more.end());
        return all;
    }();
    return fields;
}

// NVIDIA's other names for the same, and older ones.
static const std::pair<const char*, const char*> aliases[] = {
    {"gpu_name", "name"},
    {"gpu_uuid", "uuid"},
    {"gpu_bus_id", "pci.bus_id"},
    {"gpu_serial", "serial"},
    {"clocks.sm", "clocks.current.sm"},
    {"clocks.mem", "clocks.current.memory"},
    {"clocks.gr", "clocks.current.graphics"},
    {"clocks.video", "clocks.current.video"},
    {"clocks.max.gr", "clocks.max.graphics"},
    {"clocks.max.mem", "clocks.max.memory"},
    {"clocks.applications.gr", "clocks.applications.graphics"},
    {"clocks.applications.mem", "clocks.applications.memory"},
    {"clocks.default_applications.gr", "clocks.default_applications.graphics"},
    {"clocks.default_applications.mem", "clocks.default_applications.memory"},
    {"gom.current", "gpu_operation_mode.current"},
    {"gom.pending", "gpu_operation_mode.pending"},
    {"pcie.link.gen.gpucurrent", "pcie.link.gen.current"},
    {"pcie.link.gen.gpumax", "pcie.link.gen.max"},
    {"retired_pages.sbe", "retired_pages.single_bit_ecc.count"},
    {"retired_pages.dbe", "retired_pages.double_bit.count"},
};

static std::string real_name(const std::string& name) {
    constexpr const char *older = "clocks_throttle_reasons", *newer = "clocks_event_reasons";
    if (name.starts_with(older)) return newer + name.substr(std::string(older).size());
    for (auto& [alias, real] : aliases)
        if (name == alias) return real;
    return name;
}

const Field* find_gpu_field(const std::string& name) {
    auto wanted = real_name(name);
    for (auto& field : gpu_fields())
        if (wanted == field.name) return &field;
    return nullptr;
}

const std::vector<ProcessField>& process_fields() {
    using P = const Process&;
    static const std::vector<ProcessField> fields{
        {"timestamp", "", [](G, P) { return timestamp({}, {}); }},
        {"gpu_serial", "", [](G gpu, P) { return text<nvmlDeviceGetSerial>({}, gpu); }},
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
