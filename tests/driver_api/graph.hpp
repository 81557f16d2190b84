// What the tests of graphs and captures share.
#pragma once

#include <array>
#include <tuple>
#include <vector>

#include "gpu.hpp"

namespace driver_api {

CUgraphNode add_kernel_node(CUgraph graph, const std::vector<CUgraphNode>& after,
                            const CUDA_KERNEL_NODE_PARAMS& parameters);

class Graph {
public:
    Graph();
    explicit Graph(CUgraph taken) : handle(taken) {}
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    Graph(Graph&& other) noexcept : handle(other.handle) { other.handle = nullptr; }
    operator CUgraph() const { return handle; }

    std::vector<CUgraphNode> nodes() const;
    size_t edges() const;  // how many

    CUgraph handle = nullptr;
};

// Parameters of a kernel node, for one block of one thread. Their values live here.
template <class... Arguments>
class KernelNode {
public:
    explicit KernelNode(CUfunction function, Arguments... values) : values_(values...) {
        pointers_ =
            std::apply([](auto&... value) { return std::array<void*, sizeof...(Arguments)>{&value...}; }, values_);
        parameters.func = function;
        parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
        parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
        parameters.kernelParams = pointers_.data();
    }
    KernelNode(const KernelNode&) = delete;
    KernelNode& operator=(const KernelNode&) = delete;

    // Adds the node after others.
    CUgraphNode add(CUgraph graph, const std::vector<CUgraphNode>& after = {}) const {
        return add_kernel_node(graph, after, parameters);
    }

    CUDA_KERNEL_NODE_PARAMS parameters{};

private:
    std::tuple<Arguments...> values_;
    std::array<void*, sizeof...(Arguments)> pointers_{};
};

CUgraphNode add_empty_node(CUgraph graph, const std::vector<CUgraphNode>& after = {});

class GraphExec {
public:
    explicit GraphExec(CUgraph graph, unsigned long long flags = 0);
    ~GraphExec();
    GraphExec(const GraphExec&) = delete;
    GraphExec& operator=(const GraphExec&) = delete;
    operator CUgraphExec() const { return handle; }

    void run(CUstream stream) const;  // once, and waits

    CUgraphExec handle = nullptr;
};

void begin_capture(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED);
Graph end_capture(CUstream stream);
CUstreamCaptureStatus capture_status(CUstream stream);

CUgraphNodeType type_of(CUgraphNode node);
std::vector<CUgraphNode> dependencies_of(CUgraphNode node);

}  // namespace driver_api
