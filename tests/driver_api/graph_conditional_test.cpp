// Conditional nodes: graphs that run when, as long as, or depending on what a kernel has said.
#include "graph_host_copies.hpp"

using namespace driver_api;

namespace {

class Condition {
public:
    Condition(const Gpu& gpu, CUgraph graph, unsigned initial = 0, unsigned flags = CU_GRAPH_COND_ASSIGN_DEFAULT) {
        CU_OK(cu.cuGraphConditionalHandleCreate(&handle, graph, gpu.context, initial, flags));
    }
    CUgraphConditionalHandle handle = 0;
};

struct Conditional {
    CUgraphNode node = nullptr;
    std::vector<CUgraph> bodies;
};

CUgraphNodeParams conditional(const Gpu& gpu, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                              unsigned size) {
    CUgraphNodeParams given{};
    given.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    given.conditional.handle = handle;
    given.conditional.type = type;
    given.conditional.size = size;
    given.conditional.ctx = gpu.context;
    return given;
}

Conditional add_conditional(const Gpu& gpu, CUgraph graph, const Condition& condition, CUgraphConditionalNodeType type,
                            unsigned size = 1, const std::vector<CUgraphNode>& after = {}) {
    auto given = conditional(gpu, condition.handle, type, size);
    Conditional made;
    CU_OK(cu.cuGraphAddNode(&made.node, graph, after.data(), nullptr, after.size(), &given));
    REQUIRE(given.conditional.phGraph_out);
    made.bodies.assign(given.conditional.phGraph_out, given.conditional.phGraph_out + size);
    return made;
}

}  // namespace

TEST_CASE("a body runs as long as the condition holds", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    Memory left(std::vector<int>{5}), turns(std::vector<int>{0});
    Condition condition(gpu, graph, 1);
    auto loop = add_conditional(gpu, graph, condition, CU_GRAPH_COND_TYPE_WHILE);
    CHECK(type_of(loop.node) == CU_GRAPH_NODE_TYPE_CONDITIONAL);
    KernelNode<CUdeviceptr, int, int> count(module.function("add"), turns.address, 1, 1);
    CUgraphNode counted = count.add(loop.bodies[0]);
    KernelNode<cuuint64_t, CUdeviceptr> down(module.function("count_down"), condition.handle, left.address);
    down.add(loop.bodies[0], {counted});
    GraphExec exec(graph);
    exec.run(stream);
    CHECK(turns.first<int>() == 5);
    CHECK(left.first<int>() == 0);
    CU_OK(cu.cuMemsetD32(left.address, 3, 1));
    exec.run(stream);  // begins with the initial value again
    CHECK(turns.first<int>() == 8);
}

TEST_CASE("a body runs if the condition holds, else the other", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory out(std::vector<int>{0});
    for (unsigned value : {0u, 1u, 7u}) {
        Graph graph;
        Condition condition(gpu, graph);
        CUgraphNode set =
            KernelNode<cuuint64_t, unsigned>(module.function("set_condition"), condition.handle, value).add(graph);
        auto choice = add_conditional(gpu, graph, condition, CU_GRAPH_COND_TYPE_IF, 2, {set});
        KernelNode<CUdeviceptr, int>(module.function("store"), out.address, 10).add(choice.bodies[0]);
        KernelNode<CUdeviceptr, int>(module.function("store"), out.address, 20).add(choice.bodies[1]);
        GraphExec(graph).run(stream);
        CHECK(out.first<int>() == (value ? 10 : 20));
    }
}

TEST_CASE("a condition picks one of several bodies or none", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory out(std::vector<int>{0});
    for (unsigned value : {0u, 2u, 3u, ~0u}) {
        Graph graph;
        Condition condition(gpu, graph, value);
        auto choice = add_conditional(gpu, graph, condition, CU_GRAPH_COND_TYPE_SWITCH, 3);
        for (int i = 0; i < 3; ++i)
            KernelNode<CUdeviceptr, int>(module.function("store"), out.address, 10 + i).add(choice.bodies[size_t(i)]);
        CU_OK(cu.cuMemsetD32(out.address, 99, 1));
        GraphExec(graph).run(stream);
        CHECK(out.first<int>() == (value < 3 ? 10 + int(value) : 99));
    }
}

