// A libnvidia-ml.so.1 for machines without a GPU: answers what a file says, so that the supervisor's use of NVML can be
// tested without one. Declared by nvml.h itself, so a call with other types than NVIDIA's does not compile here.
//
// TNR_NVML_STAND_IN names the file, which is read anew at every call. A line: UUID, function, numbers; `!N` in place of
// numbers is the nvmlReturn_t N. A function without a line is not supported by that GPU. `UUID process PID BYTES` is a
// process. TNR_STAND_IN_OLD leaves out what drivers before 510 lack.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#pragma GCC visibility push(default)  // what nvml.h declares is what this library exports
#include <nvml.h>
#pragma GCC visibility pop

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Words = std::vector<std::string>;

std::vector<Words> lines() {
    const char* path = getenv("TNR_NVML_STAND_IN");
    std::ifstream file(path ? path : "");
    std::vector<Words> found;
    for (std::string line; std::getline(file, line);) {
        std::istringstream text(line);
        Words words;
        for (std::string word; text >> word;) words.push_back(word);
        if (words.size() > 2) found.push_back(std::move(words));
    }
    return found;
}

std::vector<std::string> uuids() {
    std::vector<std::string> found;
    for (auto& line : lines())
        if (line[1] == "nvmlDeviceGetHandleByUUID") found.push_back(line[0]);
    return found;
}

// Handles are ordinals among the file's GPUs, counted from 1.
std::string uuid_of(nvmlDevice_t device) {
    auto all = uuids();
    auto ordinal = reinterpret_cast<uintptr_t>(device);
    return ordinal >= 1 && ordinal <= all.size() ? all[ordinal - 1] : "";
}

// What the file says of this function: its numbers, or the error.
nvmlReturn_t look_up(const std::string& uuid, const char* function, std::vector<unsigned long long>& numbers) {
    for (auto& line : lines()) {
        if (line[0] != uuid || line[1] != function) continue;
        if (line[2][0] == '!') return static_cast<nvmlReturn_t>(std::stoi(line[2].substr(1)));
        for (size_t i = 2; i < line.size(); ++i) numbers.push_back(std::stoull(line[i]));
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

template <class... Out>
nvmlReturn_t answer(nvmlDevice_t device, const char* function, Out*... out) {
    std::vector<unsigned long long> numbers;
    auto result = look_up(uuid_of(device), function, numbers);
    if (result != NVML_SUCCESS) return result;
    size_t next = 0;
    ((*out = static_cast<Out>(next < numbers.size() ? numbers[next++] : 0)), ...);
    return NVML_SUCCESS;
}

template <class Info>
nvmlReturn_t processes(nvmlDevice_t device, const char* function, unsigned* count, Info* infos) {
    unsigned long long ignored = 0;
    auto result = answer(device, function, &ignored);
    if (result != NVML_SUCCESS) return result;
    unsigned found = 0, room = *count;
    for (auto& line : lines()) {
        if (line[0] != uuid_of(device) || line[1] != "process") continue;
        if (found < room)
            infos[found] = {static_cast<unsigned>(std::stoul(line[2])),
                            line[3] == "unknown" ? ~0ull : std::stoull(line[3]), ~0u, ~0u};
        ++found;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

}  // namespace

#define ONE(function, Type)                                              \
    extern "C" nvmlReturn_t function(nvmlDevice_t device, Type* value) { \
        return answer(device, #function, value);                         \
    }
#define TWO(function, Type)                                                   \
    extern "C" nvmlReturn_t function(nvmlDevice_t device, Type* a, Type* b) { \
        return answer(device, #function, a, b);                               \
    }

extern "C" nvmlReturn_t nvmlInit_v2() {
    return getenv("TNR_NVML_STAND_IN") ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}
extern "C" nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned length) {
    std::strncpy(version, "580.65.06", length);
    return NVML_SUCCESS;
}
extern "C" nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
    auto all = uuids();
    for (size_t i = 0; i < all.size(); ++i)
        if (all[i] == uuid) {
            *device = reinterpret_cast<nvmlDevice_t>(i + 1);
            std::vector<unsigned long long> ignored;
            return look_up(uuid, "nvmlDeviceGetHandleByUUID", ignored);
        }
    return NVML_ERROR_NOT_FOUND;
}

ONE(nvmlDeviceGetMinorNumber, unsigned)
ONE(nvmlDeviceGetFanSpeed, unsigned)
ONE(nvmlDeviceGetPowerUsage, unsigned)
ONE(nvmlDeviceGetEnforcedPowerLimit, unsigned)
ONE(nvmlDeviceGetPowerManagementDefaultLimit, unsigned)
TWO(nvmlDeviceGetPowerManagementLimitConstraints, unsigned)
ONE(nvmlDeviceGetPcieReplayCounter, unsigned)
ONE(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long)
ONE(nvmlDeviceGetTotalEnergyConsumption, unsigned long long)
ONE(nvmlDeviceGetPerformanceState, nvmlPstates_t)
ONE(nvmlDeviceGetPersistenceMode, nvmlEnableState_t)
ONE(nvmlDeviceGetComputeMode, nvmlComputeMode_t)
ONE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned)
ONE(nvmlDeviceGetCurrPcieLinkWidth, unsigned)
ONE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned)
ONE(nvmlDeviceGetMaxPcieLinkWidth, unsigned)
TWO(nvmlDeviceGetEncoderUtilization, unsigned)
TWO(nvmlDeviceGetDecoderUtilization, unsigned)
TWO(nvmlDeviceGetEccMode, nvmlEnableState_t)

extern "C" nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                                 unsigned* value) {
    return sensor == NVML_TEMPERATURE_GPU ? answer(device, "nvmlDeviceGetTemperature", value)
                                          : NVML_ERROR_INVALID_ARGUMENT;
}
// A line with a number for each nvmlClockType_t.
static nvmlReturn_t clock(nvmlDevice_t device, const char* function, nvmlClockType_t type, unsigned* mhz) {
    unsigned all[NVML_CLOCK_COUNT] = {};
    auto result = answer(device, function, &all[0], &all[1], &all[2], &all[3]);
    *mhz = all[type];
    return result;
}
extern "C" nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned* mhz) {
    return clock(device, "nvmlDeviceGetClockInfo", type, mhz);
}
extern "C" nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned* mhz) {
    return clock(device, "nvmlDeviceGetMaxClockInfo", type, mhz);
}
extern "C" nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* rates) {
    return answer(device, "nvmlDeviceGetUtilizationRates", &rates->gpu, &rates->memory);
}
// A line with the corrected errors since the start and ever, then the uncorrected ones.
extern "C" nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                                    nvmlEccCounterType_t counter, unsigned long long* count) {
    unsigned long long all[2][2] = {};
    auto result = answer(device, "nvmlDeviceGetTotalEccErrors", &all[0][0], &all[0][1], &all[1][0], &all[1][1]);
    *count = all[type][counter];
    return result;
}
// A line with a number for each of the first four nvmlTemperatureThresholds_t.
extern "C" nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t limit,
                                                          unsigned* celsius) {
    unsigned all[4] = {};
    auto result = answer(device, "nvmlDeviceGetTemperatureThreshold", &all[0], &all[1], &all[2], &all[3]);
    *celsius = all[limit];
    return result;
}
extern "C" nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned* correctable, unsigned* uncorrectable,
                                                  unsigned* pending, unsigned* failed) {
    return answer(device, "nvmlDeviceGetRemappedRows", correctable, uncorrectable, pending, failed);
}
// `nvmlDeviceGetFieldValues N`: the memory's temperature; each field says for itself whether it is known.
extern "C" nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* fields) {
    for (int i = 0; i < count; ++i)
        fields[i].nvmlReturn = fields[i].fieldId == NVML_FI_DEV_MEMORY_TEMP
                                   ? answer(device, "nvmlDeviceGetFieldValues", &fields[i].value.uiVal)
                                   : NVML_ERROR_NOT_SUPPORTED;
    return NVML_SUCCESS;
}
extern "C" nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
    return answer(device, "nvmlDeviceGetMemoryInfo", &memory->total, &memory->free, &memory->used);
}
extern "C" nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned* count,
                                                                nvmlProcessInfo_v2_t* infos) {
    return processes(device, "nvmlDeviceGetComputeRunningProcesses_v2", count, infos);
}

