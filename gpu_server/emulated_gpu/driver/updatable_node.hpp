// Kernels of graphs that kernels change (CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE): what they have changed. It
// lasts from launch to launch, until the program itself changes the instance: then each such node is again as the
// program has made it.
#pragma once

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/driver/operation.hpp"
#include "gpu_server/emulated_gpu/driver/registry.hpp"

namespace tnr::emulated {

// Its handle is what the program gives to kernels.
class UpdatableNode : public Object {
public:
    static constexpr Kind kind_of = Kind::updatable_node;
    UpdatableNode() : Object(kind_of) {}

    // As the program has made the node; launches of its graph follow.
    void reset(const Device& device, const KernelLaunch& launch, bool enabled) TNR_EXCLUDES(mutex_);
    // False: there is no such update.
    bool update(const ptx::NodeUpdate& update) TNR_EXCLUDES(mutex_);
    // What a launch of the node is by now. False: nothing.
    bool apply(KernelLaunch& launch) const TNR_EXCLUDES(mutex_);

private:
    mutable Mutex mutex_;
    const Device* device_ TNR_GUARDED_BY(mutex_) = nullptr;  // null: of no instance yet
    ptx::Dim3 grid_ TNR_GUARDED_BY(mutex_), cluster_ TNR_GUARDED_BY(mutex_);
    std::vector<std::byte> parameters_ TNR_GUARDED_BY(mutex_);
    bool enabled_ TNR_GUARDED_BY(mutex_) = true;
};

// Its handle goes with the last owner.
std::shared_ptr<UpdatableNode> make_updatable_node();

// What a kernel asks for, of the node that it names. False: there is no such node or update.
bool update_node(const ptx::NodeUpdate& update);

}  // namespace tnr::emulated
