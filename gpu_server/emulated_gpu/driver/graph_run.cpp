#include "gpu_server/emulated_gpu/driver/graph_run.hpp"

#include <iterator>

#include "gpu_server/emulated_gpu/driver/copy.hpp"
#include "gpu_server/emulated_gpu/driver/device_graphs.hpp"
#include "gpu_server/emulated_gpu/driver/updatable_node.hpp"

namespace tnr::emulated {

// Conditions that begin each run with their initial value.
static void reset_conditions(const Plan& plan) {
    for (const Step& step : plan.steps) {
        auto* conditional = std::get_if<ConditionalWork>(step.work.get());
        if (!conditional) continue;
        GraphCondition& condition = *conditional->condition;
        if (condition.flags & CU_GRAPH_COND_ASSIGN_DEFAULT) condition.value = condition.initial_value;
        for (const Plan& body : step.bodies) reset_conditions(body);
    }
}

static void run_at_once(DeviceLaunchList list, Context& context, unsigned depth);
static void run_in_turn(DeviceLaunchList list, DeviceLaunchList& siblings, Context& context, unsigned depth);

// Work of devices, with the graphs that its kernels launch at once. After a fault nothing is done any more.
class DeviceSteps {
public:
    DeviceSteps(Context& context, uint64_t exec, unsigned depth)
        : launches(context, exec, depth), context_(context), depth_(depth) {}

    void step_on(const KernelWork& work) {
        if (!works(work.context())) return;
        if (auto& updatable = work.launch.updatable) {
            auto launch = work.launch;
            if (!updatable->apply(launch)) return;
            perform(work.context(), launch, &launches);
        } else {
            perform(work.context(), work.launch, &launches);
        }
        run_at_once(launches.take_at_once(), context_, depth_ + 1);
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
    template <class Work>  // what check_for_device() has refused
    void step_on(const Work&) {}

    bool works(Context& context) const { return !context_.faulted() && context.status() == CUDA_SUCCESS; }

    DeviceLaunches launches;

private:
    Context& context_;
    const unsigned depth_;
};

// One after the other; what is launched for the end of one comes before the next.
static void run_in_turn(DeviceLaunchList list, DeviceLaunchList& siblings, Context& context, unsigned depth) {
    while (!list.empty()) {
        DeviceLaunch now = std::move(list.front());
        list.pop_front();
        now.mark.reset();  // from its beginning on it may be launched for its own end
        DeviceSteps steps(context, now.exec->handle(), depth);
        for (const Step& step : now.plan->steps) std::visit([&](const auto& work) { steps.step_on(work); }, *step.work);
        std::ranges::move(steps.launches.take_siblings(), std::back_inserter(siblings));
        auto tail = steps.launches.take_tail();
        list.insert(list.begin(), std::move_iterator(tail.begin()), std::move_iterator(tail.end()));
    }
}

static void run_at_once(DeviceLaunchList list, Context& context, unsigned depth) {
    while (!list.empty()) {
        DeviceLaunchList one;
        one.push_back(std::move(list.front()));
        list.pop_front();
        auto mark = one.front().mark;  // until it is done
        run_in_turn(std::move(one), list, context, depth);
    }
}

// Work of graphs that the host launches. Events are reached also after a fault.
class GraphRun::Steps : public DeviceSteps {
public:
    explicit Steps(GraphRun& run) : DeviceSteps(run.context_, run.exec_, 0), run_(run) {}

    void perform_all(const Plan& plan) {
        for (const Step& step : plan.steps)
            if (auto* conditional = std::get_if<ConditionalWork>(step.work.get()))
                choose(*conditional, step.bodies);
            else
                std::visit([&](const auto& work) { step_on(work); }, *step.work);
    }

private:
    using DeviceSteps::step_on;

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
    void step_on(const HostWork& work) {
        Context& context = work.context ? *work.context : run_.context_;
        if (works(context)) perform(context, work.call);
    }
    void step_on(const ValueWork& work) {
        if (!works(*work.context)) return;
        if (check_values(*work.context, work.operations)) return work.context->fail(CUDA_ERROR_ILLEGAL_ADDRESS);
        perform(*work.context, work.operations);
    }
    void step_on(const WaitWork&) { run_.waits_[next_wait_++].wait(); }
    void step_on(const RecordWork&) {
        Expected& next = run_.records_[next_record_++];
        next.queue->complete(std::move(next.placed));
    }

    GraphRun& run_;
    size_t next_wait_ = 0, next_record_ = 0;
};

GraphRun::GraphRun(const GraphExec& exec, std::shared_ptr<const Plan> plan, Context& stream_context)
    : plan_(std::move(plan)), context_(stream_context), exec_(exec.device_context ? exec.handle() : 0) {
    for (const Step& step : plan_->steps) {
        if (auto* record = std::get_if<RecordWork>(step.work.get())) expect(record->event);
        if (auto* wait = std::get_if<WaitWork>(step.work.get())) waits_.push_back(newest(*wait->event));
    }
}

void GraphRun::announce() {
    for (Expected& expected : records_) expected.event->set_last(expected.record);
}

void GraphRun::perform_all() {
    reset_conditions(*plan_);
    Steps steps(*this);
    steps.perform_all(*plan_);
    auto siblings = steps.launches.take_siblings();
    run_in_turn(steps.launches.take_tail(), siblings, context_, 0);
    run_at_once(std::move(siblings), context_, 0);
}

void GraphRun::expect(const std::shared_ptr<Event>& event) {
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
Point GraphRun::newest(Event& event) const {
    for (auto expected = records_.rbegin(); expected != records_.rend(); ++expected)
        if (expected->event.get() == &event) return expected->record->point;
    auto last = event.last();
    return last ? last->point : Point{};
}

}  // namespace tnr::emulated
