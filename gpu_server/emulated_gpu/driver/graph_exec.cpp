#include "gpu_server/emulated_gpu/driver/graph_exec.hpp"

#include <set>

#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/device_graphs.hpp"
#include "gpu_server/emulated_gpu/driver/graph_run.hpp"
#include "gpu_server/emulated_gpu/driver/updatable_node.hpp"

namespace tnr::emulated {
namespace {

void add_steps(const Graph& graph, Plan& plan) {
    plan.references.insert(plan.references.end(), graph.references.begin(), graph.references.end());
    for (const GraphNode* node : graph.in_order()) {
        auto* kernel = node->work_as<KernelWork>();
        if (kernel && kernel->launch.updatable)
            kernel->launch.updatable->reset(kernel->context().device, kernel->launch, node->enabled);
        else if (!node->enabled)
            continue;
        if (auto* child = node->work_as<ChildWork>()) {
            add_steps(*child->graph, plan);
            continue;
        }
        Step& step = plan.steps.emplace_back(Step{node->work, {}});
        if (auto* conditional = node->work_as<ConditionalWork>())
            for (const auto& body : conditional->bodies) add_steps(*body, step.bodies.emplace_back());
    }
}

// Bodies of conditional nodes hold work of the device only. Null if they do.
const GraphNode* unfit_for_body(const Graph& body) {
    for (const auto& node : body.nodes) {
        switch (type_of(*node->work)) {
            case CU_GRAPH_NODE_TYPE_KERNEL:
            case CU_GRAPH_NODE_TYPE_MEMCPY:
            case CU_GRAPH_NODE_TYPE_MEMSET:
            case CU_GRAPH_NODE_TYPE_EMPTY:
            case CU_GRAPH_NODE_TYPE_CONDITIONAL:
                break;
            case CU_GRAPH_NODE_TYPE_GRAPH:
                if (auto* unfit = unfit_for_body(*node->work_as<ChildWork>()->graph)) return unfit;
                break;
            default:
                return node.get();
        }
    }
    return nullptr;
}

void conditions_used(const Graph& graph, std::set<const GraphCondition*>& used) {
    for (const auto& node : graph.nodes) {
        auto* conditional = node->work_as<ConditionalWork>();
        if (!conditional) continue;
        used.insert(conditional->condition.get());
        for (const auto& body : conditional->bodies) conditions_used(*body, used);
    }
}

CUresult check_conditions(const Graph& graph, CUDA_GRAPH_INSTANTIATE_PARAMS& report) {
    std::set<const GraphCondition*> used;
    conditions_used(graph, used);
    for (const auto& condition : graph.conditions)
        if (!used.contains(condition.get())) {
            report.result_out = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
            return CUDA_ERROR_INVALID_VALUE;
        }
    for (const auto& node : graph.nodes) {
        auto* conditional = node->work_as<ConditionalWork>();
        if (!conditional) continue;
        for (const auto& body : conditional->bodies) {
            if (auto* unfit = unfit_for_body(*body)) {
                report.hErrNode_out = unfit->as<CUgraphNode>();
                return CUDA_ERROR_INVALID_VALUE;
            }
            if (CUresult error = check_conditions(*body, report)) return error;
        }
    }
    return CUDA_SUCCESS;
}

}  // namespace

std::shared_ptr<const Plan> GraphExec::plan() {
    if (!plan_) {
        auto fresh = std::make_shared<Plan>();
        add_steps(*graph, *fresh);
        plan_ = std::move(fresh);
    }
    return plan_;
}

CUresult instantiate(Graph& graph, cuuint64_t flags, std::shared_ptr<GraphExec>& exec,
                     CUDA_GRAPH_INSTANTIATE_PARAMS& report) {
    report.hErrNode_out = nullptr;
    report.result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    if (graph.is_unique() && !graph.instance.expired()) return CUDA_ERROR_NOT_SUPPORTED;
    if (graph.has_cycle()) {
        report.result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (CUresult error = check_conditions(graph, report)) return error;
    Context* device_context = nullptr;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        if (CUresult error = check_for_device(graph, device_context, report)) return error;
    exec = driver().registry.add(std::make_shared<GraphExec>(clone(graph, false), flags));
    exec->device_context = device_context;
    graph.instance = exec;
    report.result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return CUDA_SUCCESS;
}

// What the launch holds (functions, events) lives until it is done, whatever becomes of graph and instance.
CUresult launch_graph(GraphExec& exec, Stream& stream) {
    std::shared_ptr<Capture> capture;
    if (CUresult error = use_capture(stream, capture)) return error;
    if (capture) {
        capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    auto plan = exec.plan();
    bool auto_free = exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    if (CUresult error = account_for_launch(*plan, auto_free, stream)) return error;
    exec.uploaded = true;
    auto run = std::make_shared<GraphRun>(exec, plan, stream.context);
    exec.last = stream.context.submit(stream, [run] { run->perform_all(); }, {exec.last});
    run->announce();
    note_launch(*plan, exec.last);
    return CUDA_SUCCESS;
}

// There is nothing to upload, only the order is kept.
CUresult upload_graph(GraphExec& exec, Stream& stream) {
    std::shared_ptr<Capture> capture;
    if (CUresult error = use_capture(stream, capture)) return error;
    if (capture) {
        capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    exec.plan();
    exec.uploaded = true;
    exec.last = stream.context.submit(stream, [] {}, {exec.last});
    return CUDA_SUCCESS;
}

}  // namespace tnr::emulated
