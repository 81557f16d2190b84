// The numbers: each function gives one value of the snapshot, or says that this GPU does not have it.
#include "gpu_client/nvml/export.hpp"
#include "gpu_client/nvml/library.hpp"

using namespace tnr;
using namespace tnr::nvml;

static bool is_lost(const GpuFacts& gpu) {
    return value_of(gpu, gpu_value::lost).has_value();
}

static nvmlReturn_t give_clock(nvmlDevice_t device, const char* const* keys, nvmlClockType_t type, unsigned* mhz) {
    if (type < NVML_CLOCK_GRAPHICS || type > NVML_CLOCK_VIDEO) return NVML_ERROR_INVALID_ARGUMENT;
    return give(device, keys[type], mhz);
}

NVML_EXPORT nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
    if (!memory) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        if (is_lost(gpu)) return NVML_ERROR_GPU_IS_LOST;
        *memory = {gpu.memory_total, gpu.memory_total - gpu.memory_used, gpu.memory_used};
        return NVML_SUCCESS;
    });
}

NVML_EXPORT nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
    if (!memory) return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        if (is_lost(gpu)) return NVML_ERROR_GPU_IS_LOST;
        *memory = {nvmlMemory_v2, gpu.memory_total, 0, gpu.memory_total - gpu.memory_used, gpu.memory_used};
        return NVML_SUCCESS;
    });
}

NVML_EXPORT nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* rates) {
    if (!rates) return NVML_ERROR_INVALID_ARGUMENT;
    auto result = give(device, gpu_value::gpu_percent, &rates->gpu);
    return result == NVML_SUCCESS ? give(device, gpu_value::memory_percent, &rates->memory) : result;
}

NVML_EXPORT nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned* percent, unsigned* period_us) {
    if (period_us) *period_us = answer_good_for_ms * 1000;
    return give(device, gpu_value::encoder_percent, percent);
}
NVML_EXPORT nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned* percent, unsigned* period_us) {
    if (period_us) *period_us = answer_good_for_ms * 1000;
    return give(device, gpu_value::decoder_percent, percent);
}

NVML_EXPORT nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t, unsigned* celsius) {
    return give(device, gpu_value::temperature_c, celsius);
}
NVML_EXPORT nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t* temperature) {
    if (!temperature) return NVML_ERROR_INVALID_ARGUMENT;
    if (temperature->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return give(device, gpu_value::temperature_c, &temperature->temperature);
}
NVML_EXPORT nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t limit,
                                              unsigned* celsius) {
    if (limit < 0 || limit >= NVML_TEMPERATURE_THRESHOLD_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    if (size_t{limit} >= std::size(gpu_value::temperature_limit_c)) return NVML_ERROR_NOT_SUPPORTED;
    return give(device, gpu_value::temperature_limit_c[limit], celsius);
}
NVML_EXPORT nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned* percent) {
    return give(device, gpu_value::fan_percent, percent);
}
NVML_EXPORT nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned fan, unsigned* percent) {
    return fan == 0 ? give(device, gpu_value::fan_percent, percent) : NVML_ERROR_INVALID_ARGUMENT;
}
NVML_EXPORT nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned* count) {
    return give(device, gpu_value::fans, count, zero_if_emulated);
}
NVML_EXPORT nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* milliwatts) {
    return give(device, gpu_value::power_mw, milliwatts);
}
NVML_EXPORT nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* millijoules) {
    return give(device, gpu_value::energy_mj, millijoules);
}
NVML_EXPORT nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned* milliwatts) {
    return give(device, gpu_value::power_limit_mw, milliwatts);
}
NVML_EXPORT nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned* milliwatts) {
    return give(device, gpu_value::power_limit_mw, milliwatts);
}
NVML_EXPORT nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned* milliwatts) {
    return give(device, gpu_value::power_limit_default_mw, milliwatts);
}
NVML_EXPORT nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned* least, unsigned* most) {
    auto result = give(device, gpu_value::power_limit_min_mw, least);
    return result == NVML_SUCCESS ? give(device, gpu_value::power_limit_max_mw, most) : result;
}
NVML_EXPORT nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned* mhz) {
    return give_clock(device, gpu_value::clock_mhz, type, mhz);
}
NVML_EXPORT nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned* mhz) {
    return give_clock(device, gpu_value::clock_max_mhz, type, mhz);
}
// An emulated GPU is always as fast as it can be: P0, which is 0.
NVML_EXPORT nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t* state) {
    return give(device, gpu_value::performance_state, state, zero_if_emulated);
}
NVML_EXPORT nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t* state) {
    return nvmlDeviceGetPerformanceState(device, state);
}
// Where the pool does not know better: it keeps a driver on every GPU whether somebody uses it or not.
NVML_EXPORT nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
    return give(device, gpu_value::persistence, mode,
                [](const GpuFacts&) { return std::optional<int64_t>(NVML_FEATURE_ENABLED); });
}
NVML_EXPORT nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
    return give(device, gpu_value::compute_mode, mode);
}
NVML_EXPORT nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* current, nvmlEnableState_t* pending) {
    if (pending) (void)give(device, gpu_value::ecc, pending);
    return give(device, gpu_value::ecc, current);
}
NVML_EXPORT nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
    return give(device, gpu_value::ecc, mode);
}
NVML_EXPORT nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t since,
                                        unsigned long long* count) {
    if (type < 0 || type >= NVML_MEMORY_ERROR_TYPE_COUNT || since < 0 || since >= NVML_ECC_COUNTER_TYPE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    return give(device, gpu_value::ecc_errors[type][since], count);
}
NVML_EXPORT nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* current, unsigned* pending) {
    if (pending) (void)give(device, gpu_value::mig, pending);
    return give(device, gpu_value::mig, current);
}
NVML_EXPORT nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned* generation) {
    return give(device, gpu_value::pcie_generation, generation);
}
NVML_EXPORT nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned* width) {
    return give(device, gpu_value::pcie_width, width);
}
NVML_EXPORT nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned* generation) {
    return give(device, gpu_value::pcie_generation_max, generation);
}
NVML_EXPORT nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned* width) {
    return give(device, gpu_value::pcie_width_max, width);
}
NVML_EXPORT nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned* count) {
    return give(device, gpu_value::pcie_replays, count, zero_if_emulated);
}
NVML_EXPORT nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned* bits) {
    return give(device, gpu_value::memory_bus_bits, bits);
}
NVML_EXPORT nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
    return give(device, gpu_value::clock_reasons, reasons, zero_if_emulated);
}
NVML_EXPORT nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
    return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

// No display can be attached to a GPU across a network.
NVML_EXPORT nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t* state) {
    return constant(device, state, NVML_FEATURE_DISABLED);
}
NVML_EXPORT nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t* state) {
    return constant(device, state, NVML_FEATURE_DISABLED);
}
