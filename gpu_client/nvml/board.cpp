// What kind of thing a GPU is.
#include "gpu_client/nvml/export.hpp"
#include "gpu_client/nvml/library.hpp"

using namespace tnr;
using namespace tnr::nvml;

// By the product's name, which carries its brand.
static std::optional<int64_t> brand_of_name(const GpuFacts& gpu) {
    struct Brand {
        const char* prefix;
        nvmlBrandType_t brand;
    };
    constexpr Brand brands[] = {
        {"NVIDIA GeForce", NVML_BRAND_GEFORCE}, {"GeForce", NVML_BRAND_GEFORCE}, {"NVIDIA RTX", NVML_BRAND_NVIDIA_RTX},
        {"Quadro RTX", NVML_BRAND_QUADRO_RTX},  {"Quadro", NVML_BRAND_QUADRO},   {"Tesla", NVML_BRAND_TESLA},
        {"NVIDIA TITAN", NVML_BRAND_TITAN},     {"TITAN", NVML_BRAND_TITAN},     {"NVIDIA", NVML_BRAND_NVIDIA}};
    for (auto& known : brands)
        if (gpu.name.starts_with(known.prefix)) return known.brand;
    return NVML_BRAND_UNKNOWN;
}

NVML_EXPORT nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t* brand) {
    return give(device, gpu_value::brand, brand, brand_of_name);
}

// One number per board: where it is plugged in.
NVML_EXPORT nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned* id) {
    if (!id) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        *id = static_cast<unsigned>(gpu.pci_domain) << 16 | static_cast<unsigned>(gpu.pci_bus) << 8 |
              static_cast<unsigned>(gpu.pci_device);
        return NVML_SUCCESS;
    });
}
NVML_EXPORT nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned* several) {
    return give(device, gpu_value::multi_gpu_board, several, zero_if_emulated);
}

// This machine may be virtual; the GPU it sees is not made by its hypervisor.
NVML_EXPORT nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t* mode) {
    return give(device, gpu_value::virtualization, mode,
                [](const GpuFacts&) { return std::optional<int64_t>(NVML_GPU_VIRTUALIZATION_MODE_NONE); });
}

NVML_EXPORT nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned* enabled, unsigned* default_mode) {
    if (!default_mode) return NVML_ERROR_INVALID_ARGUMENT;
    auto result = give(device, gpu_value::gsp_firmware, enabled, zero_if_emulated);
    return result == NVML_SUCCESS ? give(device, gpu_value::gsp_firmware, default_mode, zero_if_emulated) : result;
}

// "CUDA cores" are 32-bit floating-point lanes: 64 per multiprocessor in Volta, Turing, A100, 128 in all later ones.
static std::optional<int64_t> cores_of(const GpuFacts& gpu) {
    auto count = value_of(gpu, gpu_value::multiprocessors), major = value_of(gpu, gpu_value::compute_major),
         minor = value_of(gpu, gpu_value::compute_minor);
    if (!count || !major || !minor) return std::nullopt;
    return *count * (*major < 8 || (*major == 8 && *minor == 0) ? 64 : 128);
}
NVML_EXPORT nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned* cores) {
    return give(device, "cores", cores, cores_of);
}

// A claim is of whole GPUs, and no handle of ours is a part of one.
NVML_EXPORT nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned* is_part) {
    return constant(device, is_part, 0u);
}

// The library does neither keep records of what processes used nor deliver events.
NVML_EXPORT nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
    return constant(device, mode, NVML_FEATURE_DISABLED);
}
NVML_EXPORT nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long* types) {
    return constant(device, types, 0ull);
}
