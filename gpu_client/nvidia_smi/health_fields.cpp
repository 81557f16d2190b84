// Errors, repairs, slow clocks, and what nobody tells. See field_groups.hpp.
#include "gpu_client/nvidia_smi/field_groups.hpp"

#include <set>

namespace tnr::smi {
namespace {

using S = const System&;
using G = const Gpu&;

template <unsigned long long Reason>
std::string is_slowed_by(S, G gpu) {
    unsigned long long reasons = 0;
    auto result = nvmlDeviceGetCurrentClocksEventReasons(gpu.handle, &reasons);
    if (result != NVML_SUCCESS) return missing(result);
    return reasons & Reason ? "Active" : "Not Active";
}

template <nvmlPageRetirementCause_t Cause>
std::string retired_pages(S, G gpu) {
    unsigned count = 0;
    auto result = nvmlDeviceGetRetiredPages(gpu.handle, Cause, &count, nullptr);
    return result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE ? std::to_string(count) : missing(result);
}

std::string retirement_is_pending(S, G gpu) {
    nvmlEnableState_t pending{};
    auto result = nvmlDeviceGetRetiredPagesPendingStatus(gpu.handle, &pending);
    if (result != NVML_SUCCESS) return missing(result);
    return pending == NVML_FEATURE_ENABLED ? "Yes" : "No";
}

// In the order of nvmlDeviceGetRemappedRows: two counts, then two yes or no.
template <unsigned Which>
std::string remapped_rows(S, G gpu) {
    unsigned told[4] = {};
    auto result = nvmlDeviceGetRemappedRows(gpu.handle, &told[0], &told[1], &told[2], &told[3]);
    if (result != NVML_SUCCESS) return missing(result);
    if (Which < 2) return std::to_string(told[Which]);
    return told[Which] ? "Yes" : "No";
}

std::string untold(S, G) {
    return not_available;
}

template <nvmlMemoryErrorType_t Type, nvmlEccCounterType_t Since>
std::string ecc_errors(S, G gpu) {
    unsigned long long count = 0;
    auto result = nvmlDeviceGetTotalEccErrors(gpu.handle, Type, Since, &count);
    return result == NVML_SUCCESS ? std::to_string(count) : missing(result);
}

std::string memory_temperature(S, G gpu) {
    nvmlFieldValue_t field{};
    field.fieldId = NVML_FI_DEV_MEMORY_TEMP;
    auto result = nvmlDeviceGetFieldValues(gpu.handle, 1, &field);
    if (result == NVML_SUCCESS) result = field.nvmlReturn;
    return result == NVML_SUCCESS ? std::to_string(field.value.uiVal) : missing(result);
}

// "ecc.errors.corrected.volatile.dram" and its siblings, but the totals.
std::set<std::string> names_of_ecc_counters() {
    std::set<std::string> names;
    for (const char* kind : {"corrected.", "uncorrected."})
        for (const char* since : {"volatile.", "aggregate."})
            for (const char* where :
                 {"device_memory", "dram", "register_file", "l1_cache", "l2_cache", "texture_memory", "cbu", "sram"})
                names.insert(std::string("ecc.errors.") + kind + since + where);
    return names;
}

}  // namespace

std::vector<Field> health_fields() {
    return {
        {"clocks_event_reasons.gpu_idle", "", is_slowed_by<nvmlClocksEventReasonGpuIdle>},
        {"clocks_event_reasons.applications_clocks_setting", "",
         is_slowed_by<nvmlClocksEventReasonApplicationsClocksSetting>},
        {"clocks_event_reasons.sw_power_cap", "", is_slowed_by<nvmlClocksEventReasonSwPowerCap>},
        {"clocks_event_reasons.hw_slowdown", "", is_slowed_by<nvmlClocksThrottleReasonHwSlowdown>},
        {"clocks_event_reasons.hw_thermal_slowdown", "", is_slowed_by<nvmlClocksThrottleReasonHwThermalSlowdown>},
        {"clocks_event_reasons.hw_power_brake_slowdown", "",
         is_slowed_by<nvmlClocksThrottleReasonHwPowerBrakeSlowdown>},
        {"clocks_event_reasons.sw_thermal_slowdown", "", is_slowed_by<nvmlClocksEventReasonSwThermalSlowdown>},
        {"clocks_event_reasons.sync_boost", "", is_slowed_by<nvmlClocksEventReasonSyncBoost>},
        {"temperature.memory", "", memory_temperature},
        {"ecc.errors.corrected.volatile.total", "", ecc_errors<NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC>},
        {"ecc.errors.corrected.aggregate.total", "", ecc_errors<NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_AGGREGATE_ECC>},
        {"ecc.errors.uncorrected.volatile.total", "",
         ecc_errors<NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC>},
        {"ecc.errors.uncorrected.aggregate.total", "",
         ecc_errors<NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC>},
        {"retired_pages.single_bit_ecc.count", "",
         retired_pages<NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS>},
        {"retired_pages.double_bit.count", "", retired_pages<NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR>},
        {"retired_pages.pending", "", retirement_is_pending},
        {"remapped_rows.correctable", "", remapped_rows<0>},
        {"remapped_rows.uncorrectable", "", remapped_rows<1>},
        {"remapped_rows.pending", "", remapped_rows<2>},
        {"remapped_rows.failure", "", remapped_rows<3>},
    };
}

std::vector<Field> untold_fields() {
    static const auto ecc = names_of_ecc_counters();
    static constexpr const char* names[] = {"vgpu_driver_capability.heterogenous_multivGPU",
                                            "vgpu_device_capability.fractional_multiVgpu",
                                            "vgpu_device_capability.heterogeneous_timeSlice_profile",
                                            "vgpu_device_capability.heterogeneous_timeSlice_sizes",
                                            "vgpu_device_capability.homogeneous_placements",
                                            "vgpu_device_capability.mig_timeslicing_supported",
                                            "vgpu_device_capability.mig_timeslicing_enabled",
                                            "vgpu_device_capability.read_device_buffer_bar1",
                                            "vgpu_device_capability.write_device_buffer_bar1",
                                            "pci.baseClass",
                                            "pci.subClass",
                                            "pcie.link.gen.hostmax",
                                            "accounting.buffer_size",
                                            "driver_model.current",
                                            "driver_model.pending",
                                            "inforom.img",
                                            "inforom.image",
                                            "inforom.oem",
                                            "inforom.ecc",
                                            "inforom.pwr",
                                            "inforom.power",
                                            "inforom.checksum_validation",
                                            "gpu_operation_mode.current",
                                            "gpu_operation_mode.pending",
                                            "clocks_event_reasons_counters.sw_power_cap",
                                            "clocks_event_reasons_counters.sync_boost",
                                            "clocks_event_reasons_counters.sw_thermal_slowdown",
                                            "clocks_event_reasons_counters.hw_thermal_slowdown",
                                            "clocks_event_reasons_counters.hw_power_brake_slowdown",
                                            "utilization.jpeg",
                                            "utilization.ofa",
                                            "encoder.stats.sessionCount",
                                            "encoder.stats.averageFps",
                                            "encoder.stats.averageLatency",
                                            "dramEncryption.mode.current",
                                            "dramEncryption.mode.pending",
                                            "ecc.errors.uncorrected.volatile.sram.parity",
                                            "ecc.errors.uncorrected.volatile.sram.sec-ded",
                                            "ecc.errors.uncorrected.aggregate.sram.parity",
                                            "ecc.errors.uncorrected.aggregate.sram.sec-ded",
                                            "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
                                            "ecc.errors.uncorrected.aggregate.sram.l2",
                                            "ecc.errors.uncorrected.aggregate.sram.sm",
                                            "ecc.errors.uncorrected.aggregate.sram.mcu",
                                            "ecc.errors.uncorrected.aggregate.sram.pcie",
                                            "ecc.errors.uncorrected.aggregate.sram.other",
                                            "remapped_rows.histogram.max",
                                            "remapped_rows.histogram.high",
                                            "remapped_rows.histogram.partial",
                                            "remapped_rows.histogram.low",
                                            "remapped_rows.histogram.none",
                                            "temperature.gpu.tlimit",
                                            "power.management",
                                            "module.power.draw.average",
                                            "module.power.draw.instant",
                                            "module.power.limit",
                                            "module.enforced.power.limit",
                                            "module.power.default_limit",
                                            "module.power.min_limit",
                                            "module.power.max_limit",
                                            "clocks.applications.graphics",
                                            "clocks.applications.memory",
                                            "clocks.default_applications.graphics",
                                            "clocks.default_applications.memory",
                                            "protected_memory.total",
                                            "protected_memory.used",
                                            "protected_memory.free",
                                            "fabric.state",
                                            "fabric.status",
                                            "fabric.cliqueId",
                                            "fabric.clusterUuid",
                                            "gpu_recovery_action",
                                            "fabric.health.summary",
                                            "fabric.health.bandwidth",
                                            "fabric.health.route_recovery",
                                            "fabric.health.route_unhealthy",
                                            "fabric.health.access_timeout",
                                            "fabric.health.incorrect_configuration",
                                            "platform.chassis_serial_number",
                                            "platform.slot_number",
                                            "platform.tray_index",
                                            "platform.host_id",
                                            "platform.peer_type",
                                            "platform.module_id",
                                            "platform.gpu_fabric_guid",
                                            "platform.rack_guid",
                                            "power_smoothing.enabled",
                                            "power_smoothing.privilege_level",
                                            "edpp_multiplier"};
    std::vector<Field> fields;
    for (const char* name : names) fields.push_back({name, "", untold});
    for (auto& name : ecc) fields.push_back({name.c_str(), "", untold});
    return fields;
}

}  // namespace tnr::smi
