// What is broken. Of an emulated GPU nothing ever is; of a real one's repairs, which are its operator's business, the pool
// tells of remapped rows only.
#include "gpu_client/nvml/export.hpp"
#include "gpu_client/nvml/library.hpp"

using namespace tnr;
using namespace tnr::nvml;

template <class Use>
static nvmlReturn_t if_emulated(nvmlDevice_t device, Use&& use) {
    return with_device(
        device, [&](const GpuFacts& gpu, unsigned) { return is_emulated(gpu) ? use() : NVML_ERROR_NOT_SUPPORTED; });
}

template <class... Numbers>
static nvmlReturn_t zeros_if_emulated(nvmlDevice_t device, Numbers*... numbers) {
    if ((!numbers || ...)) return NVML_ERROR_INVALID_ARGUMENT;
    return if_emulated(device, [&] {
        ((*numbers = Numbers{}), ...);
        return NVML_SUCCESS;
    });
}

static bool is_cause(nvmlPageRetirementCause_t cause) {
    return cause >= 0 && cause < NVML_PAGE_RETIREMENT_CAUSE_COUNT;
}

NVML_EXPORT nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned* count,
                                      unsigned long long*) {
    return is_cause(cause) ? zeros_if_emulated(device, count) : NVML_ERROR_INVALID_ARGUMENT;
}
NVML_EXPORT nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned* count,
                                         unsigned long long*, unsigned long long*) {
    return is_cause(cause) ? zeros_if_emulated(device, count) : NVML_ERROR_INVALID_ARGUMENT;
}
NVML_EXPORT nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t* pending) {
    return zeros_if_emulated(device, pending);  // NVML_FEATURE_DISABLED
}
NVML_EXPORT nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned* correctable, unsigned* uncorrectable,
                                      unsigned* pending, unsigned* failed) {
    unsigned* numbers[] = {correctable, uncorrectable, pending, failed};
    for (size_t i = 0; i < std::size(numbers); ++i)
        if (auto result = give(device, gpu_value::remapped_rows[i], numbers[i], zero_if_emulated);
            result != NVML_SUCCESS)
            return result;
    return NVML_SUCCESS;
}
NVML_EXPORT nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t* status) {
    if (!status) return NVML_ERROR_INVALID_ARGUMENT;
    if (status->version != nvmlRepairStatus_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return zeros_if_emulated(device, &status->bChannelRepairPending, &status->bTpcRepairPending);
}
