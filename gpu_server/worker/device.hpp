// The GPUs as the worker's driver shows them: asked once at start, before anybody claims them.
#pragma once

#include <vector>

#include "driver_table.hpp"
#include "gpu_client/protocol/device_description.hpp"

namespace tnr::worker {

// One GPU of this worker, warm: primary context retained, address range reserved.
struct Device {
    CUdevice handle = 0;
    CUcontext primary = nullptr;
    DeviceDescription description;
};

// Warms every device the driver shows. Slow on real hardware (a context takes 0.2 s and more): that is why it happens
// before a claim.
Result<std::vector<Device>> warm_devices();

// Moves the device's address range to `address`; on failure it stays where it is. Nothing may be mapped in it.
CUresult move_range(Device& device, uint64_t address, uint64_t bytes);

}  // namespace tnr::worker
