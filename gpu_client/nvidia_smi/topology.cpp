// See topology.hpp. Columns are separated by tabs, as programs expect that cut them apart.
#include "gpu_client/nvidia_smi/topology.hpp"

namespace tnr::smi {
namespace {

constexpr const char* matrix_legend =
    "\nLegend:\n\n"
    "  X    = Self\n"
    "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n"
    "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node\n"
    "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)\n"
    "  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)\n"
    "  PIX  = Connection traversing at most a single PCIe bridge\n"
    "  NV#  = Connection traversing a bonded set of # NVLinks\n";
constexpr const char* peer_legend =
    "\nLegend:\n\n"
    "  X    = Self\n"
    "  OK   = Status Ok\n"
    "  CNS  = Chipset not supported\n"
    "  GNS  = GPU not supported\n"
    "  TNS  = Topology not supported\n"
    "  NS   = Not supported\n"
    "  U    = Unknown\n";

bool is_to_switch(const Gpu& gpu, unsigned link) {
    nvmlIntNvLinkDeviceType_t type{};
    return nvmlDeviceGetNvLinkRemoteDeviceType(gpu.handle, link, &type) == NVML_SUCCESS &&
           type == NVML_NVLINK_DEVICE_TYPE_SWITCH;
}

bool is_to(const Gpu& gpu, unsigned link, const Gpu& other) {
    nvmlPciInfo_t remote{};
    return nvmlDeviceGetNvLinkRemotePciInfo(gpu.handle, link, &remote) == NVML_SUCCESS && remote.busId == other.bus_id;
}

// How many links lead from one to the other, straight or through switches that both hang on.
unsigned links_between(const Gpu& one, const Gpu& other) {
    nvmlGpuP2PStatus_t reached{};
    if (nvmlDeviceGetP2PStatus(one.handle, other.handle, NVML_P2P_CAPS_INDEX_NVLINK, &reached) != NVML_SUCCESS ||
        reached != NVML_P2P_STATUS_OK)
        return 0;
    unsigned count = 0;
    for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) {
        nvmlEnableState_t state{};
        if (nvmlDeviceGetNvLinkState(one.handle, link, &state) != NVML_SUCCESS || state != NVML_FEATURE_ENABLED)
            continue;
        count += is_to_switch(one, link) || is_to(one, link, other);
    }
    return count;
}

std::string connection(const Gpu& one, const Gpu& other) {
    if (one.index == other.index) return " X ";
    if (auto links = links_between(one, other)) return "NV" + std::to_string(links);
    nvmlGpuTopologyLevel_t level{};
    if (nvmlDeviceGetTopologyCommonAncestor(one.handle, other.handle, &level) != NVML_SUCCESS) return "N/A";
    switch (level) {
        case NVML_TOPOLOGY_INTERNAL:
        case NVML_TOPOLOGY_SINGLE:
            return "PIX";
        case NVML_TOPOLOGY_MULTIPLE:
            return "PXB";
        case NVML_TOPOLOGY_HOSTBRIDGE:
            return "PHB";
        case NVML_TOPOLOGY_NODE:
            return "NODE";
        default:
            return "SYS";
    }
}

// The largest machine whose processors or memory nodes are shown.
constexpr unsigned set_words = 64;
constexpr unsigned word_bits = 8 * sizeof(unsigned long);

// "0-3,8" of the bits that are set; "N/A" of none.
std::string ranges(const unsigned long (&words)[set_words]) {
    auto is_set = [&](unsigned bit) {
        return bit < set_words * word_bits && (words[bit / word_bits] >> bit % word_bits & 1) != 0;
    };
    std::string text;
    for (unsigned bit = 0; bit < set_words * word_bits; ++bit) {
        if (!is_set(bit)) continue;
        auto last = bit;
        while (is_set(last + 1)) ++last;
        text += (text.empty() ? "" : ",") + std::to_string(bit) + (last > bit ? "-" + std::to_string(last) : "");
        bit = last;
    }
    return text.empty() ? "N/A" : text;
}

std::string near_processors(const Gpu& gpu) {
    unsigned long words[set_words] = {};
    (void)nvmlDeviceGetCpuAffinity(gpu.handle, set_words, words);
    return ranges(words);
}

std::string near_memory(const Gpu& gpu) {
    unsigned long words[set_words] = {};
    (void)nvmlDeviceGetMemoryAffinity(gpu.handle, set_words, words, NVML_AFFINITY_SCOPE_NODE);
    return ranges(words);
}

std::string titles(const System& system) {
    std::string text;
    for (auto& gpu : system.gpus) text += "\tGPU" + std::to_string(gpu.index);
    return text;
}

std::string peer_status(const Gpu& one, const Gpu& other, nvmlGpuP2PCapsIndex_t what) {
    if (one.index == other.index) return "X";
    nvmlGpuP2PStatus_t status{};
    if (nvmlDeviceGetP2PStatus(one.handle, other.handle, what, &status) != NVML_SUCCESS) return "U";
    switch (status) {
        case NVML_P2P_STATUS_OK:
            return "OK";
        case NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED:
            return "CNS";
        case NVML_P2P_STATUS_GPU_NOT_SUPPORTED:
            return "GNS";
        case NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED:
            return "TNS";
        default:
            return "NS";
    }
}

}  // namespace

std::string topology_matrix(const System& system) {
    auto text = titles(system) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";
    for (auto& gpu : system.gpus) {
        text += "GPU" + std::to_string(gpu.index);
        for (auto& other : system.gpus) text += "\t" + connection(gpu, other);
        text += "\t" + near_processors(gpu) + "\t" + near_memory(gpu) + "\t\tN/A\n";
    }
    return text + matrix_legend;
}

Result<std::string> peer_matrix(const System& system, const std::string& what) {
    static const std::string letters = "rwnap";  // in the order of NVML's indices
    const auto index = what.size() == 1 ? letters.find(what) : std::string::npos;
    if (index == std::string::npos)
        return Error{Error::Kind::usage, "-p2p knows no '" + what + "'", "it knows r, w, n, a and p"};
    auto text = " " + titles(system) + "\n";
    for (auto& gpu : system.gpus) {
        text += " GPU" + std::to_string(gpu.index);
        for (auto& other : system.gpus)
            text += "\t" + peer_status(gpu, other, static_cast<nvmlGpuP2PCapsIndex_t>(index));
        text += "\n";
    }
    return text + peer_legend;
}

}  // namespace tnr::smi
