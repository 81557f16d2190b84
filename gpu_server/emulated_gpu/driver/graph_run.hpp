// One launch of an instance by the host: its plan, what its events stand for this time, and the graphs that its kernels
// launch.
#pragma once

#include "gpu_server/emulated_gpu/driver/graph_exec.hpp"

namespace tnr::emulated {

class GraphRun {
public:
    // Under graph_mutex().
    GraphRun(const GraphExec& exec, std::shared_ptr<const Plan> plan, Context& stream_context);

    // From now on the events mean this run's records. Called once the run has its place in a stream: whoever waits for
    // such a record comes after it, so no two can wait for each other.
    void announce();
    // In the stream's thread.
    void perform_all();

private:
    // A record that is reached in the middle of this run, so it gets a queue of its own.
    struct Expected {
        std::shared_ptr<Event> event;
        std::shared_ptr<Event::Record> record;
        std::shared_ptr<Queue> queue;
        Queue::Placed placed;
    };
    class Steps;

    void expect(const std::shared_ptr<Event>& event);
    Point newest(Event& event) const;

    const std::shared_ptr<const Plan> plan_;
    Context& context_;
    const uint64_t exec_;  // as kernels read it
    std::vector<Point> waits_;
    std::vector<Expected> records_;
};

}  // namespace tnr::emulated
