// See graph.hpp.
#include "graph.hpp"

namespace driver_api {

CUgraphNode add_kernel_node(CUgraph graph, const std::vector<CUgraphNode>& after,
                            const CUDA_KERNEL_NODE_PARAMS& parameters) {
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphAddKernelNode(&node, graph, after.data(), after.size(), &parameters));
    return node;
}

CUgraphNode add_empty_node(CUgraph graph, const std::vector<CUgraphNode>& after) {
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphAddEmptyNode(&node, graph, after.data(), after.size()));
    return node;
}

Graph::Graph() {
    CU_OK(cu.cuGraphCreate(&handle, 0));
}

Graph::~Graph() {
    if (handle) cu.cuGraphDestroy(handle);
}

std::vector<CUgraphNode> Graph::nodes() const {
    size_t count = 0;
    CU_OK(cu.cuGraphGetNodes(handle, nullptr, &count));
    std::vector<CUgraphNode> all(count);
    CU_OK(cu.cuGraphGetNodes(handle, all.data(), &count));
    return all;
}

size_t Graph::edges() const {
    size_t count = 0;
    CU_OK(cu.cuGraphGetEdges(handle, nullptr, nullptr, nullptr, &count));
    return count;
}

GraphExec::GraphExec(CUgraph graph, unsigned long long flags) {
    CU_OK(cu.cuGraphInstantiate(&handle, graph, flags));
}

GraphExec::~GraphExec() {
    if (handle) cu.cuGraphExecDestroy(handle);
}

void GraphExec::run(CUstream stream) const {
    CU_OK(cu.cuGraphLaunch(handle, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
}

void begin_capture(CUstream stream, CUstreamCaptureMode mode) {
    CU_OK(cu.cuStreamBeginCapture(stream, mode));
}

Graph end_capture(CUstream stream) {
    CUgraph graph = nullptr;
    CU_OK(cu.cuStreamEndCapture(stream, &graph));
    REQUIRE(graph);
    return Graph(graph);
}

CUstreamCaptureStatus capture_status(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CU_OK(cu.cuStreamIsCapturing(stream, &status));
    return status;
}

CUgraphNodeType type_of(CUgraphNode node) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    CU_OK(cu.cuGraphNodeGetType(node, &type));
    return type;
}

std::vector<CUgraphNode> dependencies_of(CUgraphNode node) {
    size_t count = 0;
    CU_OK(cu.cuGraphNodeGetDependencies(node, nullptr, nullptr, &count));
    std::vector<CUgraphNode> all(count);
    CU_OK(cu.cuGraphNodeGetDependencies(node, all.data(), nullptr, &count));
    return all;
}

}  // namespace driver_api
