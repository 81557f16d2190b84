// Which clocks and performance states a GPU can have. An emulated one has one of each; for a real one only a few
// questions travel, so the lists are not known here.
#include "gpu_client/nvml/export.hpp"
#include "gpu_client/nvml/library.hpp"

using namespace tnr;
using namespace tnr::nvml;

// The only clock that an emulated GPU is said to run at.
static std::optional<unsigned> only_clock(const GpuFacts& gpu, nvmlClockType_t type) {
    auto clock = value_of(gpu, gpu_value::clock_max_mhz[type]);
    return is_emulated(gpu) && clock ? std::optional(static_cast<unsigned>(*clock)) : std::nullopt;
}

NVML_EXPORT nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned* count, unsigned* mhz) {
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        auto clock = only_clock(gpu, NVML_CLOCK_MEM);
        return clock ? give_list<unsigned>({*clock}, count, mhz) : NVML_ERROR_NOT_SUPPORTED;
    });
}

NVML_EXPORT nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned memory_mhz, unsigned* count,
                                                 unsigned* mhz) {
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        auto memory = only_clock(gpu, NVML_CLOCK_MEM), clock = only_clock(gpu, NVML_CLOCK_GRAPHICS);
        if (!memory || !clock) return NVML_ERROR_NOT_SUPPORTED;
        return memory_mhz == *memory ? give_list<unsigned>({*clock}, count, mhz) : NVML_ERROR_NOT_FOUND;
    });
}

// The rest of the array says that there is no state.
NVML_EXPORT nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t device, nvmlPstates_t* states, unsigned bytes) {
    if (!states) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned room = bytes / sizeof *states;
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        if (!is_emulated(gpu)) return NVML_ERROR_NOT_SUPPORTED;
        if (room == 0) return NVML_ERROR_INSUFFICIENT_SIZE;
        for (unsigned i = 0; i < room; ++i) states[i] = i == 0 ? NVML_PSTATE_0 : NVML_PSTATE_UNKNOWN;
        return NVML_SUCCESS;
    });
}

NVML_EXPORT nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t device, nvmlClockType_t type, nvmlPstates_t state,
                                             unsigned* least, unsigned* most) {
    if (!least || !most || type < NVML_CLOCK_GRAPHICS || type > NVML_CLOCK_VIDEO) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        auto clock = only_clock(gpu, type);
        if (!clock || state != NVML_PSTATE_0) return NVML_ERROR_NOT_SUPPORTED;
        *least = *most = *clock;
        return NVML_SUCCESS;
    });
}

NVML_EXPORT nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id, unsigned* mhz) {
    switch (id) {
        case NVML_CLOCK_ID_CURRENT:
            return nvmlDeviceGetClockInfo(device, type, mhz);
        case NVML_CLOCK_ID_CUSTOMER_BOOST_MAX:
            return nvmlDeviceGetMaxCustomerBoostClock(device, type, mhz);
        default:
            return mhz && id < NVML_CLOCK_ID_COUNT ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
    }
}

NVML_EXPORT nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t type, unsigned* mhz) {
    if (!mhz || type < NVML_CLOCK_GRAPHICS || type > NVML_CLOCK_VIDEO) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        auto clock = only_clock(gpu, type);
        if (!clock) return NVML_ERROR_NOT_SUPPORTED;
        *mhz = *clock;
        return NVML_SUCCESS;
    });
}

NVML_EXPORT nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
    return give(device, "clock_reasons_possible", reasons, zero_if_emulated);
}
NVML_EXPORT nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
    return nvmlDeviceGetSupportedClocksEventReasons(device, reasons);
}
