// Instances of graphs: what cuGraphLaunch runs. An instance keeps a graph of its own, which nobody else sees, and from it
// a list of steps that is made anew when something has changed.
#pragma once

#include "gpu_server/emulated_gpu/driver/graph.hpp"

namespace tnr::emulated {

struct Plan;

struct Step {
    Work work;
    std::vector<Plan> bodies;  // of a conditional node
};

// The work of a graph in an order that keeps its dependencies, children's work in place of the children. Never changes,
// so launches share it.
struct Plan {
    std::vector<Step> steps;
    std::vector<std::shared_ptr<UserReferences>> references;  // kept as long as it may run
};

class GraphExec : public Object {
public:
    static constexpr Kind kind_of = Kind::graph_exec;
    GraphExec(std::shared_ptr<Graph> own, cuuint64_t with_flags)
        : Object(kind_of), graph(std::move(own)), flags(with_flags) {}

    std::shared_ptr<const Plan> plan();
    // What it will do from now on has changed.
    void changed() {
        plan_ = nullptr;
        uploaded = false;
    }

    const std::shared_ptr<Graph> graph;
    const cuuint64_t flags;
    Point last;  // the newest launch: the next one comes after it

    // Kernels of this context may launch it, once it has been uploaded (device_graphs.hpp). Null: none may.
    Context* device_context = nullptr;
    std::atomic<bool> uploaded{false};
    std::atomic<bool> on_device{false};   // launched by a kernel, and not done
    std::atomic<bool> waits_turn{false};  // likewise, for the end of another graph

private:
    std::shared_ptr<const Plan> plan_;
};

CUresult instantiate(Graph& graph, cuuint64_t flags, std::shared_ptr<GraphExec>& exec,
                     CUDA_GRAPH_INSTANTIATE_PARAMS& report);
CUresult launch_graph(GraphExec& exec, Stream& stream);
CUresult upload_graph(GraphExec& exec, Stream& stream);

template <class Call>
CUresult on_exec(CUgraphExec handle, Call&& call) noexcept {
    return with_graphs([&]() -> CUresult {
        auto exec = find<GraphExec>(handle);
        return exec ? call(*exec) : CUDA_ERROR_INVALID_VALUE;
    });
}

}  // namespace tnr::emulated
