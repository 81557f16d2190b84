// NVIDIA's libnvidia-ml.so.1 by path (we link nothing of NVIDIA's) and what it tells of one GPU.
//
// Functions are called with the types that nvml.h declares for them. A library that is older than ours lacks some, and
// GPUs do not have every sensor: what cannot be had is absent from the reading.
#pragma once

#define NVML_NO_UNVERSIONED_FUNC_DEFS  // every version under its own name
#include <nvml.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tnr::server {

// The name and the type of a function of nvml.h, as call() takes them.
#define TNR_NVML(function) #function, static_cast < decltype(&::function)>(nullptr)

class NvmlLibrary {
public:
    // started() is false when the library does not load or does not start; then every call fails.
    explicit NvmlLibrary(const std::string& path);
    bool started() const { return started_; }

    template <class... Parameters, class... Arguments>
    nvmlReturn_t call(const char* name, nvmlReturn_t (*)(Parameters...), Arguments... arguments) const {
        auto* function = reinterpret_cast<nvmlReturn_t (*)(Parameters...)>(symbol(name));
        return function ? function(arguments...) : NVML_ERROR_FUNCTION_NOT_FOUND;
    }
    // `uuid`: 32 hex digits.
    nvmlReturn_t find(const std::string& uuid, nvmlDevice_t& gpu) const;
    std::string driver_version() const;
    // N of /dev/nvidiaN.
    std::optional<int> minor_number(const std::string& uuid) const;

private:
    void* symbol(const char* name) const;
    void* library_;
    bool started_ = false;
};

struct NvmlReading {
    bool lost = false;                      // it does not answer any more: "has fallen off the bus"
    std::map<std::string, int64_t> values;  // by the names of gpu_value
    std::optional<uint64_t> memory_used;
    std::map<int, uint64_t> process_bytes;  // by the worker's process id
    std::map<std::string, uint32_t> peers;  // as GpuFacts::peers
    std::map<unsigned, std::string> links;  // as GpuFacts::links
};

// Empty where the library does not know the GPU. `all`: the GPUs among which it looks for peers. Takes tens of
// milliseconds on real hardware.
NvmlReading read_gpu(const NvmlLibrary& nvml, const std::string& uuid, const std::vector<std::string>& all);

}  // namespace tnr::server
