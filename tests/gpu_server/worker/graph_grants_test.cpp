// What becomes of a graph that lacks what nobody waited for: see GraphBook::spoil(). Runs as grants_test.cpp does.
#include "gpu_client/cuda/graph_objects.hpp"
#include "raw_records.hpp"

using namespace tnr;
using namespace tnr::test;

namespace {

constexpr uint64_t unknown = uint64_t{1} << 41;

template <class... Values>
void tell(CUcontext context, uint16_t op, const Values&... values) {
    wire::Bytes payload;
    wire::Writer out(payload);
    (out.put(values), ...);
    REQUIRE(open_sessions().front()->append(find_context(context)->number, op, Parts{payload}) != 0);
}

struct WithGraph : Held {
    WithGraph() {
        REQUIRE(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
        REQUIRE(cuGraphAddEmptyNode(&node, graph, nullptr, 0) == CUDA_SUCCESS);
    }
    ~WithGraph() {
        CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
        CHECK(cuCtxSynchronize() == CUDA_SUCCESS);  // it could be destroyed
    }
    // A node that the worker cannot add, behind one that there is not.
    void spoil() {
        tell(context, wire::op_cuGraphAddEmptyNode, unknown, find_graph(graph)->number, uint32_t{1}, unknown,
             uint64_t{1});
    }

    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
};

}  // namespace

TEST_CASE("nothing is made of a graph that lacks a node which nobody waited for", "[spoilt]") {
    WithGraph whole, spoilt;
    spoilt.spoil();
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);  // a call on the graph tells, not any other
    CUgraphExec exec = nullptr;
    CUgraph clone = nullptr;
    CUgraphNode child = nullptr;
    CHECK(cuGraphInstantiateWithFlags(&exec, spoilt.graph, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphClone(&clone, spoilt.graph) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphAddChildGraphNode(&child, whole.graph, nullptr, 0, spoilt.graph) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuGraphInstantiateWithFlags(&exec, whole.graph, 0) == CUDA_SUCCESS);
    CUgraphExecUpdateResultInfo info{};
    CHECK(cuGraphExecUpdate_v2(exec, spoilt.graph, &info) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphLaunch(exec, nullptr) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
}

TEST_CASE("an instance that lacks a change which nobody waited for is not launched", "[spoilt]") {
    WithGraph made;
    CUgraphExec spoilt = nullptr, whole = nullptr;
    REQUIRE(cuGraphInstantiateWithFlags(&spoilt, made.graph, 0) == CUDA_SUCCESS);
    REQUIRE(cuGraphInstantiateWithFlags(&whole, made.graph, 0) == CUDA_SUCCESS);
    tell(made.context, wire::op_cuGraphNodeSetEnabled, find_graph_exec(spoilt)->number, unknown, uint32_t{0});
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(cuGraphLaunch(whole, nullptr) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(cuGraphLaunch(spoilt, nullptr) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphExecDestroy(spoilt) == CUDA_SUCCESS);
    CHECK(cuGraphExecDestroy(whole) == CUDA_SUCCESS);
}
