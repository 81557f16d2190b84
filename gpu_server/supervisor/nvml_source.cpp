// The supervisor's own facts as an NVML source: nothing invented. An emulated GPU has no temperature; how busy it is its
// workers measure.
#include "gpu_server/supervisor/nvml_source.hpp"

#include <cuda.h>
#include <nvml.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gpu_server/supervisor/own_facts.hpp"

namespace tnr::server {

static void add_attribute(GpuFacts& facts, const NvmlDevice& device, const char* value, CUdevice_attribute attribute,
                          int unit = 1) {
    auto found = device.attributes.find(attribute);
    if (found != device.attributes.end()) facts.values[value] = static_cast<uint32_t>(found->second) / unit;
}

static GpuFacts facts_of(const NvmlDevice& device) {
    GpuFacts facts;
    facts.name = device.name;
    facts.uuid = device.uuid;
    facts.pci_domain = device.pci_domain;
    facts.pci_bus = device.pci_bus;
    facts.pci_device = device.pci_device;
    facts.memory_total = device.memory_bytes;
    facts.cuda_version = device.driver_version;
    add_attribute(facts, device, gpu_value::compute_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    add_attribute(facts, device, gpu_value::compute_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    add_attribute(facts, device, gpu_value::compute_mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
    add_attribute(facts, device, gpu_value::ecc, CU_DEVICE_ATTRIBUTE_ECC_ENABLED);
    add_attribute(facts, device, gpu_value::multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    add_attribute(facts, device, gpu_value::memory_bus_bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    add_attribute(facts, device, gpu_value::pci_device_id, CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID);
    add_attribute(facts, device, gpu_value::pci_subsystem_id, CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID);
    constexpr int khz_per_mhz = 1000;
    for (auto clock : {NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM})
        add_attribute(facts, device, gpu_value::clock_max_mhz[clock], CU_DEVICE_ATTRIBUTE_CLOCK_RATE, khz_per_mhz);
    add_attribute(facts, device, gpu_value::clock_max_mhz[NVML_CLOCK_MEM], CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
                  khz_per_mhz);
    for (auto& process : device.processes) facts.memory_used += process.granted_bytes;
    // Kernels and copies both use the memory.
    for (auto value : {gpu_value::gpu_percent, gpu_value::memory_percent})
        facts.values[value] = std::lround(device.busy_share * 100);
    return facts;
}

GpuSnapshot own_facts(const std::vector<NvmlDevice>& devices) {
    GpuSnapshot snapshot;
    for (unsigned index = 0; index < devices.size(); ++index) {
        snapshot.devices.push_back(facts_of(devices[index]));
        for (auto& process : devices[index].processes)
            snapshot.processes.push_back({index, process.pid, process.name, process.granted_bytes});
    }
    return snapshot;
}

namespace {

class OwnFacts : public NvmlSource {
public:
    // A GPU's first worker says what it is; one that has just been found is waited for.
    bool ready(const std::vector<NvmlDevice>& devices) override {
        return std::all_of(devices.begin(), devices.end(),
                           [](const NvmlDevice& device) { return device.driver_version != 0; });
    }
    std::optional<int> minor_number(const std::string&) override { return std::nullopt; }
    Result<nlohmann::json> snapshot(const std::vector<NvmlDevice>& devices) override {
        return to_json(own_facts(devices));
    }
};

}  // namespace

std::unique_ptr<NvmlSource> make_own_facts_source() {
    return std::make_unique<OwnFacts>();
}

}  // namespace tnr::server
