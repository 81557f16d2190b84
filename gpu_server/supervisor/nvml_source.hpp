// What `nvml` requests are answered from. The supervisor knows who uses what; a source adds what the hardware tells
// (temperature, power, utilisation) and speaks for the GPUs of one caller only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::server {

// One client process on a GPU.
struct NvmlProcess {
    int pid = 0;                 // on the client's machine
    std::string name;            // as the client told it
    int worker_pid = 0;          // on this node: what the real NVML knows it by
    uint64_t granted_bytes = 0;  // of this GPU; an upper bound of what it uses
};

// The supervisor's own facts about one GPU that the caller may see.
struct NvmlDevice {
    int index = 0;     // among this node's
    std::string type;  // "h100"
    std::string name;
    std::string uuid;  // 32 hex digits
    int pci_domain = 0, pci_bus = 0, pci_device = 0;
    uint64_t memory_bytes = 0;      // that the caller may use
    int driver_version = 0;         // as cuDriverGetVersion tells it; 0: not known yet
    std::map<int, int> attributes;  // CUdevice_attribute → value; empty: not known yet
    double busy_share = 0;          // of the last second or so, with work of the caller's; the GPU is nobody else's
    std::vector<NvmlProcess> processes;
};

class NvmlSource {
public:
    virtual ~NvmlSource() = default;
    // All are called on the supervisor's only thread, so they must return within milliseconds: cache what is slow.

    // Whether snapshot() would tell all there is to tell. Asking makes the source look, so ask again a moment later.
    virtual bool ready(const std::vector<NvmlDevice>& devices) = 0;
    // What the client's libnvidia-ml reads (gpu_facts.hpp).
    virtual Result<nlohmann::json> snapshot(const std::vector<NvmlDevice>& devices) = 0;
    // N of the GPU's /dev/nvidiaN; nothing where that is not known. `uuid`: 32 hex digits. Before any client.
    virtual std::optional<int> minor_number(const std::string& uuid) = 0;
};

// Where there is no NVML: the supervisor's own facts, nothing invented.
std::unique_ptr<NvmlSource> make_own_facts_source();
// The node's own NVML (`library`: "libnvidia-ml.so.1" or a path) adds what the hardware tells. Where the library does
// not load or does not know a GPU, the supervisor's own facts remain.
std::unique_ptr<NvmlSource> make_nvml_source(const std::string& library);

}  // namespace tnr::server
