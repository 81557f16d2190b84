// `tnr-gpu-server wipe-gpu`: no tenant shall find what another left in the GPU's memory. See helpers.hpp.
//
// The driver gives out whole blocks only, so what cannot be had even in the smallest of our sizes is in nobody's hands:
// the context's own, and page-table crumbs that the driver clears when it hands them out.
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
constexpr uint32_t pattern = 0xa5c3'f00d;

struct Block {
    CUdeviceptr address;
    size_t bytes;
};

class Wipe {
public:
    Wipe(const DriverCalls& driver, size_t bytes_max) : driver_(driver), bytes_left_(bytes_max) {}

    // Empty, or what went wrong.
    std::string device(int ordinal) {
        CUdevice device{};
        CUcontext context{};
        if (!ok(driver_.device(&device, ordinal), "cuDeviceGet")) return why_;
        if (!ok(driver_.retain_context(&context, device), "cuDevicePrimaryCtxRetain")) return why_;
        if (!ok(driver_.set_context(context), "cuCtxSetCurrent")) return why_;
        take_memory();
        if (blocks_.empty()) return "no memory could be had to overwrite";
        if (!fill(pattern) || !check(pattern) || !fill(0) || !check(0)) return why_;
        return {};  // the process ends now, and with it the allocations
    }
    uint64_t bytes() const { return bytes_; }

private:
    bool ok(CUresult result, const char* doing) {
        if (result != CUDA_SUCCESS) why_ = std::string(doing) + ": " + driver_.name_of(result);
        return result == CUDA_SUCCESS;
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
    uint64_t bytes = 0;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        Wipe one(*driver, bytes_max ? bytes_max : SIZE_MAX);
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
