// Which processors and memory of this machine are near a GPU: it is across the network, so all are equally near.
#include <fstream>

#include "gpu_client/nvml/export.hpp"
#include "gpu_client/nvml/library.hpp"

using namespace tnr;
using namespace tnr::nvml;

static constexpr unsigned word_bits = 8 * sizeof(unsigned long);

static void set_bits(unsigned long* words, unsigned count, unsigned first, unsigned last) {
    for (unsigned bit = first; bit <= last && bit / word_bits < count; ++bit)
        words[bit / word_bits] |= 1ul << bit % word_bits;
}

// The numbers in a file of /sys such as "0-3,8-11"; number 0 where there is no such file.
static void set_listed(unsigned long* words, unsigned count, const char* path) {
    for (unsigned i = 0; i < count; ++i) words[i] = 0;
    std::ifstream file(path);
    unsigned first = 0, last = 0;
    char separator = 0;
    if (!(file >> first)) return set_bits(words, count, 0, 0);
    do {
        last = first;
        if (file >> separator && separator == '-') file >> last >> separator;
        set_bits(words, count, first, last);
    } while (file >> first);
}

template <class Fill>
static nvmlReturn_t give_set(nvmlDevice_t device, unsigned count, unsigned long* words, nvmlAffinityScope_t scope,
                             Fill&& fill) {
    if (!words || count == 0 || scope > NVML_AFFINITY_SCOPE_SOCKET) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts&, unsigned) {
        fill();
        return NVML_SUCCESS;
    });
}

NVML_EXPORT nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned count, unsigned long* cpus,
                                                nvmlAffinityScope_t scope) {
    return give_set(device, count, cpus, scope, [&] { set_listed(cpus, count, "/sys/devices/system/cpu/online"); });
}
NVML_EXPORT nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned count, unsigned long* cpus) {
    return nvmlDeviceGetCpuAffinityWithinScope(device, count, cpus, NVML_AFFINITY_SCOPE_NODE);
}
NVML_EXPORT nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned count, unsigned long* nodes,
                                        nvmlAffinityScope_t scope) {
    return give_set(device, count, nodes, scope, [&] { set_listed(nodes, count, "/sys/devices/system/node/online"); });
}

// Wherever the thread runs is as good as any place.
static nvmlReturn_t nothing_to_do(nvmlDevice_t device) {
    return with_device(device, [](const GpuFacts&, unsigned) { return NVML_SUCCESS; });
}
NVML_EXPORT nvmlDeviceSetCpuAffinity(nvmlDevice_t device) {
    return nothing_to_do(device);
}
NVML_EXPORT nvmlDeviceClearCpuAffinity(nvmlDevice_t device) {
    return nothing_to_do(device);
}
