// The GPUs that exist: read once from the environment when cuInit is called, and fixed from then on.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/driver/abi.hpp"
#include "gpu_server/emulated_gpu/driver/arena.hpp"

namespace tnr::emulated {

class Context;
class Pool;

// What a type of GPU is known by. Programs choose by these; the emulation is as fast as the CPU is.
struct GpuType {
    const char* short_name;  // "h100", as in TNR_EMULATED_GPUS
    const char* name;        // what cuDeviceGetName says
    int multiprocessors;
    int clock_khz;
    int memory_clock_khz;
    int memory_bus_bits;
    int l2_mib;
    int pci_device_id;
    bool multicast = false;  // by NVLink, from Hopper on
};

// All types accept PTX for any architecture up to this one.
inline constexpr int compute_major = 12, compute_minor = 0;
inline constexpr int driver_version = 13000;

// The limits of compute capability 12.0, from the CUDA programming guide's table.
inline constexpr int portable_cluster_max = 8, non_portable_cluster_max = 16;  // blocks
inline constexpr int threads_per_block_max = 1024, threads_per_multiprocessor = 1536, blocks_per_multiprocessor = 24;
inline constexpr int block_z_max = 64, grid_yz_max = 65535, grid_x_max = 2147483647;
inline constexpr int registers_per_block = 65536, registers_per_thread_max = 255, warp_threads = 32;
inline constexpr int shared_bytes_default = 48 << 10, shared_bytes_optin = 99 << 10, shared_bytes_total = 100 << 10;
inline constexpr int shared_bytes_reserved = 1 << 10;  // per block, by the system

// Guards every device's default_pool and current_pool, and the list of pools (pool.cpp). Outside Pool's own lock and
// Registry's.
Mutex& pool_mutex();

struct Device {
    int ordinal = 0;
    const GpuType* type = nullptr;
    CUuuid uuid{};
    int pci_bus = 0;
    uint64_t memory_total = 0;
    std::atomic<uint64_t> memory_used{0};
    std::unique_ptr<DeviceFile> file;  // null: memory is this process's own
    Arena arena;
    Context* primary = nullptr;  // always there, so that its handle is known before it is active
    std::shared_ptr<Pool> default_pool TNR_GUARDED_BY(pool_mutex());
    std::shared_ptr<Pool> current_pool TNR_GUARDED_BY(pool_mutex());

    // Takes `bytes` of the budget; false when there are not as many left.
    bool charge(uint64_t bytes);
    void refund(uint64_t bytes) { memory_used -= bytes; }
};

// Which devices the environment asks for, or why it cannot be understood. Reads TNR_EMULATED_GPUS,
// TNR_EMULATED_MEMORY_MIB, TNR_EMULATED_MEMORY_FOLDER, TNR_EMULATED_SEED and CUDA_VISIBLE_DEVICES.
struct Configuration {
    std::vector<std::unique_ptr<Device>> devices;
    std::string error;
};
Configuration configuration_from_environment();

}  // namespace tnr::emulated
