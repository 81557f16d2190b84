// Which processes use a GPU: this machine's own process ids, never those of the pool's workers.
#include "gpu_client/nvml/export.hpp"
#include "gpu_client/nvml/library.hpp"

using namespace tnr;
using namespace tnr::nvml;

static void fill(nvmlProcessInfo_v1_t& info, const GpuProcess& process) {
    info.pid = static_cast<unsigned>(process.pid);
    info.usedGpuMemory = process.used_bytes;
}

template <class Info>  // the later versions: same layout, MIG ids behind
static void fill(Info& info, const GpuProcess& process) {
    info.pid = static_cast<unsigned>(process.pid);
    info.usedGpuMemory = process.used_bytes;
    info.gpuInstanceId = info.computeInstanceId = 0xffffffff;  // not a MIG instance
}

static void fill(nvmlProcessDetail_v1_t& info, const GpuProcess& process) {
    info = {static_cast<unsigned>(process.pid), process.used_bytes, 0xffffffff, 0xffffffff, 0};
}

// NVML's protocol: the caller says how many fit; too few, and it learns how many there are.
template <class Info>
static nvmlReturn_t list(nvmlDevice_t device, unsigned* count, Info* infos) noexcept try {
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    auto now = snapshot();
    return with_device(device, [&](const GpuFacts&, unsigned index) {
        unsigned found = 0, room = infos ? *count : 0;
        for (auto& process : now->processes) {
            if (process.device != index) continue;
            if (found < room) fill(infos[found], process);
            ++found;
        }
        *count = found;
        return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    });
} catch (...) {
    return NVML_ERROR_UNKNOWN;
}

NVML_EXPORT nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_v1_t* infos) {
    return list(device, count, infos);
}
NVML_EXPORT nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_v2_t* infos) {
    return list(device, count, infos);
}
NVML_EXPORT nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t* infos) {
    return list(device, count, infos);
}

// The newest form: all kinds of processes by one function. nvml.h has no names for the kinds.
static constexpr unsigned compute_processes = 0, last_kind = 2;
NVML_EXPORT nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t* processes) {
    if (!processes || processes->mode > last_kind) return NVML_ERROR_INVALID_ARGUMENT;
    if (processes->version != nvmlProcessDetailList_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (processes->mode == compute_processes)
        return list(device, &processes->numProcArrayEntries, processes->procArray);
    return constant(device, &processes->numProcArrayEntries, 0u);
}

// CUDA alone is remoted: nothing draws, nothing runs under MPS.
static nvmlReturn_t none(nvmlDevice_t device, unsigned* count) {
    return constant(device, count, 0u);
}
NVML_EXPORT nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_v1_t*) {
    return none(device, count);
}
NVML_EXPORT nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_v2_t*) {
    return none(device, count);
}
NVML_EXPORT nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t*) {
    return none(device, count);
}
NVML_EXPORT nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_v1_t*) {
    return none(device, count);
}
NVML_EXPORT nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_v2_t*) {
    return none(device, count);
}
NVML_EXPORT nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count, nvmlProcessInfo_t*) {
    return none(device, count);
}
