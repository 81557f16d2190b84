// The node's real NVML. A thread of its own asks it once a second while anybody wants to know: single NVML calls can
// take tens of milliseconds, and the supervisor has one thread for all its clients.
#include <dlfcn.h>
#include <nvml.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/own_facts.hpp"

namespace tnr::server {

namespace {

using Clock = std::chrono::steady_clock;
using Values = std::map<std::string, int64_t>;

// Nobody has asked for so long: the hardware is left alone (asking keeps an idle GPU from its deepest sleep).
constexpr auto interest_lasts = std::chrono::seconds(10);
constexpr auto ask_every = std::chrono::seconds(1);

// One GPU as NVML told it last.
struct Reading {
    Values values;
    uint64_t memory_used = 0;
    std::map<int, uint64_t> process_bytes;  // by the worker's process id
};

// The library's functions by name: we link nothing of NVIDIA's.
class Nvml {
public:
    explicit Nvml(const std::string& path) : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
    bool start() { return library_ && call<nvmlReturn_t()>("nvmlInit_v2") == NVML_SUCCESS; }

    template <class Function, class... Arguments>
    nvmlReturn_t call(const char* name, Arguments... arguments) {
        auto* function = library_ ? reinterpret_cast<Function*>(dlsym(library_, name)) : nullptr;
        return function ? function(arguments...) : NVML_ERROR_FUNCTION_NOT_FOUND;
    }
    std::string driver_version() {
        char text[80] = {};
        (void)call<nvmlReturn_t(char*, unsigned)>("nvmlSystemGetDriverVersion", text, unsigned{sizeof text});
        return text;
    }

private:
    void* library_;
};

// NVML functions that give one number, and the name it travels under.
constexpr std::pair<const char*, const char*> single_numbers[] = {
    {"nvmlDeviceGetFanSpeed", gpu_value::fan_percent},
    {"nvmlDeviceGetPowerUsage", gpu_value::power_mw},
    {"nvmlDeviceGetEnforcedPowerLimit", gpu_value::power_limit_mw},
    {"nvmlDeviceGetPerformanceState", gpu_value::performance_state},
    {"nvmlDeviceGetPersistenceMode", gpu_value::persistence},
    {"nvmlDeviceGetComputeMode", gpu_value::compute_mode},
    {"nvmlDeviceGetCurrPcieLinkGeneration", gpu_value::pcie_generation},
    {"nvmlDeviceGetCurrPcieLinkWidth", gpu_value::pcie_width},
    {"nvmlDeviceGetMaxPcieLinkGeneration", gpu_value::pcie_generation_max},
    {"nvmlDeviceGetMaxPcieLinkWidth", gpu_value::pcie_width_max},
};
constexpr std::pair<const char*, const char*> first_of_two[] = {
    {"nvmlDeviceGetEncoderUtilization", gpu_value::encoder_percent},
    {"nvmlDeviceGetDecoderUtilization", gpu_value::decoder_percent},
    {"nvmlDeviceGetEccMode", gpu_value::ecc},
    {"nvmlDeviceGetMigMode", gpu_value::mig},
};

void read_numbers(Nvml& nvml, nvmlDevice_t gpu, Values& values) {
    unsigned value = 0, second = 0;
    for (auto [function, name] : single_numbers)
        if (nvml.call<nvmlReturn_t(nvmlDevice_t, unsigned*)>(function, gpu, &value) == NVML_SUCCESS)
            values[name] = value;
    for (auto [function, name] : first_of_two)
        if (nvml.call<nvmlReturn_t(nvmlDevice_t, unsigned*, unsigned*)>(function, gpu, &value, &second) == NVML_SUCCESS)
            values[name] = value;
    for (unsigned type = 0; type < 4; ++type) {
        using Clocks = nvmlReturn_t(nvmlDevice_t, unsigned, unsigned*);
        if (nvml.call<Clocks>("nvmlDeviceGetClockInfo", gpu, type, &value) == NVML_SUCCESS)
            values[gpu_value::clock_mhz[type]] = value;
        if (nvml.call<Clocks>("nvmlDeviceGetMaxClockInfo", gpu, type, &value) == NVML_SUCCESS)
            values[gpu_value::clock_max_mhz[type]] = value;
    }
    using Sensor = nvmlReturn_t(nvmlDevice_t, unsigned, unsigned*);
    if (nvml.call<Sensor>("nvmlDeviceGetTemperature", gpu, unsigned{NVML_TEMPERATURE_GPU}, &value) == NVML_SUCCESS)
        values[gpu_value::temperature_c] = value;
}

Reading read(Nvml& nvml, nvmlDevice_t gpu) {
    Reading reading;
    read_numbers(nvml, gpu, reading.values);
    nvmlUtilization_t rates{};
    if (nvml.call<nvmlReturn_t(nvmlDevice_t, nvmlUtilization_t*)>("nvmlDeviceGetUtilizationRates", gpu, &rates) ==
        NVML_SUCCESS) {
        reading.values[gpu_value::gpu_percent] = rates.gpu;
        reading.values[gpu_value::memory_percent] = rates.memory;
    }
    unsigned long long errors = 0;
    using Errors = nvmlReturn_t(nvmlDevice_t, unsigned, unsigned, unsigned long long*);
    if (nvml.call<Errors>("nvmlDeviceGetTotalEccErrors", gpu, unsigned{NVML_MEMORY_ERROR_TYPE_UNCORRECTED},
                          unsigned{NVML_VOLATILE_ECC}, &errors) == NVML_SUCCESS)
        reading.values[gpu_value::ecc_uncorrected] = static_cast<int64_t>(errors);
    nvmlMemory_t memory{};
    if (nvml.call<nvmlReturn_t(nvmlDevice_t, nvmlMemory_t*)>("nvmlDeviceGetMemoryInfo", gpu, &memory) == NVML_SUCCESS)
        reading.memory_used = memory.used;
    nvmlProcessInfo_t processes[64];  // workers of one GPU: a handful
    unsigned count = 64;
    using Processes = nvmlReturn_t(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*);
    if (nvml.call<Processes>("nvmlDeviceGetComputeRunningProcesses_v3", gpu, &count, processes) == NVML_SUCCESS)
        for (unsigned i = 0; i < count && i < 64; ++i)
            reading.process_bytes[static_cast<int>(processes[i].pid)] = processes[i].usedGpuMemory;
    return reading;
}

std::string dashed(const std::string& hex) {
    return "GPU-" + hex.substr(0, 8) + "-" + hex.substr(8, 4) + "-" + hex.substr(12, 4) + "-" + hex.substr(16, 4) +
           "-" + hex.substr(20);
}

class RealNvml : public NvmlSource {
public:
    explicit RealNvml(const std::string& library) : nvml_(library) {
        available_ = nvml_.start();
        if (!available_) log(LogLevel::info, library + " does not load: nvidia-smi shows the pool's own facts only");
        if (available_) driver_version_ = nvml_.driver_version();
        if (available_) thread_ = std::thread([this] { keep_reading(); });
    }
    ~RealNvml() override {
        {
            std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        wanted_.notify_all();
        if (thread_.joinable()) thread_.join();
    }

    Result<nlohmann::json> snapshot(const std::vector<NvmlDevice>& devices) override {
        auto snapshot = own_facts(devices);
        std::lock_guard lock(mutex_);
        interest_until_ = Clock::now() + interest_lasts;
        for (auto& gpu : snapshot.devices) add_reading(gpu);
        for (size_t i = 0, row = 0; i < devices.size(); ++i)
            for (auto& process : devices[i].processes) add_reading(snapshot.processes[row++], devices[i], process);
        wanted_.notify_all();
        return to_json(snapshot);
    }

private:
    void add_reading(GpuFacts& gpu) {
        auto found = readings_.try_emplace(gpu.uuid).first;  // from now on this GPU is read
        gpu.driver_version = driver_version_;
        gpu.values.insert(found->second.values.begin(), found->second.values.end());
        if (found->second.memory_used > 0) gpu.memory_used = found->second.memory_used;
    }
    void add_reading(GpuProcess& process, const NvmlDevice& device, const NvmlProcess& known) {
        auto& bytes = readings_[device.uuid].process_bytes;
        if (auto found = bytes.find(known.worker_pid); found != bytes.end()) process.used_bytes = found->second;
    }

    void keep_reading() {
        std::unique_lock lock(mutex_);
        while (!stopping_) {
            wanted_.wait(lock, [&] { return stopping_ || Clock::now() < interest_until_; });
            std::vector<std::string> uuids;
            for (auto& [uuid, reading] : readings_) uuids.push_back(uuid);
            lock.unlock();
            std::map<std::string, Reading> fresh;
            for (auto& uuid : uuids) {
                nvmlDevice_t gpu{};
                using Find = nvmlReturn_t(const char*, nvmlDevice_t*);
                if (nvml_.call<Find>("nvmlDeviceGetHandleByUUID", dashed(uuid).c_str(), &gpu) == NVML_SUCCESS)
                    fresh[uuid] = read(nvml_, gpu);
            }
            lock.lock();
            for (auto& [uuid, reading] : fresh) readings_[uuid] = std::move(reading);
            wanted_.wait_for(lock, ask_every, [&] { return stopping_; });
        }
    }

    Nvml nvml_;
    bool available_ = false;
    std::string driver_version_;
    std::mutex mutex_;
    std::condition_variable wanted_;
    bool stopping_ = false;
    Clock::time_point interest_until_{};
    std::map<std::string, Reading> readings_;  // by uuid, 32 hex digits
    std::thread thread_;
};

}  // namespace

std::unique_ptr<NvmlSource> make_nvml_source(const std::string& library) {
    return std::make_unique<RealNvml>(library);
}

}  // namespace tnr::server
