// nvmlDeviceGetFieldValues: the values of other functions under numbers. Each field answers for itself; those that this
// library has no value for say so.
#include <chrono>

#include "gpu_client/nvml/export.hpp"
#include "gpu_client/nvml/library.hpp"
#include "gpu_client/nvml/links.hpp"

using namespace tnr;
using namespace tnr::nvml;

namespace {

struct Field {
    unsigned id;
    const char* key;  // null: zero of an emulated GPU, unknown of others
};
constexpr Field known_fields[] = {
    {NVML_FI_DEV_ECC_CURRENT, gpu_value::ecc},
    {NVML_FI_DEV_ECC_PENDING, gpu_value::ecc},
    {NVML_FI_DEV_ECC_DBE_VOL_TOTAL, gpu_value::ecc_uncorrected},
    {NVML_FI_DEV_PCIE_REPLAY_COUNTER, gpu_value::pcie_replays},
    {NVML_FI_DEV_POWER_AVERAGE, gpu_value::power_mw},
    {NVML_FI_DEV_POWER_INSTANT, gpu_value::power_mw},
    {NVML_FI_DEV_POWER_MIN_LIMIT, gpu_value::power_limit_min_mw},
    {NVML_FI_DEV_POWER_MAX_LIMIT, gpu_value::power_limit_max_mw},
    {NVML_FI_DEV_POWER_DEFAULT_LIMIT, gpu_value::power_limit_default_mw},
    {NVML_FI_DEV_POWER_CURRENT_LIMIT, gpu_value::power_limit_mw},
    {NVML_FI_DEV_RETIRED_SBE, nullptr},
    {NVML_FI_DEV_RETIRED_DBE, nullptr},
    {NVML_FI_DEV_RETIRED_PENDING, nullptr},
    {NVML_FI_DEV_RETIRED_PENDING_SBE, nullptr},
    {NVML_FI_DEV_RETIRED_PENDING_DBE, nullptr},
    {NVML_FI_DEV_REMAPPED_COR, nullptr},
    {NVML_FI_DEV_REMAPPED_UNC, nullptr},
    {NVML_FI_DEV_REMAPPED_PENDING, nullptr},
    {NVML_FI_DEV_REMAPPED_FAILURE, nullptr},
    {NVML_FI_DEV_C2C_LINK_COUNT, nullptr},
    {NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED, nullptr},
    {NVML_FI_DEV_IS_MIG_MODE_INDEPENDENT_MIG_QUERY_CAPABLE, nullptr},
    {NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, nullptr},
};

// Wide counters are 64 bits in NVML, everything else here 32.
nvmlValueType_t type_of(unsigned field) {
    return field == NVML_FI_DEV_ECC_DBE_VOL_TOTAL ? NVML_VALUE_TYPE_UNSIGNED_LONG_LONG : NVML_VALUE_TYPE_UNSIGNED_INT;
}

std::optional<int64_t> value_of_field(const GpuFacts& gpu, unsigned id, unsigned scope) {
    if (auto value = link_field(gpu, id, scope)) return value;
    for (auto& field : known_fields) {
        if (field.id != id) continue;
        auto value = field.key ? value_of(gpu, field.key) : std::nullopt;
        bool zero = !field.key || id == NVML_FI_DEV_PCIE_REPLAY_COUNTER;
        return value || !zero ? value : zero_if_emulated(gpu);
    }
    return std::nullopt;
}

long long now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

void answer(const GpuFacts& gpu, nvmlFieldValue_t& field) {
    auto value = value_of_field(gpu, field.fieldId, field.scopeId);
    field.nvmlReturn = value_of(gpu, gpu_value::lost) ? NVML_ERROR_GPU_IS_LOST
                       : value                        ? NVML_SUCCESS
                                                      : NVML_ERROR_NOT_SUPPORTED;
    field.timestamp = now_us();
    field.latencyUsec = 0;
    field.valueType = type_of(field.fieldId);
    field.value.ullVal = static_cast<unsigned long long>(value.value_or(0));
}

}  // namespace

NVML_EXPORT nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
    if (!values || count < 0) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        for (int i = 0; i < count; ++i) answer(gpu, values[i]);
        return NVML_SUCCESS;
    });
}
