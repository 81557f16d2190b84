// The numbers: each function gives one value of the snapshot, or says that this GPU does not have it.
#include "gpu_client/nvml/export.hpp"
#include "gpu_client/nvml/library.hpp"

using namespace tnr;
using namespace tnr::nvml;

static bool is_lost(const GpuFacts& gpu) {
    return gpu.values.count(gpu_value::lost) != 0;
}

template <class Number>
static nvmlReturn_t give(nvmlDevice_t device, const char* key, Number* where) {
    if (!where) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        if (is_lost(gpu)) return NVML_ERROR_GPU_IS_LOST;
        auto found = gpu.values.find(key);
        if (found == gpu.values.end()) return NVML_ERROR_NOT_SUPPORTED;
        *where = static_cast<Number>(found->second);
        return NVML_SUCCESS;
    });
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
    return give(device, gpu_value::temperature_c, &temperature->temperature);
}
NVML_EXPORT nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned* percent) {
    return give(device, gpu_value::fan_percent, percent);
}
NVML_EXPORT nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* milliwatts) {
    return give(device, gpu_value::power_mw, milliwatts);
}
NVML_EXPORT nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned* milliwatts) {
    return give(device, gpu_value::power_limit_mw, milliwatts);
}
NVML_EXPORT nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned* milliwatts) {
    return give(device, gpu_value::power_limit_mw, milliwatts);
}
NVML_EXPORT nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned* mhz) {
    return give_clock(device, gpu_value::clock_mhz, type, mhz);
}
NVML_EXPORT nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned* mhz) {
    return give_clock(device, gpu_value::clock_max_mhz, type, mhz);
}
NVML_EXPORT nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t* state) {
    return give(device, gpu_value::performance_state, state);
}
NVML_EXPORT nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
    return give(device, gpu_value::persistence, mode);
}
NVML_EXPORT nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
    return give(device, gpu_value::compute_mode, mode);
}
NVML_EXPORT nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* current, nvmlEnableState_t* pending) {
    if (pending) (void)give(device, gpu_value::ecc, pending);
    return give(device, gpu_value::ecc, current);
}
NVML_EXPORT nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t,
                                        unsigned long long* count) {
    if (type != NVML_MEMORY_ERROR_TYPE_UNCORRECTED) return NVML_ERROR_NOT_SUPPORTED;
    return give(device, gpu_value::ecc_uncorrected, count);
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

// No display can be attached to a GPU across a network.
static nvmlReturn_t disabled(nvmlDevice_t device, nvmlEnableState_t* state) {
    if (!state) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts&, unsigned) {
        *state = NVML_FEATURE_DISABLED;
        return NVML_SUCCESS;
    });
}
NVML_EXPORT nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t* state) {
    return disabled(device, state);
}
NVML_EXPORT nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t* state) {
    return disabled(device, state);
}

// Each field answers for itself; those that this library has no value for say so.
NVML_EXPORT nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
    if (!values || count < 0) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts&, unsigned) {
        for (int i = 0; i < count; ++i) values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        return NVML_SUCCESS;
    });
}
