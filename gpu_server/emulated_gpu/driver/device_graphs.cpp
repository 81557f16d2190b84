#include "gpu_server/emulated_gpu/driver/device_graphs.hpp"

#include "gpu_server/emulated_gpu/driver/context.hpp"

namespace tnr::emulated {
namespace {

// What cuda_device_runtime_api.h calls streams, and cudaErrors.
enum NamedStream : uint64_t {
    tail_launch = 0x0100000000000000,
    fire_and_forget = 0x0200000000000000,
    fire_and_forget_as_sibling = 0x0300000000000000
};
constexpr int32_t launched = 0, error_value = 1, error_depth = 65, error_pending = 69;

struct Verdict {
    Context* context = nullptr;
    const GraphNode* unfit = nullptr;
    CUgraphInstantiateResult why = CUDA_GRAPH_INSTANTIATE_SUCCESS;

    bool refuse(const GraphNode& node, CUgraphInstantiateResult reason) {
        unfit = &node;
        why = reason;
        return false;
    }
};

bool reached_by_devices(Side side, uint64_t address) {
    return side != Side::array && driver().addresses.find(address);
}

// The context that a node's work is of; null: work that devices do not launch.
Context* context_for_device(const GraphNode& node) {
    if (auto* kernel = node.work_as<KernelWork>()) return &kernel->context();
    if (auto* fill = node.work_as<FillWork>()) return fill->context;
    auto* copy = node.work_as<CopyWork>();
    bool fits = copy && reached_by_devices(copy->destination, copy->copy.destination) &&
                reached_by_devices(copy->source, copy->copy.source);
    return fits ? copy->context : nullptr;
}

bool look_at(const Graph& graph, Verdict& verdict) {
    for (const auto& node : graph.nodes) {
        if (auto* child = node->work_as<ChildWork>()) {
            if (!look_at(*child->graph, verdict)) return false;
            continue;
        }
        Context* context = context_for_device(*node);
        if (!context) return verdict.refuse(*node, CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED);
        if (!verdict.context) verdict.context = context;
        if (context != verdict.context)
            return verdict.refuse(*node, CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED);
    }
    return true;
}

std::shared_ptr<void> mark(const std::shared_ptr<GraphExec>& exec, std::atomic<bool>& flag) {
    return {nullptr, [exec, &flag](void*) { flag = false; }};
}

}  // namespace

CUresult check_for_device(const Graph& graph, Context*& context, CUDA_GRAPH_INSTANTIATE_PARAMS& report) {
    Verdict verdict;
    if (!look_at(graph, verdict)) {
        report.result_out = verdict.why;
        report.hErrNode_out = verdict.unfit->as<CUgraphNode>();
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    context = verdict.context;
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;  // there must be something to do
}

int32_t DeviceLaunches::launch(uint64_t handle, uint64_t stream) {
    auto exec = find<GraphExec>(handle);
    bool tail = stream == tail_launch;
    if (!exec || exec->device_context != &context_ || !exec->uploaded) return error_value;
    if (!tail && stream != fire_and_forget && stream != fire_and_forget_as_sibling) return error_value;
    if (!tail && handle == exec_) return error_value;  // it runs
    if (!tail && depth_ >= device_graph_depth_max) return error_depth;
    std::shared_ptr<const Plan> plan;
    {
        LockGuard lock(graph_mutex());
        plan = exec->plan();
    }
    auto& flag = tail ? exec->waits_turn : exec->on_device;
    LockGuard lock(mutex_);
    if (tail ? tail_.size() >= device_tails_max : launched_ >= device_launches_max) return error_pending;
    if (flag.exchange(true)) return error_value;
    auto& list = tail ? tail_ : stream == fire_and_forget ? at_once_ : siblings_;
    if (!tail) ++launched_;
    list.push_back({exec, std::move(plan), mark(exec, flag)});
    return launched;
}

DeviceLaunchList DeviceLaunches::take_at_once() {
    LockGuard lock(mutex_);
    return std::exchange(at_once_, {});
}

DeviceLaunchList DeviceLaunches::take_siblings() {
    LockGuard lock(mutex_);
    return std::exchange(siblings_, {});
}

DeviceLaunchList DeviceLaunches::take_tail() {
    LockGuard lock(mutex_);
    return std::exchange(tail_, {});
}

}  // namespace tnr::emulated
