// Graphs that kernels of graphs launch (cudaGraphLaunch on the device). What a kernel launches at once runs as soon as the
// kernel is done, one after the other; what it launches for the end of its graph (tail), when the graph and all that it has
// launched at once are done. So a kernel cannot wait for a graph that it launches, which hardware would allow.
#pragma once

#include <deque>

#include "api_client/base/mutex.hpp"
#include "gpu_server/emulated_gpu/driver/graph_exec.hpp"

namespace tnr::emulated {

// As hardware bounds them, for one run of a graph; and how deep graphs may launch graphs at once.
inline constexpr size_t device_launches_max = 120, device_tails_max = 255;
inline constexpr unsigned device_graph_depth_max = 24;

// Whether kernels may launch instances of the graph, and of which context; `report` says what forbids it.
CUresult check_for_device(const Graph& graph, Context*& context, CUDA_GRAPH_INSTANTIATE_PARAMS& report);

// A graph that a kernel has launched and that is not done. It is movable, and marks the instance as long as it lives.
struct DeviceLaunch {
    std::shared_ptr<GraphExec> exec;
    std::shared_ptr<const Plan> plan;
    std::shared_ptr<void> mark;
};
using DeviceLaunchList = std::deque<DeviceLaunch>;

// What the kernels of one running graph launch. Any thread.
class DeviceLaunches : public ptx::GraphAround {
public:
    // `exec`: the instance's handle; 0: kernels may not launch it.
    DeviceLaunches(Context& context, uint64_t exec, unsigned depth) : context_(context), exec_(exec), depth_(depth) {}

    uint64_t exec() const override { return exec_; }
    int32_t launch(uint64_t exec, uint64_t stream) override TNR_EXCLUDES(mutex_);

    // What has been launched since the last call.
    DeviceLaunchList take_at_once() TNR_EXCLUDES(mutex_);
    // To run beside this graph, as if its own launcher had launched it.
    DeviceLaunchList take_siblings() TNR_EXCLUDES(mutex_);
    DeviceLaunchList take_tail() TNR_EXCLUDES(mutex_);

private:
    Context& context_;
    const uint64_t exec_;
    const unsigned depth_;
    Mutex mutex_;
    size_t launched_ TNR_GUARDED_BY(mutex_) = 0;
    DeviceLaunchList at_once_ TNR_GUARDED_BY(mutex_), siblings_ TNR_GUARDED_BY(mutex_), tail_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::emulated
