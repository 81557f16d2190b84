// See nvml_library.hpp.
#include "gpu_server/supervisor/nvml_library.hpp"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "gpu_client/protocol/gpu_facts.hpp"

namespace tnr::server {

NvmlLibrary::NvmlLibrary(const std::string& path) : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    started_ = library_ && call(TNR_NVML(nvmlInit_v2)) == NVML_SUCCESS;
}

void* NvmlLibrary::symbol(const char* name) const {
    return library_ ? dlsym(library_, name) : nullptr;
}

nvmlReturn_t NvmlLibrary::find(const std::string& uuid, nvmlDevice_t& gpu) const {
    return call(TNR_NVML(nvmlDeviceGetHandleByUUID), uuid_text(uuid).c_str(), &gpu);
}

std::string NvmlLibrary::driver_version() const {
    char text[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = {};
    (void)call(TNR_NVML(nvmlSystemGetDriverVersion), text, unsigned{sizeof text});
    return text;
}

std::optional<int> NvmlLibrary::minor_number(const std::string& uuid) const {
    nvmlDevice_t gpu{};
    unsigned minor = 0;
    bool known =
        find(uuid, gpu) == NVML_SUCCESS && call(TNR_NVML(nvmlDeviceGetMinorNumber), gpu, &minor) == NVML_SUCCESS;
    return known ? std::optional<int>(static_cast<int>(minor)) : std::nullopt;
}

namespace {

// The 32 hex digits of "GPU-12345678-…".
std::string uuid_digits(std::string text) {
    text.erase(0, text.find('-') + 1);
    std::erase(text, '-');
    return text;
}

class Reader {
public:
    Reader(const NvmlLibrary& nvml, nvmlDevice_t gpu) : nvml_(nvml), gpu_(gpu) {}

    NvmlReading read(const std::vector<std::string>& all) {
        for (auto& uuid : all) read_peer(uuid);
        for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) read_nvlink(link);
        read_state();
        read_board();
        read_link();
        read_clocks();
        read_use();
        read_errors();
        read_memory();
        read_processes();
        return std::move(reading_);
    }

private:
    // A GPU that is lost says so to every question; the first that hears it is enough.
    bool ok(nvmlReturn_t result) {
        reading_.lost |= result == NVML_ERROR_GPU_IS_LOST;
        return result == NVML_SUCCESS;
    }
    template <class Number>
    void one(const char* name, nvmlReturn_t (*type)(nvmlDevice_t, Number*), const char* key) {
        Number value{};
        if (ok(nvml_.call(name, type, gpu_, &value))) reading_.values[key] = static_cast<int64_t>(value);
    }
    // The second number is what it will be after a restart, or how long was measured.
    template <class Number, class Other>
    void first(const char* name, nvmlReturn_t (*type)(nvmlDevice_t, Number*, Other*), const char* key) {
        Number value{};
        Other other{};
        if (ok(nvml_.call(name, type, gpu_, &value, &other))) reading_.values[key] = static_cast<int64_t>(value);
    }
    template <class Kind>
    void of_kind(const char* name, nvmlReturn_t (*type)(nvmlDevice_t, Kind, unsigned*), Kind kind, const char* key) {
        unsigned value = 0;
        if (ok(nvml_.call(name, type, gpu_, kind, &value))) reading_.values[key] = value;
    }

    void read_state() {
        one(TNR_NVML(nvmlDeviceGetFanSpeed), gpu_value::fan_percent);
        one(TNR_NVML(nvmlDeviceGetPowerUsage), gpu_value::power_mw);
        one(TNR_NVML(nvmlDeviceGetEnforcedPowerLimit), gpu_value::power_limit_mw);
        one(TNR_NVML(nvmlDeviceGetPersistenceMode), gpu_value::persistence);
        one(TNR_NVML(nvmlDeviceGetComputeMode), gpu_value::compute_mode);
        one(TNR_NVML(nvmlDeviceGetPerformanceState), gpu_value::performance_state);
        auto state = reading_.values.find(gpu_value::performance_state);
        if (state != reading_.values.end() && state->second > NVML_PSTATE_15) reading_.values.erase(state);  // unknown
        of_kind(TNR_NVML(nvmlDeviceGetTemperature), NVML_TEMPERATURE_GPU, gpu_value::temperature_c);
        one(TNR_NVML(nvmlDeviceGetTotalEnergyConsumption), gpu_value::energy_mj);
        read_memory_temperature();
        one(TNR_NVML(nvmlDeviceGetCurrentClocksEventReasons), gpu_value::clock_reasons);
    }
    // No function of its own: a field, which may be refused although the question was taken.
    void read_memory_temperature() {
        nvmlFieldValue_t field{};
        field.fieldId = NVML_FI_DEV_MEMORY_TEMP;
        if (ok(nvml_.call(TNR_NVML(nvmlDeviceGetFieldValues), gpu_, 1, &field)) && ok(field.nvmlReturn))
            reading_.values[gpu_value::memory_temperature_c] = field.value.uiVal;
    }
    void read_board() {
        one(TNR_NVML(nvmlDeviceGetBrand), gpu_value::brand);
        one(TNR_NVML(nvmlDeviceGetMultiGpuBoard), gpu_value::multi_gpu_board);
        one(TNR_NVML(nvmlDeviceGetNumFans), gpu_value::fans);
        one(TNR_NVML(nvmlDeviceGetVirtualizationMode), gpu_value::virtualization);
        first(TNR_NVML(nvmlDeviceGetGspFirmwareMode), gpu_value::gsp_firmware);
        one(TNR_NVML(nvmlDeviceGetPowerManagementDefaultLimit), gpu_value::power_limit_default_mw);
        for (unsigned limit = 0; limit < std::size(gpu_value::temperature_limit_c); ++limit)
            of_kind(TNR_NVML(nvmlDeviceGetTemperatureThreshold), static_cast<nvmlTemperatureThresholds_t>(limit),
                    gpu_value::temperature_limit_c[limit]);
        unsigned least = 0, most = 0;
        if (!ok(nvml_.call(TNR_NVML(nvmlDeviceGetPowerManagementLimitConstraints), gpu_, &least, &most))) return;
        reading_.values[gpu_value::power_limit_min_mw] = least;
        reading_.values[gpu_value::power_limit_max_mw] = most;
    }
    void read_link() {
        one(TNR_NVML(nvmlDeviceGetCurrPcieLinkGeneration), gpu_value::pcie_generation);
        one(TNR_NVML(nvmlDeviceGetCurrPcieLinkWidth), gpu_value::pcie_width);
        one(TNR_NVML(nvmlDeviceGetMaxPcieLinkGeneration), gpu_value::pcie_generation_max);
        one(TNR_NVML(nvmlDeviceGetMaxPcieLinkWidth), gpu_value::pcie_width_max);
        one(TNR_NVML(nvmlDeviceGetPcieReplayCounter), gpu_value::pcie_replays);
    }
    void read_peer(const std::string& uuid) {
        nvmlDevice_t other{};
        if (nvml_.find(uuid, other) != NVML_SUCCESS || other == gpu_) return;
        for (unsigned index = 0; index < NVML_P2P_CAPS_INDEX_UNKNOWN; ++index) {
            auto status = NVML_P2P_STATUS_UNKNOWN;
            auto result = nvml_.call(TNR_NVML(nvmlDeviceGetP2PStatus), gpu_, other,
                                     static_cast<nvmlGpuP2PCapsIndex_t>(index), &status);
            if (ok(result)) reading_.peers[uuid] |= unsigned{status == NVML_P2P_STATUS_OK} << index;
        }
    }
    void read_nvlink(unsigned link) {
        auto active = NVML_FEATURE_DISABLED;
        if (!ok(nvml_.call(TNR_NVML(nvmlDeviceGetNvLinkState), gpu_, link, &active)) || active == NVML_FEATURE_DISABLED)
            return;
        auto kind = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
        if (!ok(nvml_.call(TNR_NVML(nvmlDeviceGetNvLinkRemoteDeviceType), gpu_, link, &kind))) return;
        if (kind == NVML_NVLINK_DEVICE_TYPE_SWITCH) reading_.links[link] = "";
        nvmlPciInfo_t pci{};
        nvmlDevice_t other{};
        char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = {};
        if (kind == NVML_NVLINK_DEVICE_TYPE_GPU &&
            ok(nvml_.call(TNR_NVML(nvmlDeviceGetNvLinkRemotePciInfo_v2), gpu_, link, &pci)) &&
            ok(nvml_.call(TNR_NVML(nvmlDeviceGetHandleByPciBusId_v2), static_cast<const char*>(pci.busId), &other)) &&
            ok(nvml_.call(TNR_NVML(nvmlDeviceGetUUID), other, uuid, unsigned{sizeof uuid})))
            reading_.links[link] = uuid_digits(uuid);
    }
    void read_clocks() {
        constexpr nvmlClockType_t kinds[] = {NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_CLOCK_VIDEO};
        for (auto kind : kinds) {
            of_kind(TNR_NVML(nvmlDeviceGetClockInfo), kind, gpu_value::clock_mhz[kind]);
            of_kind(TNR_NVML(nvmlDeviceGetMaxClockInfo), kind, gpu_value::clock_max_mhz[kind]);
        }
    }
    void read_use() {
        nvmlUtilization_t rates{};
        if (ok(nvml_.call(TNR_NVML(nvmlDeviceGetUtilizationRates), gpu_, &rates))) {
            reading_.values[gpu_value::gpu_percent] = rates.gpu;
            reading_.values[gpu_value::memory_percent] = rates.memory;
        }
        first(TNR_NVML(nvmlDeviceGetEncoderUtilization), gpu_value::encoder_percent);
        first(TNR_NVML(nvmlDeviceGetDecoderUtilization), gpu_value::decoder_percent);
    }
    void read_errors() {
        first(TNR_NVML(nvmlDeviceGetEccMode), gpu_value::ecc);
        first(TNR_NVML(nvmlDeviceGetMigMode), gpu_value::mig);
        for (auto type : {NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED})
            for (auto since : {NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC}) read_ecc_errors(type, since);
        unsigned rows[std::size(gpu_value::remapped_rows)] = {};
        if (!ok(nvml_.call(TNR_NVML(nvmlDeviceGetRemappedRows), gpu_, &rows[0], &rows[1], &rows[2], &rows[3]))) return;
        for (size_t i = 0; i < std::size(rows); ++i) reading_.values[gpu_value::remapped_rows[i]] = rows[i];
    }
    void read_ecc_errors(nvmlMemoryErrorType_t type, nvmlEccCounterType_t since) {
        unsigned long long errors = 0;
        if (ok(nvml_.call(TNR_NVML(nvmlDeviceGetTotalEccErrors), gpu_, type, since, &errors)))
            reading_.values[gpu_value::ecc_errors[type][since]] = static_cast<int64_t>(errors);
    }
    // What nvidia-smi shows as used: without the driver's own part, where the library tells the two apart.
    void read_memory() {
        nvmlMemory_v2_t memory{};
        memory.version = nvmlMemory_v2;
        nvmlMemory_t older{};
        if (ok(nvml_.call(TNR_NVML(nvmlDeviceGetMemoryInfo_v2), gpu_, &memory)))
            reading_.memory_used = memory.used;
        else if (ok(nvml_.call(TNR_NVML(nvmlDeviceGetMemoryInfo), gpu_, &older)))
            reading_.memory_used = older.used;
    }
    void read_processes() {
        static_assert(sizeof(nvmlProcessInfo_t) == sizeof(nvmlProcessInfo_v2_t));  // version 3 changed no field
        std::vector<nvmlProcessInfo_t> processes(64);                              // workers of one GPU: a handful
        unsigned count = 0;
        auto result = list(processes, count);
        if (result == NVML_ERROR_INSUFFICIENT_SIZE) {
            processes.resize(count + size_t{64});  // some may start meanwhile
            result = list(processes, count);
        }
        if (!ok(result)) return;
        for (unsigned i = 0; i < count && i < processes.size(); ++i)
            if (processes[i].usedGpuMemory != static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE))
                reading_.process_bytes[static_cast<int>(processes[i].pid)] = processes[i].usedGpuMemory;
    }
    nvmlReturn_t list(std::vector<nvmlProcessInfo_t>& processes, unsigned& count) {
        count = static_cast<unsigned>(processes.size());
        auto result = nvml_.call(TNR_NVML(nvmlDeviceGetComputeRunningProcesses_v3), gpu_, &count, processes.data());
        if (result != NVML_ERROR_FUNCTION_NOT_FOUND) return result;  // before driver 510 there is version 2 only
        count = static_cast<unsigned>(processes.size());
        return nvml_.call(TNR_NVML(nvmlDeviceGetComputeRunningProcesses_v2), gpu_, &count, processes.data());
    }

    const NvmlLibrary& nvml_;
    nvmlDevice_t gpu_;
    NvmlReading reading_;
};

}  // namespace

NvmlReading read_gpu(const NvmlLibrary& nvml, const std::string& uuid, const std::vector<std::string>& all) {
    nvmlDevice_t gpu{};
    auto found = nvml.find(uuid, gpu);
    if (found == NVML_SUCCESS) return Reader(nvml, gpu).read(all);
    NvmlReading none;
    none.lost = found == NVML_ERROR_GPU_IS_LOST;
    return none;
}

}  // namespace tnr::server