TEST_CASE("bodies nest, and can be captured into", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    Memory left(std::vector<int>{4}), out(std::vector<int>{0});
    Condition outer(gpu, graph, 1), inner(gpu, graph, 1);
    auto loop = add_conditional(gpu, graph, outer, CU_GRAPH_COND_TYPE_WHILE);
    auto choice = add_conditional(gpu, loop.bodies[0], inner, CU_GRAPH_COND_TYPE_IF);
    CUgraph ended = nullptr;
    CU_OK(
        cu.cuStreamBeginCaptureToGraph(stream, choice.bodies[0], nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_OK(launch(module.function("add"), stream, out.address, 1, 2));
    CUgraphExec early = nullptr;
    CU_OK(cu.cuGraphInstantiate(&early, graph, 0));  // though a body is being captured
    CU_OK(cu.cuStreamEndCapture(stream, &ended));
    CU_OK(cu.cuGraphExecDestroy(early));
    KernelNode<cuuint64_t, CUdeviceptr>(module.function("count_down"), outer.handle, left.address)
        .add(loop.bodies[0], {choice.node});
    GraphExec(graph).run(stream);
    CHECK(out.first<int>() == 8);
}

TEST_CASE("a condition without an initial value keeps what it was set to", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    Memory out(std::vector<int>{0});
    Condition condition(gpu, graph, 5, 0);
    auto choice = add_conditional(gpu, graph, condition, CU_GRAPH_COND_TYPE_IF);
    KernelNode<CUdeviceptr, int, int>(module.function("add"), out.address, 1, 1).add(choice.bodies[0]);
    KernelNode<cuuint64_t, unsigned> on(module.function("set_condition"), condition.handle, 1);
    on.add(graph, {choice.node});
    GraphExec exec(graph);
    exec.run(stream);
    CHECK(out.first<int>() == 0);
    exec.run(stream);
    CHECK(out.first<int>() == 1);
}

TEST_CASE("an instance's kernels set its condition when the graph is gone", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory out(std::vector<int>{0});
    std::unique_ptr<GraphExec> exec;
    {
        Graph graph;
        Condition condition(gpu, graph, 1);
        CUgraphNode set =
            KernelNode<cuuint64_t, unsigned>(module.function("set_condition"), condition.handle, 0u).add(graph);
        auto choice = add_conditional(gpu, graph, condition, CU_GRAPH_COND_TYPE_IF, 2, {set});
        KernelNode<CUdeviceptr, int>(module.function("store"), out.address, 10).add(choice.bodies[0]);
        KernelNode<CUdeviceptr, int>(module.function("store"), out.address, 20).add(choice.bodies[1]);
        exec = std::make_unique<GraphExec>(graph);
    }
    exec->run(stream);
    CHECK(out.first<int>() == 20);
}

TEST_CASE("conditional nodes that make no sense are refused", "[graph]") {
    Gpu gpu;
    Graph graph, parent;
    Condition condition(gpu, graph);
    CUgraphConditionalHandle handle = 0;
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
    CUgraph copy = nullptr;
    CU_CHECK(cu.cuGraphConditionalHandleCreate(&handle, graph, gpu.context, 0, 8), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphConditionalHandleCreate(nullptr, graph, gpu.context, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphConditionalHandleCreate(&handle, nullptr, gpu.context, 0, 0), CUDA_ERROR_INVALID_VALUE);
    for (auto [type, size] : {std::pair{CU_GRAPH_COND_TYPE_IF, 0u},
                              {CU_GRAPH_COND_TYPE_IF, 3u},
                              {CU_GRAPH_COND_TYPE_WHILE, 2u},
                              {CU_GRAPH_COND_TYPE_SWITCH, 0u},
                              {static_cast<CUgraphConditionalNodeType>(9), 1u}}) {
        auto given = conditional(gpu, condition.handle, type, size);
        CU_CHECK(cu.cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &given), CUDA_ERROR_INVALID_VALUE);
    }
    auto given = conditional(gpu, 12345, CU_GRAPH_COND_TYPE_IF, 1);
    CU_CHECK(cu.cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &given), CUDA_ERROR_INVALID_VALUE);
    given = conditional(gpu, condition.handle, CU_GRAPH_COND_TYPE_IF, 1);  // another graph's
    CU_CHECK(cu.cuGraphAddNode(&node, parent, nullptr, nullptr, 0, &given), CUDA_ERROR_INVALID_VALUE);
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
    CU_CHECK(cu.cuGraphInstantiateWithParams(&exec, graph, &parameters), CUDA_ERROR_INVALID_VALUE);
    CHECK(parameters.result_out == CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
    auto choice = add_conditional(gpu, graph, condition, CU_GRAPH_COND_TYPE_IF);
    CU_CHECK(cu.cuGraphDestroy(choice.bodies[0]), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphClone(&copy, graph), CUDA_ERROR_NOT_SUPPORTED);
    CU_CHECK(cu.cuGraphAddChildGraphNode(&node, parent, nullptr, 0, graph), CUDA_ERROR_NOT_SUPPORTED);
    {
        GraphExec only(graph);
        CU_CHECK(cu.cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    }
    CUDA_HOST_NODE_PARAMS host{[](void*) {}, nullptr};
    CU_OK(cu.cuGraphAddHostNode(&node, choice.bodies[0], nullptr, 0, &host));
    CU_CHECK(cu.cuGraphInstantiateWithParams(&exec, graph, &parameters),
             CUDA_ERROR_INVALID_VALUE);  // of the device only
    CHECK(parameters.hErrNode_out == node);
}

TEST_CASE("a condition is one node's", "[graph]") {
    Gpu gpu;
    Graph graph;
    Condition condition(gpu, graph);
    add_conditional(gpu, graph, condition, CU_GRAPH_COND_TYPE_IF);
    auto given = conditional(gpu, condition.handle, CU_GRAPH_COND_TYPE_IF, 1);
    CUgraphNode node = nullptr;
    CU_CHECK(cu.cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &given), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a body copies from and to pinned memory when it runs, and leaves it alone when it does not", "[graph]") {
    Gpu gpu;
    Stream stream;
    Graph graph;
    Memory memory(std::vector<int>{1, 2}), other(std::vector<int>{0, 0});
    int* host = nullptr;
    CU_OK(cu.cuMemAllocHost(reinterpret_cast<void**>(&host), 4 * sizeof(int)));
    int *in = host, *out = host + 2;
    const unsigned initial = GENERATE(0u, 1u);
    Condition condition(gpu, graph, initial);
    auto choice = add_conditional(gpu, graph, condition, CU_GRAPH_COND_TYPE_IF);
    SECTION("as nodes") {
        add_copy(choice.bodies[0], {}, to_host(out, memory.address, 2 * sizeof(int)));
        add_copy(choice.bodies[0], {}, to_device(other.address, in, 2 * sizeof(int)));
    }
    SECTION("as nodes of a graph inside") {
        Graph inside;
        CUgraphNode node = nullptr;
        add_copy(inside, {}, to_host(out, memory.address, 2 * sizeof(int)));
        add_copy(inside, {}, to_device(other.address, in, 2 * sizeof(int)));
        CU_OK(cu.cuGraphAddChildGraphNode(&node, choice.bodies[0], nullptr, 0, inside));
    }
    SECTION("captured") {
        CU_OK(cu.cuStreamBeginCaptureToGraph(stream, choice.bodies[0], nullptr, nullptr, 0,
                                             CU_STREAM_CAPTURE_MODE_RELAXED));
        CU_OK(cu.cuMemcpyDtoHAsync(out, memory.address, 2 * sizeof(int), stream));
        CU_OK(cu.cuMemcpyHtoDAsync(other.address, in, 2 * sizeof(int), stream));
        CUgraph captured = nullptr;
        CU_OK(cu.cuStreamEndCapture(stream, &captured));
    }
    GraphExec exec(graph);
    for (int round = 1; round <= 2; ++round) {
        in[0] = 10 * round, in[1] = 20 * round, out[0] = out[1] = 9;
        exec.run(stream);
        const bool ran = initial != 0;
        CHECK(std::vector<int>(out, out + 2) == (ran ? std::vector<int>{1, 2} : std::vector<int>{9, 9}));
        CHECK(other.read<int>(2) == (ran ? std::vector<int>{10 * round, 20 * round} : std::vector<int>{0, 0}));
    }
    CU_OK(cu.cuMemFreeHost(host));
}

// CUDA takes pinned memory only there.
TEST_CASE("a body's copy to memory that is not pinned is refused, or happens when the body runs", "[graph]") {
    Gpu gpu;
    Stream stream;
    Graph graph;
    Memory memory(std::vector<int>{1, 2});
    std::vector<int> host{9, 9};
    const unsigned initial = GENERATE(0u, 1u);
    Condition condition(gpu, graph, initial);
    auto choice = add_conditional(gpu, graph, condition, CU_GRAPH_COND_TYPE_IF);
    const auto copy = to_host(host.data(), memory.address, 2 * sizeof(int));
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
    auto result = cu.cuGraphAddMemcpyNode(&node, choice.bodies[0], nullptr, 0, &copy, gpu.context);
    if (result == CUDA_SUCCESS) result = cu.cuGraphInstantiate(&exec, graph, 0);
    if (result == CUDA_SUCCESS) {
        CU_OK(cu.cuGraphLaunch(exec, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CU_OK(cu.cuGraphExecDestroy(exec));
    }
    const bool copied = result == CUDA_SUCCESS && initial != 0;
    CHECK(host == (copied ? std::vector<int>{1, 2} : std::vector<int>{9, 9}));
}
