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
        case NVML_ERROR_FUNCTION_NOT_FOUND:
            return "Function Not Found";
        case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
            return "Argument version mismatch";
        default:
            return "Unknown Error";
    }
}

// The first GPU speaks for the system: a pool node has one driver.
template <class Use>
static nvmlReturn_t with_first(Use&& use) {
    return with_device(handle_of(0), [&](const GpuFacts& gpu, unsigned) { return use(gpu); });
}

// Programs read versions as numbers with dots. Where the pool knows none (an emulated GPU), it is the series of drivers
// that brought its CUDA version, with zeros that no release has.
static std::string driver_version(const GpuFacts& gpu) {
    if (!gpu.driver_version.empty()) return gpu.driver_version;
    struct Series {
        int cuda_version, driver;
    };
    constexpr Series series[] = {{13000, 580}, {12090, 575}, {12080, 570}, {12060, 560}, {12050, 555}, {12040, 550},
                                 {12030, 545}, {12020, 535}, {12010, 530}, {12000, 525}, {11000, 450}};
    for (auto& known : series)
        if (gpu.cuda_version >= known.cuda_version) return std::to_string(known.driver) + ".0.0";
    return "0.0.0";
}

NVML_EXPORT nvmlSystemGetDriverVersion(char* version, unsigned length) {
    return with_first([&](const GpuFacts& gpu) { return give_text(driver_version(gpu), version, length); });
}

NVML_EXPORT nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t* branch, unsigned length) {
    if (!branch) return NVML_ERROR_INVALID_ARGUMENT;
    if (branch->version != nvmlSystemDriverBranchInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return with_first([&](const GpuFacts& gpu) {
        auto version = driver_version(gpu);
        auto room = std::min<unsigned>(length, sizeof branch->branch);
        return give_text("r" + version.substr(0, version.find('.')) + "_00", branch->branch, room);
    });
}

NVML_EXPORT nvmlSystemGetNVMLVersion(char* version, unsigned length) {
    return with_first([&](const GpuFacts& gpu) {
        return give_text(std::to_string(gpu.cuda_version / 1000) + "." + driver_version(gpu), version, length);
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
