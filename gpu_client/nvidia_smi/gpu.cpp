// See gpu.hpp.
#include "gpu_client/nvidia_smi/gpu.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "gpu_client/nvml/last_error.hpp"

namespace tnr::smi {

static Error failure(const char* what, nvmlReturn_t result) {
    char text[1024] = {};
    nvmlTnrLastError(text, sizeof text);
    std::string said(text);
    if (said.empty()) return {Error::Kind::internal, std::string(what) + ": " + nvmlErrorString(result)};
    auto end = said.find('\n');
    auto hint = said.substr(end + 1);
    return {Error::Kind::network, said.substr(0, end), hint.substr(0, hint.find('\n'))};
}

static std::vector<Process> read_processes(nvmlDevice_t device) {
    unsigned count = 0;
    (void)nvmlDeviceGetComputeRunningProcesses(device, &count, nullptr);
    std::vector<nvmlProcessInfo_t> infos(count + 16);  // some may have started meanwhile
    count = static_cast<unsigned>(infos.size());
    if (nvmlDeviceGetComputeRunningProcesses(device, &count, infos.data()) != NVML_SUCCESS) return {};
    std::vector<Process> processes;
    for (unsigned i = 0; i < count; ++i) {
        char name[256] = {};
        (void)nvmlSystemGetProcessName(infos[i].pid, name, sizeof name);
        processes.push_back({infos[i].pid, *name ? name : not_available, infos[i].usedGpuMemory});
    }
    return processes;
}

static Result<Gpu> read_gpu(unsigned index) {
    Gpu gpu;
    gpu.index = index;
    if (auto result = nvmlDeviceGetHandleByIndex(index, &gpu.handle); result != NVML_SUCCESS)
        return failure("GPU lost", result);
    char text[256] = {};
    if (nvmlDeviceGetName(gpu.handle, text, sizeof text) == NVML_SUCCESS) gpu.name = text;
    if (nvmlDeviceGetUUID(gpu.handle, text, sizeof text) == NVML_SUCCESS) gpu.uuid = text;
    nvmlPciInfo_t pci{};
    if (nvmlDeviceGetPciInfo(gpu.handle, &pci) == NVML_SUCCESS) gpu.bus_id = pci.busId;
    nvmlMemory_t memory{};
    gpu.memory_known = nvmlDeviceGetMemoryInfo(gpu.handle, &memory);
    if (gpu.memory_known == NVML_SUCCESS) gpu.memory_total = memory.total, gpu.memory_used = memory.used;
    gpu.processes = read_processes(gpu.handle);
    return gpu;
}

// Bus ids are written with a domain of four or eight digits, in either case.
static bool is_bus_id(std::string name, const std::string& bus_id) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
    return name.size() >= std::string_view("0000:01:00.0").size() && bus_id.ends_with(name);
}

static bool is_wanted(const Gpu& gpu, const std::vector<std::string>& only) {
    return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& name) {
               return name == std::to_string(gpu.index) || name == gpu.uuid || is_bus_id(name, gpu.bus_id);
           });
}

Result<System> read_system(const std::vector<std::string>& only) {
    static bool started = false;  // once per process, however often the screen is redrawn
    if (auto result = started ? NVML_SUCCESS : nvmlInit(); result != NVML_SUCCESS)
        return failure("NVML does not start", result);
    started = true;
    System system;
    char driver[80] = {};
    (void)nvmlSystemGetDriverVersion(driver, sizeof driver);
    int cuda = 0;
    (void)nvmlSystemGetCudaDriverVersion(&cuda);
    system.driver_version = driver;
    system.cuda_version = std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
    unsigned count = 0;
    if (auto result = nvmlDeviceGetCount(&count); result != NVML_SUCCESS) return failure("no GPUs", result);
    for (unsigned index = 0; index < count; ++index) {
        auto gpu = read_gpu(index);
        if (!gpu) return gpu.error();
        if (is_wanted(*gpu, only)) system.gpus.push_back(std::move(*gpu));
    }
    if (system.gpus.empty() && !only.empty())
        return Error{Error::Kind::not_found, "no GPU is called '" + only.front() + "'", "nvidia-smi -L lists them"};
    return system;
}

}  // namespace tnr::smi
