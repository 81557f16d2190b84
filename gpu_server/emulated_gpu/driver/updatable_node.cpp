// See updatable_node.hpp.
#include "gpu_server/emulated_gpu/driver/updatable_node.hpp"

#include <algorithm>

#include "gpu_server/emulated_gpu/driver/state.hpp"

namespace tnr::emulated {

void UpdatableNode::reset(const Device& device, const KernelLaunch& launch, bool enabled) {
    LockGuard lock(mutex_);
    device_ = &device;
    grid_ = launch.grid;
    cluster_ = launch.cluster;
    parameters_ = launch.parameters;
    enabled_ = enabled;
}

// As for launches: none is empty, and clusters are whole.
static bool is_grid(const ptx::Dim3& grid, const ptx::Dim3& cluster) {
    auto fits = [](uint32_t blocks, uint32_t most, uint32_t together) {
        return blocks != 0 && blocks <= most && blocks % std::max(together, 1u) == 0;
    };
    return fits(grid.x, 0x7fffffff, cluster.x) && fits(grid.y, 0xffff, cluster.y) && fits(grid.z, 0xffff, cluster.z);
}

bool UpdatableNode::update(const ptx::NodeUpdate& update) {
    LockGuard lock(mutex_);
    if (!device_ || device_->ordinal != update.device) return false;
    switch (update.field) {
        case ptx::NodeUpdate::Field::grid:
            if (!is_grid(update.grid, cluster_)) return false;
            grid_ = update.grid;
            return true;
        case ptx::NodeUpdate::Field::parameter: {
            const uint64_t bytes = update.value.size();
            if (update.offset > parameters_.size() || bytes > parameters_.size() - update.offset) return false;
            std::ranges::copy(update.value, parameters_.begin() + static_cast<ptrdiff_t>(update.offset));
            return true;
        }
        case ptx::NodeUpdate::Field::enabled:
            enabled_ = update.enabled;
            return true;
    }
    return false;
}

bool UpdatableNode::apply(KernelLaunch& launch) const {
    LockGuard lock(mutex_);
    launch.grid = grid_;
    launch.parameters = parameters_;
    return enabled_;
}

std::shared_ptr<UpdatableNode> make_updatable_node() {
    auto made = driver().registry.add(std::make_shared<UpdatableNode>());
    return {made.get(), [made](UpdatableNode* node) { driver().registry.remove(node->handle()); }};
}

bool update_node(const ptx::NodeUpdate& update) {
    auto node = find<UpdatableNode>(update.node);
    return node && node->update(update);
}

}  // namespace tnr::emulated
