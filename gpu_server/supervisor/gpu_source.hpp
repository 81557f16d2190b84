// Where this node's GPUs come from: the real driver, any other libcuda by path, or the emulated one. Tells which GPUs
// there are, and how a process is started so that it sees exactly the ones it shall use.
//
// The supervisor itself never loads a driver: it asks a short-lived process of ours (`tnr-gpu-server probe-gpus`).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"
#include "gpu_server/supervisor/child.hpp"

namespace tnr::server {

struct GpuOptions {
    std::string driver;                      // path; empty: emulate, or the real one
    std::string emulate;                     // "h100:2,a100"; empty: a driver
    uint64_t emulated_memory_mib = 0;        // 0: the emulated driver's default
    std::string emulated_seed;               // tells the emulated GPUs of different nodes apart
    std::string emulated_memory_folder;      // where their memory outlives processes, as on a GPU; empty: it does not
    bool unsafe_no_wipe = false;             // leaves memory as it is, but for a block: tests only, and only emulated
    std::string program = "/proc/self/exe";  // what workers and helpers run; tests put their own here
};

struct FoundGpu {
    std::string type;  // "h100"
    std::string name;  // the driver's
    std::string uuid;  // 32 hex digits
    uint64_t memory_bytes = 0;
    std::string selector;  // for CUDA_VISIBLE_DEVICES
};

class GpuSource {
public:
    // Kind usage when there is no driver at all.
    static Result<GpuSource> choose(const GpuOptions& options);

    Result<std::vector<FoundGpu>> find() const;
    bool emulated() const { return !options_.emulate.empty(); }
    const std::string& driver() const { return driver_; }
    // How much of a GPU is overwritten between two claims; 0: all of it.
    uint64_t wipe_bytes_max() const;

    // N of the GPU's /dev/nvidiaN, for workers' sandboxes.
    void set_minor(const std::string& selector, int minor) { minors_[selector] = minor; }

    // `command`: worker, wipe-gpu, probe-gpus. No selectors: all GPUs.
    ChildPlan plan(const std::string& command, const std::vector<std::string>& selectors) const;

private:
    std::string hint() const;
    std::string minors(const std::vector<std::string>& selectors) const;

    GpuOptions options_;
    std::string driver_;
    std::map<std::string, int> minors_;  // by selector
};

// "h100:2,a100" → h100, h100, a100.
Result<std::vector<std::string>> parse_emulate(const std::string& text);

}  // namespace tnr::server
