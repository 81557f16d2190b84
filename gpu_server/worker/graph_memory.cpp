// See graph_memory.hpp.
#include "gpu_server/worker/graph_memory.hpp"

#include <algorithm>
#include <tuple>

#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

// In which the driver reserves memory.
static constexpr uint64_t block_bytes = uint64_t{2} << 20;

namespace {
struct Part {
    uint32_t device = 0;
    uint64_t begin = 0, end = 0;
    bool operator<(const Part& other) const {
        return std::tie(device, begin, end) < std::tie(other.device, other.begin, other.end);
    }
};
}  // namespace

static void collect_allocation(CUgraphNode node, const std::vector<Device>& devices, std::vector<Part>& parts) {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    if (driver().cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS) return;
    auto is_its = [&](const Device& device) { return device.handle == params.poolProps.location.id; };
    auto at = std::find_if(devices.begin(), devices.end(), is_its) - devices.begin();
    if (static_cast<size_t>(at) == devices.size()) return;
    parts.push_back({static_cast<uint32_t>(at), params.dptr / block_bytes * block_bytes,
                     (params.dptr + params.bytesize + block_bytes - 1) / block_bytes * block_bytes});
}

// Graphs do not contain themselves, so this ends.
static void collect_allocations(CUgraph graph, const std::vector<Device>& devices, std::vector<Part>& parts) {
    auto& table = driver();
    size_t count = 0;
    if (table.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return;
    std::vector<CUgraphNode> nodes(count);
    if (table.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return;
    nodes.resize(std::min(count, nodes.size()));
    for (auto* node : nodes) {
        CUgraphNodeType type{};
        CUgraph child = nullptr;
        if (table.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) continue;
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) collect_allocation(node, devices, parts);
        bool holds_one = type == CU_GRAPH_NODE_TYPE_GRAPH && table.cuGraphChildGraphNodeGetGraph &&
                         table.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS;
        if (holds_one) collect_allocations(child, devices, parts);
    }
}

std::vector<uint64_t> memory_needed_by(CUgraph graph, const std::vector<Device>& devices) {
    auto& table = driver();
    if (!table.cuGraphMemAllocNodeGetParams || !table.cuGraphGetNodes || !table.cuGraphNodeGetType) return {};
    std::vector<Part> parts;
    collect_allocations(graph, devices, parts);
    if (parts.empty()) return {};
    std::sort(parts.begin(), parts.end());
    std::vector<uint64_t> bytes(devices.size());
    Part counted;
    for (auto& part : parts) {
        uint64_t begin = part.device == counted.device ? std::max(part.begin, counted.end) : part.begin;
        if (part.end <= begin) continue;
        bytes[part.device] += part.end - begin;
        counted = part;
    }
    return bytes;
}

uint64_t GraphMemory::reserved(uint32_t device) const {
    cuuint64_t bytes = 0;
    if (driver().cuDeviceGetGraphMemAttribute)
        (void)driver().cuDeviceGetGraphMemAttribute(devices_[device].handle, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                                    &bytes);
    return bytes;
}

// What has been launched before reserves anew only what it has had to share since.
bool GraphMemory::charge(const AllocatingGraph& graph, uint32_t& device, uint64_t& lacking) {
    for (device = 0; device < of_.size(); ++device) {
        auto& of = of_[device];
        uint64_t bytes = graph.bytes[device], has = reserved(device);
        if (bytes == 0) continue;
        uint64_t all = of.wanted + (graph.launched == period_ ? 0 : bytes);
        uint64_t most = has + std::min(bytes, all - std::min(all, has));
        if (most <= of.charged) continue;
        if (!accounts_.take(device, most - of.charged, lacking)) return false;
        of.charged = most;
    }
    return true;
}

void GraphMemory::launched(AllocatingGraph& graph) {
    if (graph.launched == period_) return;
    graph.launched = period_;
    for (size_t device = 0; device < of_.size(); ++device) of_[device].wanted += graph.bytes[device];
}

void GraphMemory::settle() {
    for (uint32_t device = 0; device < of_.size(); ++device) {
        auto& of = of_[device];
        uint64_t has = reserved(device), lacking = 0;
        if (has < of.charged)
            accounts_.give_back(device, of.charged - has);
        else if (!accounts_.take(device, has - of.charged, lacking))
            continue;  // the next launch needs that, too
        of.charged = has;
    }
}

// What is left then is still used, perhaps by graphs that are gone.
void GraphMemory::trim() {
    if (!driver().cuDeviceGraphMemTrim) return;
    CUcontext current = nullptr;
    driver().cuCtxGetCurrent(&current);
    ++period_;
    for (uint32_t device = 0; device < of_.size(); ++device) {
        if (of_[device].charged == 0) continue;
        driver().cuCtxSetCurrent(devices_[device].primary);
        (void)driver().cuCtxSynchronize();
        (void)driver().cuDeviceGraphMemTrim(devices_[device].handle);
        of_[device].wanted = reserved(device);
    }
    driver().cuCtxSetCurrent(current);
    settle();
}

void GraphMemory::granted(uint32_t device, uint64_t bytes) {
    accounts_.grant(device, bytes);
    of_[device].granted += bytes;
}

wire::GraphMemoryChanges GraphMemory::changes() {
    wire::GraphMemoryChanges changes;
    for (uint32_t device = 0; device < of_.size(); ++device) {
        auto& of = of_[device];
        if (of.charged == of.told && of.granted == 0) continue;
        changes.push_back({device, static_cast<int64_t>(of.charged - of.told), of.granted});
        of.told = of.charged;
        of.granted = 0;
    }
    return changes;
}

uint64_t GraphMemory::hand_out(uint32_t device) {
    auto& of = of_[device];
    uint64_t more = of.told - std::min(of.told, of.charged) + of.granted;
    of.told = std::min(of.told, of.charged);
    of.granted = 0;
    return more;
}

}  // namespace tnr::worker
