// `tnr-gpu-server wipe-gpu`: no tenant shall find what another left in the GPU's memory. See helpers.hpp.
//
// The driver gives out whole blocks only, so what cannot be had even in the smallest of our sizes is in nobody's hands:
// the context's own, and page-table crumbs that the driver clears when it hands them out.
//
// All of it is written, with a pattern and then with zeros; and after each of the two, pieces chosen at random are read back
// for as long as wipe_budget allows. Which ones nobody can know before, so a GPU, or a driver, that leaves a share s of the
// memory as it was is found out with a probability of 1 - (1 - s)^pieces.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "gpu_server/supervisor/child.hpp"
#include "gpu_server/supervisor/driver_calls.hpp"
#include "gpu_server/supervisor/helpers.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;

namespace {

constexpr size_t largest_block = size_t{8} << 30;
// What is read back at once: small enough to be everywhere within the budget, large enough to come at the bus's speed.
constexpr size_t piece_bytes = size_t{1} << 20;
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
        choose_pieces();
        return overwrite() ? "" : why_;  // the process ends now, and with it the allocations
    }
    uint64_t bytes() const { return bytes_; }
    uint64_t checked_bytes() const { return checked_bytes_; }

private:
    using Clock = std::chrono::steady_clock;

    bool ok(CUresult result, const char* doing) {
        if (result == CUDA_SUCCESS) return true;
        why_ = std::string(doing) + ": " + driver_.name_of(result);
        // Another process has the GPU for itself, or nobody may have it.
        if (result == CUDA_ERROR_DEVICE_UNAVAILABLE) why_ += " (is its compute mode exclusive? nvidia-smi -c 0)";
        return false;
    }
    void take_memory() {
        blocks_.clear();
        for (size_t size = largest_block; size >= wipe_block_bytes_min;) {
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
    bool overwrite() {
        const auto began = Clock::now();
        if (!fill(pattern)) return false;
        const auto filled = Clock::now();
        const auto until = began + wipe_budget;
        const auto to_fill_again = filled - began;
        // Half of what two fills leave, for each reading.
        if (!check(pattern, filled + (until - filled - to_fill_again) / 2)) return false;
        return fill(0) && check(0, until);
    }
    bool fill(uint32_t word) {
        for (auto& block : blocks_)
            if (!ok(driver_.fill(block.address, word, block.bytes / sizeof word), "cuMemsetD32")) return false;
        return ok(driver_.synchronize(), "cuCtxSynchronize");
    }
    // Blocks are whole pieces: none is smaller than wipe_block_bytes_min.
    void choose_pieces() {
        pieces_.clear();
        for (auto& block : blocks_)
            for (size_t at = 0; at + piece_bytes <= block.bytes; at += piece_bytes)
                pieces_.push_back(block.address + at);
        std::random_device entropy;
        std::seed_seq seed{entropy(), entropy(), entropy(), entropy(), entropy(), entropy(), entropy(), entropy()};
        std::shuffle(pieces_.begin(), pieces_.end(), std::mt19937_64(seed));
    }
    // The same pieces each time, as far as the time goes: checked_bytes_ is what was seen every time.
    bool check(uint32_t expected, Clock::time_point until) {
        const std::vector<uint32_t> wanted(piece_bytes / sizeof expected, expected);
        std::vector<uint32_t> found(wanted.size());
        uint64_t checked = 0;
        for (auto piece : pieces_) {
            if (checked >= wipe_checked_bytes_min && Clock::now() >= until) break;
            if (!ok(driver_.copy_down(found.data(), piece, piece_bytes), "cuMemcpyDtoH")) return false;
            if (found != wanted) {
                why_ = "memory does not hold what was written to it";
                return false;
            }
            checked += piece_bytes;
        }
        checked_bytes_ = std::min(checked_bytes_, checked);
        return true;
    }

    const DriverCalls& driver_;
    const bool everything_;
    std::vector<Block> blocks_;
    std::vector<CUdeviceptr> pieces_;  // in the order in which they are read back
    uint64_t bytes_ = 0;
    uint64_t checked_bytes_ = UINT64_MAX;
    size_t bytes_left_;
    std::string why_;
};

json wipe(uint64_t bytes_max) {
    auto driver = load_driver();
    if (!driver) return {{"failed", driver.error().what}};
    int count = 0;
    if (auto code = driver->device_count(&count); code != CUDA_SUCCESS) return {{"failed", driver->name_of(code)}};
    if (count == 0) return {{"failed", "the driver does not show this GPU any more"}};
    uint64_t bytes = 0, checked = 0;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        Wipe one(*driver, bytes_max);
        if (auto why = one.device(ordinal); !why.empty()) return {{"failed", why}};
        bytes += one.bytes();
        checked += one.checked_bytes();
    }
    return {{"wiped", bytes}, {"checked", checked}};
}

}  // namespace

int run_wipe(int control_fd, uint64_t bytes_max) {
    bool sent = send_message(control_fd, wipe(bytes_max));
    // No destructors of the driver: the kernel takes everything back, and sooner.
    _exit(sent ? 0 : 1);
}

}  // namespace tnr::server
