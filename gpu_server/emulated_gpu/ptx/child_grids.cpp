// See child_grids.hpp.
#include "gpu_server/emulated_gpu/ptx/child_grids.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "gpu_server/emulated_gpu/ptx/builtin.hpp"
#include "gpu_server/emulated_gpu/ptx/limits.hpp"
#include "gpu_server/emulated_gpu/ptx/module.hpp"

namespace tnr::ptx {

// As CUDA numbers them.
static constexpr int32_t launched = 0, error_value = 1, error_depth = 65, error_pending = 69;
static constexpr uint64_t tail_stream = 3;  // cudaStreamTailLaunch

static bool find_kernel(const LoadedModule& module, uint64_t code, uint32_t& kernel) {
    if ((code & code_window) != code_window) return false;
    for (kernel = 0; kernel < module.kernels().size(); ++kernel)
        if (module.layout(kernel).function == (code & ~code_window)) return true;
    return false;
}

uint64_t ChildGrids::prepare(const Launch& parent, uint64_t code, ChildGrid wanted) {
    auto& module = *static_cast<const LoadedModule*>(parent.module);
    if (!find_kernel(module, code, wanted.kernel)) return 0;
    if (!check(launch_of(wanted, parent), module).empty()) return 0;
    auto bytes = std::max<uint64_t>(module.kernels()[wanted.kernel].parameter_bytes, 1);
    uint64_t address = DeviceHeap::instance().allocate_parameters(bytes);
    if (address == 0) return 0;
    wanted.parameters = {reinterpret_cast<std::byte*>(address), [address](std::byte*) {
                             DeviceHeap::instance().release(address, DeviceHeap::Use::parameters);
                         }};
    LockGuard lock(mutex_);
    prepared_[address] = std::move(wanted);
    return address;
}

int32_t ChildGrids::launch(uint64_t parameters, uint64_t stream) {
    LockGuard lock(mutex_);
    auto found = prepared_.find(parameters);
    if (found == prepared_.end()) return error_value;
    ChildGrid child = std::move(found->second);
    prepared_.erase(found);
    if (depth_ >= child_depth_max) return error_depth;
    return enter(std::move(child), stream);
}

int32_t ChildGrids::add(const Transfer& transfer, uint64_t stream) {
    ChildGrid child;
    child.transfer = transfer;
    LockGuard lock(mutex_);
    return enter(std::move(child), stream);
}

int32_t ChildGrids::enter(ChildGrid child, uint64_t stream) {
    if (launched_.size() + tail_.size() >= child_grids_max) return error_pending;
    (stream == tail_stream ? tail_ : launched_).push_back(std::move(child));
    return launched;
}

void ChildGrids::note(uint64_t thread, int32_t error) {
    LockGuard lock(mutex_);
    if (errors_.size() < child_grids_max || errors_.contains(thread)) errors_[thread] = error;
}

int32_t ChildGrids::last_error(uint64_t thread, bool forget) {
    LockGuard lock(mutex_);
    auto found = errors_.find(thread);
    if (found == errors_.end()) return launched;
    int32_t error = found->second;
    if (forget) errors_.erase(found);
    return error;
}

std::vector<ChildGrid> ChildGrids::take() {
    LockGuard lock(mutex_);
    auto all = std::move(launched_);
    std::move(tail_.begin(), tail_.end(), std::back_inserter(all));
    return all;
}

static bool is_memory(const Launch& parent, uint64_t address, uint64_t bytes) {
    auto in = [&](const Memory::Range& range) {
        return range.begin <= address && address < range.end && bytes <= range.end - address;
    };
    return (parent.memory && in(parent.memory->range_of(address))) || in(DeviceHeap::instance().range_of(address));
}

static bool run_row(const Transfer& transfer, const Launch& parent) {
    auto* to = reinterpret_cast<std::byte*>(transfer.to);
    if (!is_memory(parent, transfer.to, transfer.bytes)) return false;
    if (!transfer.from) return std::memset(to, transfer.value, transfer.bytes), true;
    if (!is_memory(parent, *transfer.from, transfer.bytes)) return false;
    std::memmove(to, reinterpret_cast<const std::byte*>(*transfer.from), transfer.bytes);
    return true;
}

bool run_transfer(const Transfer& transfer, const Launch& parent) {
    Transfer row = transfer;
    for (uint64_t k = 0; k < transfer.rows; ++k) {
        if (!run_row(row, parent)) return false;
        row.to += transfer.to_pitch;
        if (row.from) *row.from += transfer.from_pitch;
    }
    return true;
}

Launch launch_of(const ChildGrid& child, const Launch& parent) {
    Launch launch = parent;
    launch.kernel = child.kernel;
    launch.grid = child.grid;
    launch.block = child.block;
    launch.dynamic_shared_bytes = child.dynamic_shared_bytes;
    auto& kernel = static_cast<const LoadedModule*>(parent.module)->kernels()[child.kernel];
    launch.parameters = {child.parameters.get(), kernel.parameter_bytes};
    launch.cooperative = false;
    auto& cluster = kernel.cluster;
    launch.cluster = cluster[0] != 0 ? Dim3{cluster[0], cluster[1], cluster[2]} : Dim3{};
    return launch;
}

}  // namespace tnr::ptx
