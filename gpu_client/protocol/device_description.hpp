// What a client must know about a GPU to answer every question about it by itself.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "api_client/base/result.hpp"

namespace tnr {

struct DeviceDescription {
    std::string name;
    std::string uuid;  // 32 hex digits, the CUuuid's bytes in order
    int pci_domain = 0, pci_bus = 0, pci_device = 0;
    uint64_t memory_bytes = 0;
    int driver_version = 0;          // as cuDriverGetVersion tells it
    std::map<int, int> attributes;   // CUdevice_attribute → value, all the driver knows
    uint64_t granularity_bytes = 0;  // of the virtual memory API
    uint64_t range_address = 0;      // this session's range of device addresses; 0 before there is a session
    uint64_t range_bytes = 0;
};

nlohmann::json to_json(const DeviceDescription& device);
// Foreign bytes: missing or out-of-range fields are an Error.
Result<DeviceDescription> device_from_json(const nlohmann::json& value);

}  // namespace tnr
