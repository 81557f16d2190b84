// The GPUs as the pool describes them. All questions about a device are answered from here.
#pragma once

#include <atomic>
#include <bitset>
#include <vector>

#include "api_client/base/turn.hpp"
#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/protocol/device_description.hpp"

namespace tnr::cuda {

class ClientSession;
class DeviceMemory;

// Attributes with ids below this are kept; cuda.h 13.0 ends at 146.
inline constexpr int device_attributes_max = 512;

// Of whoever retains, releases or resets a primary context. A turn instead of a mutex: these wait for the network, and
// destructors of stored values may call back. One for all devices, as a destructor may release another device's context.
Turn& primary_contexts_turn();

struct Device {
    int ordinal = 0;      // as the program counts, after CUDA_VISIBLE_DEVICES
    uint32_t number = 0;  // on the wire: as the session counts
    DeviceDescription description;
    CUuuid uuid{};
    int attributes[device_attributes_max] = {};
    std::bitset<device_attributes_max> known;
    uint64_t primary_context = 0;                                  // handle; made with the device, active once retained
    int primary_held TNR_GUARDED_BY(primary_contexts_turn()) = 0;  // how often the program has retained it
    std::atomic<ClientSession*> session{nullptr};  // with the server that has it; null until open_session()
    DeviceMemory* memory = nullptr;
    std::atomic<bool> open_to_all{false};  // the other devices may use its memory: it has managed memory
    struct {
        std::atomic<uint64_t> own{0}, chosen{0};  // handles; 0: not made yet, not chosen
        std::atomic<bool> any_unused{false};      // some pool may have reserved more than it uses; spares others a lock
    } pools;                                      // memory_pools.hpp

    int attribute(int id) const { return attributes[id]; }
    bool runs_ptx_only() const;  // the emulated GPU has no machine code of its own
};

// Asks the pool once per process. Reports a failure on stderr once.
CUresult describe_devices();
// Empty before describe_devices().
const std::vector<Device*>& devices();
Device* find_device(CUdevice ordinal);
int driver_version();

}  // namespace tnr::cuda
