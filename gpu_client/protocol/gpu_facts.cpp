// See gpu_facts.hpp.
#include "gpu_client/protocol/gpu_facts.hpp"

#include <nlohmann/json.hpp>

#include "api_client/base/text.hpp"

namespace tnr {

using nlohmann::json;

std::string uuid_text(const std::string& hex) {
    auto part = [&](size_t at, size_t length) { return hex.substr(at, length); };
    return "GPU-" + part(0, 8) + "-" + part(8, 4) + "-" + part(12, 4) + "-" + part(16, 4) + "-" + part(20, 12);
}

static json device_to_json(const GpuFacts& gpu) {
    json links = json::array();
    for (auto& [number, remote] : gpu.links) links.push_back({{"number", number}, {"remote", remote}});
    return {{"name", gpu.name},
            {"uuid", gpu.uuid},
            {"pci", {{"domain", gpu.pci_domain}, {"bus", gpu.pci_bus}, {"device", gpu.pci_device}}},
            {"memory", {{"total", gpu.memory_total}, {"used", gpu.memory_used}}},
            {"cuda_version", gpu.cuda_version},
            {"driver_version", gpu.driver_version},
            {"values", gpu.values},
            {"peers", gpu.peers},
            {"links", links}};
}

json to_json(const GpuSnapshot& snapshot) {
    json answer = {{"devices", json::array()}, {"processes", json::array()}};
    for (auto& gpu : snapshot.devices) answer["devices"].push_back(device_to_json(gpu));
    for (auto& process : snapshot.processes)
        answer["processes"].push_back({{"device", process.device},
                                       {"pid", process.pid},
                                       {"name", process.name},
                                       {"used_bytes", process.used_bytes}});
    return answer;
}

static GpuFacts device_from(const json& value) {
    GpuFacts gpu;
    gpu.name = harmless(value.at("name").get<std::string>());
    gpu.uuid = harmless(value.at("uuid").get<std::string>());
    auto& pci = value.at("pci");
    gpu.pci_domain = pci.at("domain").get<int>();
    gpu.pci_bus = pci.at("bus").get<int>();
    gpu.pci_device = pci.at("device").get<int>();
    gpu.memory_total = value.at("memory").at("total").get<uint64_t>();
    gpu.memory_used = value.at("memory").at("used").get<uint64_t>();
    gpu.cuda_version = value.at("cuda_version").get<int>();
    gpu.driver_version = harmless(value.at("driver_version").get<std::string>());
    gpu.values = value.at("values").get<std::map<std::string, int64_t>>();
    // Servers of before these were told leave them out: none known.
    gpu.peers = value.value("peers", std::map<std::string, uint32_t>());
    for (auto& link : value.value("links", json::array()))
        gpu.links[link.at("number").get<unsigned>()] = harmless(link.at("remote").get<std::string>());
    return gpu;
}

Result<GpuSnapshot> snapshot_from_json(const json& value) try {
    GpuSnapshot snapshot;
    for (auto& device : value.at("devices")) snapshot.devices.push_back(device_from(device));
    for (auto& process : value.at("processes")) {
        GpuProcess found{process.at("device").get<unsigned>(), process.at("pid").get<int>(),
                         harmless(process.at("name").get<std::string>()), process.at("used_bytes").get<uint64_t>()};
        if (found.device < snapshot.devices.size()) snapshot.processes.push_back(std::move(found));
    }
    for (auto& gpu : snapshot.devices)
        if (gpu.uuid.size() != 32) return Error{Error::Kind::remote, "the pool described a GPU that cannot be"};
    return snapshot;
} catch (const json::exception& error) {
    return Error{Error::Kind::remote, std::string("the pool described its GPUs badly: ") + error.what()};
}

}  // namespace tnr
