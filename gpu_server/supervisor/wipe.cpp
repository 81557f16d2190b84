// `tnr-gpu-server wipe-gpu`: no tenant shall find what another left in the GPU's memory. See helpers.hpp.
//
// The driver gives out whole blocks only, so what cannot be had even in the smallest of our sizes is in nobody's hands:
// the context's own, and page-table crumbs that the driver clears when it hands them out.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "gpu_server/supervisor/child.hpp"
#include "gpu_server/supervisor/driver_calls.hpp"
#include "gpu_server/supervisor/helpers.hpp"

namespace tnr::server {

using nlohmann::json;

namespace {

constexpr size_t largest_block = size_t{8} << 30;
constexpr size_t smallest_block = size_t{2} << 20;  // the driver's own page
constexpr size_t sample_every = size_t{64} << 20;   // one word read back of each: a few thousand round trips at most
// Crumbs: too small for a block, or held back by the driver for its own next allocations. At most so many bytes, or a
// 64th of the memory.
constexpr size_t free_bytes_max = size_t{256} << 20;
constexpr size_t free_share_max = 64;
constexpr uint32_t pattern = 0xa5c3'f00d;

struct Block {
    CUdeviceptr address;
    size_t bytes;
};

class Wipe {
public:
    // `bytes_max` 0: all there is.
    Wipe(const DriverCalls& driver, size_t bytes_max)
        : driver_(driver), everything_(bytes_max == 0), bytes_left_(everything_ ? SIZE_MAX : bytes_max) {}

    // Empty, or what went wrong.
    std::string device(int ordinal) {
        CUdevice device{};
        CUcontext context{};
        if (!ok(driver_.device(&device, ordinal), "cuDeviceGet")) return why_;
        if (!ok(driver_.retain_context(&context, device), "cuDevicePrimaryCtxRetain")) return why_;
        if (!ok(driver_.set_context(context), "cuCtxSetCurrent")) return why_;
        take_memory();
        if (blocks_.empty()) return "no memory could be had to overwrite";
        if (everything_ && !check_nothing_left()) return why_;
        if (!fill(pattern) || !check(pattern) || !fill(0) || !check(0)) return why_;
        return {};  // the process ends now, and with it the allocations
    }
    uint64_t bytes() const { return bytes_; }

private:
    bool ok(CUresult result, const char* doing) {
        if (result == CUDA_SUCCESS) return true;
        why_ = std::string(doing) + ": " + driver_.name_of(result);
        // Another process has the GPU for itself, or nobody may have it.
        if (result == CUDA_ERROR_DEVICE_UNAVAILABLE) why_ += " (is its compute mode exclusive? nvidia-smi -c 0)";
        return false;
    }
    void take_memory() {
        blocks_.clear();
        for (size_t size = largest_block; size >= smallest_block;) {
            CUdeviceptr address{};
            if (size > bytes_left_ || driver_.allocate(&address, size) != CUDA_SUCCESS) {
                size /= 2;
                continue;
            }
            blocks_.push_back({address, size});
            bytes_ += size;
            bytes_left_ -= size;
        }
    }
    // Memory that is free and yet cannot be had would be the next tenant's unwiped.
    bool check_nothing_left() {
        size_t free = 0, total = 0;
        if (!ok(driver_.memory_info(&free, &total), "cuMemGetInfo")) return false;
        if (free <= std::max(free_bytes_max, total / free_share_max)) return true;
        why_ = std::to_string(free >> 20) + " MiB of " + std::to_string(total >> 20) + " MiB could not be overwritten";
        return false;
    }
    bool fill(uint32_t word) {
        for (auto& block : blocks_)
            if (!ok(driver_.fill(block.address, word, block.bytes / sizeof word), "cuMemsetD32")) return false;
        return ok(driver_.synchronize(), "cuCtxSynchronize");
    }
    bool check(uint32_t expected) {
        for (auto& block : blocks_)
            for (size_t at = 0; at < block.bytes; at += sample_every)
                if (!check_word(block.address + at, expected)) return false;
        return true;
    }
    bool check_word(CUdeviceptr address, uint32_t expected) {
        uint32_t found = ~expected;
        if (!ok(driver_.copy_down(&found, address, sizeof found), "cuMemcpyDtoH")) return false;
        if (found != expected) why_ = "memory does not hold what was written to it";
        return found == expected;
    }

    const DriverCalls& driver_;
    const bool everything_;
    std::vector<Block> blocks_;
    uint64_t bytes_ = 0;
    size_t bytes_left_;
    std::string why_;
};

json wipe(uint64_t bytes_max) {
    auto driver = load_driver();
    if (!driver) return {{"failed", driver.error().what}};
    int count = 0;
    if (auto code = driver->device_count(&count); code != CUDA_SUCCESS) return {{"failed", driver->name_of(code)}};
    if (count == 0) return {{"failed", "the driver does not show this GPU any more"}};
    uint64_t bytes = 0;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        Wipe one(*driver, bytes_max);
        if (auto why = one.device(ordinal); !why.empty()) return {{"failed", why}};
        bytes += one.bytes();
    }
    return {{"wiped", bytes}};
}

}  // namespace

int run_wipe(int control_fd, uint64_t bytes_max) {
    bool sent = send_message(control_fd, wipe(bytes_max));
    // No destructors of the driver: the kernel takes everything back, and sooner.
    _exit(sent ? 0 : 1);
}

}  // namespace tnr::server