// `nvmlDeviceGetP2PStatus N`: nvmlGpuP2PStatus_t N with every other GPU.
extern "C" nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t, nvmlGpuP2PCapsIndex_t,
                                               nvmlGpuP2PStatus_t* status) {
    return answer(device, "nvmlDeviceGetP2PStatus", status);
}
// `nvmlDeviceGetNvLinkState N TYPE BUS`: links below N are up and lead to that nvmlIntNvLinkDeviceType_t, a GPU at BUS.
struct Links {
    unsigned up = 0;
    nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    unsigned bus = 0;
};
static nvmlReturn_t links_of(nvmlDevice_t device, Links& links) {
    return answer(device, "nvmlDeviceGetNvLinkState", &links.up, &links.type, &links.bus);
}
extern "C" nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, nvmlEnableState_t* active) {
    Links links;
    auto result = links_of(device, links);
    *active = link < links.up ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return result;
}
extern "C" nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned,
                                                            nvmlIntNvLinkDeviceType_t* type) {
    Links links;
    auto result = links_of(device, links);
    *type = links.type;
    return result;
}
extern "C" nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned, nvmlPciInfo_t* pci) {
    Links links;
    auto result = links_of(device, links);
    std::snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", links.bus);
    return result;
}
// GPUs are at buses 1, 2, … as the file has them.
extern "C" nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* device) {
    auto bus = std::strtoul(bus_id + std::strlen("00000000:"), nullptr, 16);
    *device = reinterpret_cast<nvmlDevice_t>(bus);
    return bus >= 1 && bus <= uuids().size() ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
extern "C" nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
    std::strncpy(uuid, uuid_of(device).c_str(), length);
    return NVML_SUCCESS;
}

#ifndef TNR_STAND_IN_OLD
TWO(nvmlDeviceGetMigMode, unsigned)
extern "C" nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
    if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return answer(device, "nvmlDeviceGetMemoryInfo_v2", &memory->total, &memory->reserved, &memory->free,
                  &memory->used);
}
extern "C" nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count,
                                                                nvmlProcessInfo_t* infos) {
    return processes(device, "nvmlDeviceGetComputeRunningProcesses_v3", count, infos);
}
#endif
