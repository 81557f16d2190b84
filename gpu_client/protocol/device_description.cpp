// See device_description.hpp.
#include "gpu_client/protocol/device_description.hpp"

#include <nlohmann/json.hpp>

#include "api_client/base/text.hpp"

namespace tnr {

using nlohmann::json;

json to_json(const DeviceDescription& device) {
    json attributes = json::object();
    for (auto [id, value] : device.attributes) attributes[std::to_string(id)] = value;
    return {{"name", device.name},
            {"uuid", device.uuid},
            {"pci", {{"domain", device.pci_domain}, {"bus", device.pci_bus}, {"device", device.pci_device}}},
            {"memory_bytes", device.memory_bytes},
            {"driver_version", device.driver_version},
            {"attributes", attributes},
            {"granularity_bytes", device.granularity_bytes},
            {"range", {{"address", device.range_address}, {"bytes", device.range_bytes}}}};
}

static bool is_power_of_two(uint64_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

Result<DeviceDescription> device_from_json(const json& value) try {
    DeviceDescription device;
    device.name = harmless(value.at("name").get<std::string>());
    device.uuid = harmless(value.at("uuid").get<std::string>());
    auto& pci = value.at("pci");
    device.pci_domain = pci.at("domain").get<int>();
    device.pci_bus = pci.at("bus").get<int>();
    device.pci_device = pci.at("device").get<int>();
    device.memory_bytes = value.at("memory_bytes").get<uint64_t>();
    device.driver_version = value.at("driver_version").get<int>();
    for (auto& [id, number] : value.at("attributes").items()) device.attributes[std::stoi(id)] = number.get<int>();
    device.granularity_bytes = value.at("granularity_bytes").get<uint64_t>();
    device.range_address = value.at("range").at("address").get<uint64_t>();
    device.range_bytes = value.at("range").at("bytes").get<uint64_t>();
    bool sound = device.uuid.size() == 32 && is_power_of_two(device.granularity_bytes) &&
                 device.range_address + device.range_bytes >= device.range_address;
    if (!sound) return Error{Error::Kind::remote, "the pool described a device that cannot be"};
    return device;
} catch (const std::exception& error) {  // json's own, and std::stoi's
    return Error{Error::Kind::remote, std::string("the pool described a device badly: ") + error.what()};
}

}  // namespace tnr
