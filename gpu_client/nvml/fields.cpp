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
    {NVML_FI_DEV_ECC_SBE_VOL_TOTAL, gpu_value::ecc_errors[NVML_MEMORY_ERROR_TYPE_CORRECTED][NVML_VOLATILE_ECC]},
    {NVML_FI_DEV_ECC_DBE_VOL_TOTAL, gpu_value::ecc_errors[NVML_MEMORY_ERROR_TYPE_UNCORRECTED][NVML_VOLATILE_ECC]},
    {NVML_FI_DEV_ECC_SBE_AGG_TOTAL, gpu_value::ecc_errors[NVML_MEMORY_ERROR_TYPE_CORRECTED][NVML_AGGREGATE_ECC]},
    {NVML_FI_DEV_ECC_DBE_AGG_TOTAL, gpu_value::ecc_errors[NVML_MEMORY_ERROR_TYPE_UNCORRECTED][NVML_AGGREGATE_ECC]},
    {NVML_FI_DEV_MEMORY_TEMP, gpu_value::memory_temperature_c},
    {NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, gpu_value::energy_mj},
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
    {NVML_FI_DEV_REMAPPED_COR, gpu_value::remapped_rows[0]},
    {NVML_FI_DEV_REMAPPED_UNC, gpu_value::remapped_rows[1]},
    {NVML_FI_DEV_REMAPPED_PENDING, gpu_value::remapped_rows[2]},
    {NVML_FI_DEV_REMAPPED_FAILURE, gpu_value::remapped_rows[3]},
    {NVML_FI_DEV_C2C_LINK_COUNT, nullptr},
    {NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED, nullptr},
    {NVML_FI_DEV_IS_MIG_MODE_INDEPENDENT_MIG_QUERY_CAPABLE, nullptr},
    {NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, nullptr},
};

// Wide counters are 64 bits in NVML, everything else here 32.
nvmlValueType_t type_of(unsigned field) {
    switch (field) {
        case NVML_FI_DEV_ECC_SBE_VOL_TOTAL:
        case NVML_FI_DEV_ECC_DBE_VOL_TOTAL:
        case NVML_FI_DEV_ECC_SBE_AGG_TOTAL:
        case NVML_FI_DEV_ECC_DBE_AGG_TOTAL:
        case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
            return NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        default:
            return NVML_VALUE_TYPE_UNSIGNED_INT;
    }
}

bool is_zero_if_emulated(const Field& field) {
    return !field.key || field.id == NVML_FI_DEV_PCIE_REPLAY_COUNTER ||
           (field.id >= NVML_FI_DEV_REMAPPED_COR && field.id <= NVML_FI_DEV_REMAPPED_FAILURE);
}

std::optional<int64_t> value_of_field(const GpuFacts& gpu, unsigned id, unsigned scope) {
    if (auto value = link_field(gpu, id, scope)) return value;
    for (auto& field : known_fields) {
        if (field.id != id) continue;
        auto value = field.key ? value_of(gpu, field.key) : std::nullopt;
        return value || !is_zero_if_emulated(field) ? value : zero_if_emulated(gpu);
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
