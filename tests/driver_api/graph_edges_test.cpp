// The order of a graph's nodes, and what becomes of nodes, graphs and handles.
#include <algorithm>

#include "graph.hpp"

using namespace driver_api;

namespace {

constexpr CUgraphEdgeData programmatic{
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, 0, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, {}};

}  // namespace

TEST_CASE("nodes run after all that they depend on", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    Memory value(std::vector<int>{0});
    // Made in the opposite order, so that only the edges can put it right.
    std::vector<CUgraphNode> nodes;
    for (int from = 9; from >= 0; --from)
        nodes.push_back(
            KernelNode<CUdeviceptr, int, int>(module.function("advance"), value.address, from, from + 1).add(graph));
    for (size_t i = 1; i < nodes.size(); ++i)
        CU_OK(cu.cuGraphAddDependencies(graph, &nodes[i], &nodes[i - 1], nullptr, 1));
    GraphExec(graph).run(stream);
    CHECK(value.first<int>() == 10);
}

TEST_CASE("edges are added, listed and removed", "[graph]") {
    Gpu gpu;
    Graph graph;
    CUgraphNode a = add_empty_node(graph), b = add_empty_node(graph, {a}), c = add_empty_node(graph);
    std::array<CUgraphNode, 2> from{a, b}, to{c, c};
    CU_OK(cu.cuGraphAddDependencies(graph, from.data(), to.data(), nullptr, 2));
    CHECK(dependencies_of(c) == std::vector<CUgraphNode>{a, b});
    CU_CHECK(cu.cuGraphAddDependencies(graph, &a, &c, nullptr, 1), CUDA_ERROR_INVALID_VALUE);  // is there
    std::array<CUgraphNode, 4> froms{}, tos{};
    size_t count = froms.size();
    froms.fill(a), tos.fill(a);
    CU_OK(cu.cuGraphGetEdges(graph, froms.data(), tos.data(), nullptr, &count));
    CHECK(count == 3);
    CHECK(froms[3] == nullptr);  // what is too much is set to null
    CHECK(tos[3] == nullptr);
    count = 1;
    CU_OK(cu.cuGraphNodeGetDependentNodes(a, froms.data(), nullptr, &count));
    CHECK(count == 1);
    CHECK(froms[0] == b);
    count = froms.size();
    CU_OK(cu.cuGraphGetRootNodes(graph, froms.data(), &count));
    CHECK(count == 1);
    CHECK(froms[0] == a);
    CHECK(froms[1] == nullptr);
    CU_OK(cu.cuGraphRemoveDependencies(graph, &a, &c, nullptr, 1));
    CU_CHECK(cu.cuGraphRemoveDependencies(graph, &a, &c, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK(dependencies_of(c) == std::vector<CUgraphNode>{b});
    CU_OK(cu.cuGraphDestroyNode(b));
    CHECK(dependencies_of(c).empty());
    CHECK(graph.nodes() == std::vector<CUgraphNode>{a, c});
    CHECK(graph.edges() == 0);
    CU_OK(cu.cuGraphAddDependencies(graph, nullptr, nullptr, nullptr, 0));
}

TEST_CASE("lists of nodes and edges with no room for any say so", "[graph]") {
    Gpu gpu;
    Graph graph;
    CUgraphNode a = add_empty_node(graph), b = add_empty_node(graph, {a}), root = add_empty_node(graph);
    std::array<CUgraphNode, 2> nodes{}, others{};
    auto room = [count = size_t{0}](size_t given) mutable { return count = given, &count; };
    size_t* count = room(0);
    CU_OK(cu.cuGraphGetEdges(graph, nodes.data(), others.data(), nullptr, count));
    CHECK(*count == 0);
    CU_OK(cu.cuGraphGetNodes(graph, nodes.data(), room(0)));
    CHECK(*count == 0);
    CU_OK(cu.cuGraphGetRootNodes(graph, nodes.data(), room(0)));
    CHECK(*count == 0);
    CU_OK(cu.cuGraphNodeGetDependencies(b, nodes.data(), nullptr, room(0)));
    CHECK(*count == 0);
    CU_OK(cu.cuGraphNodeGetDependentNodes(a, nodes.data(), nullptr, room(0)));
    CHECK(*count == 0);
    for (size_t size : {0, 2}) {  // one of the lists is not enough
        CU_CHECK(cu.cuGraphGetEdges(graph, nullptr, others.data(), nullptr, room(size)), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuGraphGetEdges(graph, nodes.data(), nullptr, nullptr, room(size)), CUDA_ERROR_INVALID_VALUE);
    }
    CU_OK(cu.cuGraphGetRootNodes(graph, nodes.data(), room(2)));
    CHECK(nodes == std::array<CUgraphNode, 2>{root, a});  // the latest first
}

TEST_CASE("edges that make no sense are refused", "[graph]") {
    Gpu gpu;
    Graph graph, other;
    CUgraphNode a = add_empty_node(graph), b = add_empty_node(graph, {a}), stranger = add_empty_node(other),
                node = nullptr;
    CU_CHECK(cu.cuGraphAddDependencies(graph, &a, &a, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddDependencies(graph, &a, &stranger, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddDependencies(graph, &stranger, &a, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddDependencies(other, &a, &b, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddDependencies(graph, nullptr, &a, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddEmptyNode(&node, graph, &stranger, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddEmptyNode(&node, graph, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    std::array<CUgraphNode, 2> twice{a, a};
    CU_CHECK(cu.cuGraphAddEmptyNode(&node, graph, twice.data(), 2), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddEmptyNode(&node, graph, twice.data(), ~size_t{0}), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddEmptyNode(nullptr, graph, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK(graph.nodes().size() == 2);
    CHECK(graph.edges() == 1);
}

TEST_CASE("a cycle is found when the graph is instantiated", "[graph]") {
    Gpu gpu;
    Graph graph;
    CUgraphNode a = add_empty_node(graph), b = add_empty_node(graph, {a}), c = add_empty_node(graph, {b});
    CU_OK(cu.cuGraphAddDependencies(graph, &c, &a, nullptr, 1));
    CHECK(graph.edges() == 3);
    CUgraphExec exec = nullptr;
    CHECK(cu.cuGraphInstantiate(&exec, graph, 0) != CUDA_SUCCESS);
    CU_OK(cu.cuGraphRemoveDependencies(graph, &c, &a, nullptr, 1));
    CU_OK(cu.cuGraphInstantiate(&exec, graph, 0));
    CU_OK(cu.cuGraphExecDestroy(exec));
}

TEST_CASE("a graph may hold a copy of itself", "[graph]") {
    Gpu gpu;
    Stream stream;
    Memory memory(std::vector<unsigned>{0, 0});
    Graph graph;
    CUgraphNode child = nullptr;
    CUDA_MEMSET_NODE_PARAMS fill{memory.address, 0, 7, 4, 1, 1};
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, gpu.context));
    CU_OK(cu.cuGraphAddChildGraphNode(&child, graph, &node, 1, graph));
    CHECK(graph.nodes().size() == 2);
    CUgraph copy = nullptr;
    CU_OK(cu.cuGraphChildGraphNodeGetGraph(child, &copy));
    size_t inside = 0;
    CU_OK(cu.cuGraphGetNodes(copy, nullptr, &inside));
    CHECK(inside == 1);
    CU_OK(cu.cuGraphAddChildGraphNode(&child, copy, nullptr, 0, graph));  // within the copy, too
    GraphExec(graph).run(stream);
    CHECK(memory.read<unsigned>(2) == std::vector<unsigned>{7, 0});
}

// NVIDIA's driver takes it and has no instance of it; it must not keep a driver busy for ever.
TEST_CASE("a graph that would hold itself is of no use", "[graph]") {
    Gpu gpu;
    CUgraph parent = nullptr, child = nullptr;
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphCreate(&parent, 0));
    CU_OK(cu.cuGraphCreate(&child, 0));
    CUgraphNodeParams given{};
    given.type = CU_GRAPH_NODE_TYPE_GRAPH;
    given.graph.graph = child;
    given.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    CU_OK(cu.cuGraphAddNode(&node, parent, nullptr, nullptr, 0, &given));
    given.graph.graph = parent;  // which its child would then hold
    if (cu.cuGraphAddNode(&node, child, nullptr, nullptr, 0, &given) != CUDA_SUCCESS) {
        CU_OK(cu.cuGraphDestroy(parent));
        return;
    }
    CUgraphExec exec = nullptr;
    CHECK(cu.cuGraphInstantiate(&exec, parent, 0) != CUDA_SUCCESS);
}

TEST_CASE("graphs within graphs may be deep", "[graph]") {
    Gpu gpu;
    CUgraph inner = nullptr;
    CU_OK(cu.cuGraphCreate(&inner, 0));
    CUresult result = CUDA_SUCCESS;
    int depth = 0;
    for (; depth < 5000 && result == CUDA_SUCCESS; ++depth) {
        CUgraph outer = nullptr;
        CUgraphNode node = nullptr;
        CU_OK(cu.cuGraphCreate(&outer, 0));
        CUgraphNodeParams given{};
        given.type = CU_GRAPH_NODE_TYPE_GRAPH;
        given.graph.graph = inner;
        given.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
        result = cu.cuGraphAddNode(&node, outer, nullptr, nullptr, 0, &given);
        if (result) {
            CU_OK(cu.cuGraphDestroy(outer));
        } else {
            inner = outer;
        }
    }
    CU_CHECK_EITHER(result, CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE);  // a driver may have a bound
    CHECK(depth > 200);
    CU_OK(cu.cuGraphDestroy(inner));
}

TEST_CASE("edges between kernels have data, and a query that would lose it says so", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Graph graph;
    Memory value(std::vector<int>{0});
    KernelNode<CUdeviceptr, int, int> first(module.function("advance"), value.address, 0, 1),
        second(module.function("advance"), value.address, 1, 2);
    CUgraphNode a = first.add(graph), b = second.add(graph), empty = add_empty_node(graph);
    CU_OK(cu.cuGraphAddDependencies(graph, &a, &b, &programmatic, 1));
    CU_CHECK(cu.cuGraphAddDependencies(graph, &a, &empty, &programmatic, 1), CUDA_ERROR_INVALID_VALUE);
    CUgraphEdgeData odd = programmatic;
    odd.reserved[2] = 1;
    CU_CHECK(cu.cuGraphAddDependencies(graph, &a, &b, &odd, 1), CUDA_ERROR_INVALID_VALUE);
    CUgraphNode from = nullptr, to = nullptr;
    CUgraphEdgeData data{};
    size_t count = 1;
    CU_CHECK(cu.cuGraphGetEdges(graph, &from, &to, nullptr, &count), CUDA_ERROR_LOSSY_QUERY);
    CU_CHECK(cu.cuGraphNodeGetDependencies(b, &from, nullptr, &count), CUDA_ERROR_LOSSY_QUERY);
    CU_CHECK(cu.cuGraphNodeGetDependentNodes(a, &to, nullptr, &count), CUDA_ERROR_LOSSY_QUERY);
    CU_OK(cu.cuGraphGetEdges(graph, &from, &to, &data, &count));
    CHECK(from == a);
    CHECK(to == b);
    CHECK(data.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
    CHECK(data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
    GraphExec(graph).run(stream);
    CHECK(value.first<int>() == 2);
    CU_OK(cu.cuGraphRemoveDependencies(graph, &a, &b, nullptr, 1));  // whatever its data is
    CHECK(graph.edges() == 0);
    CU_OK(cu.cuGraphAddDependencies(graph, &a, &b, &programmatic, 1));
    CU_OK(cu.cuGraphRemoveDependencies(graph, &a, &b, &programmatic, 1));
    CHECK(graph.edges() == 0);
}

TEST_CASE("a clone is a graph of its own", "[graph]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0});
    CUgraph copy = nullptr;
    CUgraphNode first = nullptr, found = nullptr;
    Graph graph;
    KernelNode<CUdeviceptr, int, int> one(module.function("advance"), value.address, 0, 1),
        two(module.function("advance"), value.address, 1, 2), ten(module.function("advance"), value.address, 0, 10);
    first = one.add(graph);
    two.add(graph, {first});
    CU_OK(cu.cuGraphClone(&copy, graph));
    Graph clone(copy);
    CHECK(clone.nodes().size() == 2);
    CHECK(clone.edges() == 1);
    CU_OK(cu.cuGraphNodeFindInClone(&found, first, clone));
    CHECK(found == clone.nodes()[0]);
    CU_CHECK(cu.cuGraphNodeFindInClone(&found, found, graph), CUDA_ERROR_INVALID_VALUE);  // the other way round
    CU_OK(cu.cuGraphKernelNodeSetParams(first, &ten.parameters));                         // changes the original only
    GraphExec(clone).run(stream);
    CHECK(value.first<int>() == 2);
    CU_OK(cu.cuGraphDestroyNode(clone.nodes()[0]));
    CU_CHECK(cu.cuGraphNodeFindInClone(&found, first, clone), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphClone(nullptr, graph), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("handles of graphs, nodes and instances that are gone are refused", "[graph]") {
    Gpu gpu;
    Stream stream;
    CUgraph graph = nullptr, copy = nullptr;
    CUgraphNode node = nullptr, other = nullptr;
    CUgraphExec exec = nullptr;
    CUgraphNodeType type{};
    size_t count = 0;
    CU_OK(cu.cuGraphCreate(&graph, 0));
    CU_OK(cu.cuGraphAddEmptyNode(&node, graph, nullptr, 0));
    CU_OK(cu.cuGraphInstantiate(&exec, graph, 0));
    CU_OK(cu.cuGraphDestroy(graph));
    CU_CHECK(cu.cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphGetNodes(graph, nullptr, &count), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphNodeGetType(node, &type), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphAddEmptyNode(&other, graph, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphDestroyNode(node), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphClone(&copy, graph), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuGraphLaunch(exec, stream));  // an instance does not need its graph
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_CHECK(cu.cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphUpload(exec, stream), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphLaunch(nullptr, stream), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphDestroy(nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphNodeGetType(nullptr, &type), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuGraphCreate(&graph, 1), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuStreamSynchronize(stream));
}
