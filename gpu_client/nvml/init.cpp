// Starting, stopping, and questions about the system as a whole.
#include <cstring>
#include <fstream>

#include "gpu_client/nvml/export.hpp"
#include "gpu_client/nvml/library.hpp"

using namespace tnr;
using namespace tnr::nvml;

NVML_EXPORT nvmlInit_v2() {
    return init();
}
NVML_EXPORT nvmlInit() {
    return init();
}
NVML_EXPORT nvmlInitWithFlags(unsigned) {
    return init();
}
NVML_EXPORT nvmlShutdown() {
    return shutdown();
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
        case NVML_SUCCESS:
            return "Success";
        case NVML_ERROR_UNINITIALIZED:
            return "Uninitialized";
        case NVML_ERROR_INVALID_ARGUMENT:
            return "Invalid Argument";
        case NVML_ERROR_NOT_SUPPORTED:
            return "Not Supported";
        case NVML_ERROR_NO_PERMISSION:
            return "Insufficient Permissions";
        case NVML_ERROR_NOT_FOUND:
            return "Not Found";
        case NVML_ERROR_INSUFFICIENT_SIZE:
            return "Insufficient Size";
        case NVML_ERROR_DRIVER_NOT_LOADED:
            return "Driver Not Loaded";
        case NVML_ERROR_TIMEOUT:
            return "Timeout";
        case NVML_ERROR_GPU_IS_LOST:
            return "GPU is lost";
        default:
            return "Unknown Error";
    }
}

// The first GPU speaks for the system: a pool node has one driver.
template <class Use>
static nvmlReturn_t with_first(Use&& use) {
    return with_device(handle_of(0), [&](const GpuFacts& gpu, unsigned) { return use(gpu); });
}

NVML_EXPORT nvmlSystemGetDriverVersion(char* version, unsigned length) {
    return with_first([&](const GpuFacts& gpu) {
        return give_text(gpu.driver_version.empty() ? "emulated" : gpu.driver_version, version, length);
    });
}

NVML_EXPORT nvmlSystemGetNVMLVersion(char* version, unsigned length) {
    return with_first([&](const GpuFacts& gpu) {
        auto driver = gpu.driver_version.empty() ? "emulated" : gpu.driver_version;
        return give_text(std::to_string(gpu.cuda_version / 1000) + "." + driver, version, length);
    });
}

NVML_EXPORT nvmlSystemGetCudaDriverVersion(int* version) {
    if (!version) return NVML_ERROR_INVALID_ARGUMENT;
    return with_first([&](const GpuFacts& gpu) {
        *version = gpu.cuda_version;
        return NVML_SUCCESS;
    });
}
NVML_EXPORT nvmlSystemGetCudaDriverVersion_v2(int* version) {
    return nvmlSystemGetCudaDriverVersion(version);
}

// Process ids are this machine's own, so /proc knows them best.
NVML_EXPORT nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) {
    if (!name || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
    auto now = snapshot();
    if (!now) return NVML_ERROR_UNINITIALIZED;
    std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
    std::string command;
    std::getline(file, command, '\0');
    for (auto& process : now->processes)
        if (command.empty() && process.pid == static_cast<int>(pid)) command = process.name;
    if (command.empty()) return NVML_ERROR_NOT_FOUND;
    command.resize(std::min<size_t>(command.size(), length - 1));  // NVML cuts, too
    return give_text(command, name, length);
}
