#include "gpu_server/emulated_gpu/driver/graph_exec.hpp"

#include <set>

#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/copy.hpp"

namespace tnr::emulated {
namespace {

void add_steps(const Graph& graph, Plan& plan) {
    plan.references.insert(plan.references.end(), graph.references.begin(), graph.references.end());
    for (const GraphNode* node : graph.in_order()) {
        if (!node->enabled) continue;
        if (auto* child = node->work_as<ChildWork>()) {
            add_steps(*child->graph, plan);
            continue;
        }
        Step& step = plan.steps.emplace_back(Step{node->work, {}});
        if (auto* conditional = node->work_as<ConditionalWork>())
            for (const auto& body : conditional->bodies) add_steps(*body, step.bodies.emplace_back());
    }
}

// Conditions that begin each run with their initial value.
void reset_conditions(const Plan& plan) {
    for (const Step& step : plan.steps) {
        auto* conditional = std::get_if<ConditionalWork>(step.work.get());
        if (!conditional) continue;
        GraphCondition& condition = *conditional->condition;
        if (condition.flags & CU_GRAPH_COND_ASSIGN_DEFAULT) condition.value = condition.initial_value;
        for (const Plan& body : step.bodies) reset_conditions(body);
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

// One launch: the plan, and what its events stand for this time.
class Run {
public:
    Run(std::shared_ptr<const Plan> plan, Context& stream_context) : plan_(std::move(plan)), context_(stream_context) {
        for (const Step& step : plan_->steps) {
            if (auto* record = std::get_if<RecordWork>(step.work.get())) expect(record->event);
            if (auto* wait = std::get_if<WaitWork>(step.work.get())) waits_.push_back(newest(*wait->event));
        }
    }

    // From now on the events mean this run's records. Called once the run has its place in a stream: whoever waits for
    // such a record comes after it, so no two can wait for each other.
    void announce() {
        for (Expected& expected : records_) expected.event->set_last(expected.record);
    }

    void perform_all() {
        reset_conditions(*plan_);
        perform_all(*plan_);
    }

private:
    // A record that is reached in the middle of this run, so it gets a queue of its own.
    struct Expected {
        std::shared_ptr<Event> event;
        std::shared_ptr<Event::Record> record;
        std::shared_ptr<Queue> queue;
        Queue::Placed placed;
    };

    void expect(const std::shared_ptr<Event>& event) {
        auto record = std::make_shared<Event::Record>();
        auto queue = std::make_shared<Queue>();
        auto reach = [weak = std::weak_ptr(record)] {
            if (auto r = weak.lock()) r->reached = Event::Clock::now().time_since_epoch().count();
        };
        Queue::Placed placed = queue->place(std::move(reach), {});
        record->point = {queue, placed.ticket};
        records_.push_back({event, std::move(record), std::move(queue), std::move(placed)});
    }

    // What waiting for the event means at this place of the plan.
    Point newest(Event& event) const {
        for (auto expected = records_.rbegin(); expected != records_.rend(); ++expected)
            if (expected->event.get() == &event) return expected->record->point;
        auto last = event.last();
        return last ? last->point : Point{};
    }

    void perform_all(const Plan& plan) {
        for (const Step& step : plan.steps)
            if (auto* conditional = std::get_if<ConditionalWork>(step.work.get()))
                choose(*conditional, step.bodies);
            else
                std::visit([&](const auto& work) { step_on(work); }, *step.work);
    }

    void choose(const ConditionalWork& work, const std::vector<Plan>& bodies) {
        const auto& value = work.condition->value;
        switch (work.type) {
            case CU_GRAPH_COND_TYPE_IF:
                if (value)
                    perform_all(bodies[0]);
                else if (bodies.size() > 1)
                    perform_all(bodies[1]);
                break;
            case CU_GRAPH_COND_TYPE_WHILE:
                while (value && works(work.condition->context)) perform_all(bodies[0]);
                break;
            case CU_GRAPH_COND_TYPE_SWITCH:
                if (size_t index = value; index < bodies.size()) perform_all(bodies[index]);
                break;
        }
    }

    void step_on(const EmptyWork&) {}
    void step_on(const AllocWork&) {}  // counted when it was launched
    void step_on(const FreeWork&) {}
    void step_on(const ConditionalWork&) {}
    void step_on(const ChildWork&) {}  // its own steps stand in its place
    void step_on(const KernelWork& work) {
        if (works(work.context())) perform(work.context(), work.launch);
    }
    void step_on(const CopyWork& work) {
        if (!works(*work.context)) return;
        if (check_copy(*work.context, work.copy, work.destination, work.source))
            return work.context->fail(CUDA_ERROR_ILLEGAL_ADDRESS);  // freed since it was put into the graph
        perform(*work.context, work.copy);
    }
    void step_on(const FillWork& work) {
        if (!works(*work.context)) return;
        if (check_fill(*work.context, work.fill)) return work.context->fail(CUDA_ERROR_ILLEGAL_ADDRESS);
        perform(*work.context, work.fill);
    }
    void step_on(const HostWork& work) {
        Context& context = work.context ? *work.context : context_;
        if (works(context)) perform(context, work.call);
    }
    void step_on(const ValueWork& work) {
        if (!works(*work.context)) return;
        if (check_values(*work.context, work.operations)) return work.context->fail(CUDA_ERROR_ILLEGAL_ADDRESS);
        perform(*work.context, work.operations);
    }
    void step_on(const WaitWork&) { waits_[next_wait_++].wait(); }
    void step_on(const RecordWork&) {
        Expected& next = records_[next_record_++];
        next.queue->complete(std::move(next.placed));
    }

    // After a fault nothing is done any more, but events are still reached.
    bool works(Context& context) const { return !context_.faulted() && context.status() == CUDA_SUCCESS; }

    const std::shared_ptr<const Plan> plan_;
    Context& context_;
    std::vector<Point> waits_;
    std::vector<Expected> records_;
    size_t next_wait_ = 0, next_record_ = 0;
};

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
    if (graph.is_captured()) return CUDA_ERROR_INVALID_VALUE;
    if (graph.is_unique() && !graph.instance.expired()) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = check_conditions(graph, report)) return error;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) return CUDA_ERROR_NOT_SUPPORTED;  // no launches by kernels
    exec = driver().registry.add(std::make_shared<GraphExec>(clone(graph, false), flags));
    graph.instance = exec;
    report.result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return CUDA_SUCCESS;
}

// What the launch holds (functions, events) lives until it is done, whatever becomes of graph and instance.
CUresult launch_graph(GraphExec& exec, Stream& stream) {
    std::shared_ptr<Capture> capture;
    if (CUresult error = use_capture(stream, capture)) return error;
    if (capture) {
        // The child is a copy.
        if (exec.graph->is_unique() || !capture->graph->may_hold(*exec.graph)) return CUDA_ERROR_INVALID_VALUE;
        auto child = clone(*exec.graph, true);
        capture->graph->take(*child);
        capture->add(stream, std::make_shared<NodeWork>(ChildWork{std::move(child)}));
        return CUDA_SUCCESS;
    }
    auto plan = exec.plan();
    if (CUresult error = account_for_launch(*plan, exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))
        return error;
    auto run = std::make_shared<Run>(plan, stream.context);
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
    exec.last = stream.context.submit(stream, [] {}, {exec.last});
    return CUDA_SUCCESS;
}

}  // namespace tnr::emulated
