// `tnr-gpu-server probe-gpus`: which GPUs the driver has. See helpers.hpp.
#include <nlohmann/json.hpp>

#include "gpu_server/supervisor/child.hpp"
#include "gpu_server/supervisor/driver_calls.hpp"
#include "gpu_server/supervisor/helpers.hpp"

namespace tnr::server {

using nlohmann::json;

static std::string hex(const CUuuid& uuid) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (char byte : uuid.bytes) {
        text += digits[static_cast<unsigned char>(byte) >> 4];
        text += digits[byte & 15];
    }
    return text;
}

static json probe() {
    auto driver = load_driver();
    if (!driver) return {{"failed", driver.error().what}};
    int count = 0;
    if (auto code = driver->device_count(&count); code != CUDA_SUCCESS) return {{"failed", driver->name_of(code)}};
    json devices = json::array();
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        CUdevice device{};
        char name[256] = "";
        CUuuid uuid{};
        size_t bytes = 0;
        auto code = driver->device(&device, ordinal);
        if (code == CUDA_SUCCESS) code = driver->device_name(name, sizeof name, device);
        if (code == CUDA_SUCCESS) code = driver->device_uuid(&uuid, device);
        if (code == CUDA_SUCCESS) code = driver->total_memory(&bytes, device);
        int mode = CU_COMPUTEMODE_DEFAULT;
        if (code == CUDA_SUCCESS) code = driver->attribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device);
        if (code != CUDA_SUCCESS) return {{"failed", "GPU " + std::to_string(ordinal) + ": " + driver->name_of(code)}};
        devices.push_back({{"name", name}, {"uuid", hex(uuid)}, {"memory_bytes", bytes}, {"compute_mode", mode}});
    }
    return {{"devices", devices}};
}

int run_probe(int control_fd) {
    return send_message(control_fd, probe()) ? 0 : 1;
}

}  // namespace tnr::server
