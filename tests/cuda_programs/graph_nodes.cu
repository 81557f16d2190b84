// Graphs by their nodes: every plain kind, switched off and on, replaced in an instance, cloned, written down; events that it
// records and waits for; and an object of the program that lives as long as somebody may need it.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "check.hpp"

static const int n = 256;

__global__ void add(int* values, int amount) {
    values[threadIdx.x] += amount;
}

static cudaGraphNode_t add_kernel(cudaGraph_t graph, cudaGraphNode_t after, int* values, int amount) {
    void* pointers[] = {&values, &amount};
    cudaKernelNodeParams params{};
    params.func = reinterpret_cast<void*>(add);
    params.gridDim = dim3(1), params.blockDim = dim3(n);
    params.kernelParams = pointers;
    cudaGraphNode_t node = nullptr;
    CUDA_OK(cudaGraphAddKernelNode(&node, graph, &after, after ? 1 : 0, &params));
    return node;
}

static cudaGraphNode_t add_fill(cudaGraph_t graph, int* values, unsigned value) {
    cudaMemsetParams params{};
    params.dst = values, params.elementSize = sizeof(int), params.value = value;
    params.width = n, params.height = 1;
    cudaGraphNode_t node = nullptr;
    CUDA_OK(cudaGraphAddMemsetNode(&node, graph, nullptr, 0, &params));
    return node;
}

static void run(cudaGraphExec_t exec, cudaStream_t stream) {
    CUDA_OK(cudaGraphLaunch(exec, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
}

static void nodes(cudaStream_t stream) {
    check::Array<int> values(n);
    std::vector<int> out(n), other(n);
    cudaGraph_t graph = nullptr, clone = nullptr, child = nullptr;
    cudaGraphNode_t copied = nullptr, empty = nullptr, inside = nullptr;
    CUDA_OK(cudaGraphCreate(&graph, 0));
    CUDA_OK(cudaGraphCreate(&child, 0));
    add_kernel(child, nullptr, values.data, 100);
    auto filled = add_fill(graph, values.data, 5);
    auto added = add_kernel(graph, filled, values.data, 1);
    CUDA_OK(cudaGraphAddChildGraphNode(&inside, graph, &added, 1, child));
    CUDA_OK(cudaGraphAddEmptyNode(&empty, graph, &inside, 1));
    CUDA_OK(cudaGraphAddMemcpyNode1D(&copied, graph, &empty, 1, out.data(), values.data, n * sizeof(int),
                                     cudaMemcpyDeviceToHost));
    cudaGraphExec_t exec = nullptr;
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    run(exec, stream);
    EXPECT_EQUAL(out, std::vector<int>(n, 106));

    CUDA_OK(cudaGraphNodeSetEnabled(exec, added, 0));
    run(exec, stream);
    EXPECT_EQUAL(out, std::vector<int>(n, 105));
    unsigned enabled = 7;
    CUDA_OK(cudaGraphNodeGetEnabled(exec, added, &enabled));
    EXPECT(enabled == 0);
    CUDA_OK(cudaGraphNodeSetEnabled(exec, added, 1));
    CUDA_OK(cudaGraphNodeSetEnabled(exec, copied, 0));
    std::fill(out.begin(), out.end(), -3);
    run(exec, stream);
    EXPECT_EQUAL(out, std::vector<int>(n, -3));  // nobody has copied
    CUDA_OK(cudaGraphNodeSetEnabled(exec, copied, 1));
    CUDA_OK(cudaGraphExecMemcpyNodeSetParams1D(exec, copied, other.data(), values.data, n * sizeof(int),
                                               cudaMemcpyDeviceToHost));
    run(exec, stream);
    EXPECT_EQUAL(other, std::vector<int>(n, 106));
    EXPECT_EQUAL(out, std::vector<int>(n, -3));

    CUDA_OK(cudaGraphClone(&clone, graph));
    CUDA_OK(cudaGraphDestroyNode(copied));  // the clone has its own
    cudaGraphExec_t of_clone = nullptr, without = nullptr;
    CUDA_OK(cudaGraphInstantiate(&of_clone, clone, 0));
    CUDA_OK(cudaGraphInstantiate(&without, graph, 0));
    run(without, stream);
    EXPECT_EQUAL(out, std::vector<int>(n, -3));
    run(of_clone, stream);
    EXPECT_EQUAL(out, std::vector<int>(n, 106));
    cudaGraphExecUpdateResultInfo info{};
    EXPECT_ERROR(cudaGraphExecUpdate(of_clone, graph, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT(info.result == cudaGraphExecUpdateErrorTopologyChanged);
    (void)cudaGetLastError();

    char path[] = "/tmp/graph_nodes_XXXXXX";
    close(mkstemp(path));
    CUDA_OK(cudaGraphDebugDotPrint(clone, path, cudaGraphDebugDotFlagsVerbose));
    std::ifstream file(path);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT(text.find("digraph") != text.npos);
    unlink(path);
    for (auto one : {exec, of_clone, without}) CUDA_OK(cudaGraphExecDestroy(one));
    for (auto one : {graph, clone, child}) CUDA_OK(cudaGraphDestroy(one));
}

// One graph records what another waits for.
static void events(cudaStream_t stream, cudaStream_t other) {
    check::Array<int> values(n);
    cudaEvent_t event;
    CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    cudaGraph_t first = nullptr, second = nullptr;
    cudaGraphNode_t node = nullptr, waits = nullptr;
    CUDA_OK(cudaGraphCreate(&first, 0));
    CUDA_OK(cudaGraphCreate(&second, 0));
    auto filled = add_fill(first, values.data, 40);
    CUDA_OK(cudaGraphAddEventRecordNode(&node, first, &filled, 1, event));
    CUDA_OK(cudaGraphAddEventWaitNode(&waits, second, nullptr, 0, event));
    add_kernel(second, waits, values.data, 2);
    cudaGraphExec_t execs[2];
    CUDA_OK(cudaGraphInstantiate(&execs[0], first, 0));
    CUDA_OK(cudaGraphInstantiate(&execs[1], second, 0));
    CUDA_OK(cudaGraphLaunch(execs[0], stream));
    CUDA_OK(cudaGraphLaunch(execs[1], other));
    CUDA_OK(cudaStreamSynchronize(other));
    EXPECT_EQUAL(values.host(), std::vector<int>(n, 42));
    for (auto one : execs) CUDA_OK(cudaGraphExecDestroy(one));
    for (auto one : {first, second}) CUDA_OK(cudaGraphDestroy(one));
    CUDA_OK(cudaEventDestroy(event));
}

static void objects(cudaStream_t stream) {
    static std::atomic<int> destroyed{0};
    auto destroy = [](void* object) { destroyed += *static_cast<int*>(object); };
    int weight = 3;
    cudaUserObject_t object;
    CUDA_OK(cudaUserObjectCreate(&object, &weight, destroy, 1, cudaUserObjectNoDestructorSync));
    check::Array<int> values(n);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    CUDA_OK(cudaGraphCreate(&graph, 0));
    add_fill(graph, values.data, 1);
    CUDA_OK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaGraphDestroy(graph));
    run(exec, stream);
    EXPECT(destroyed == 0);  // the instance has it
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaDeviceSynchronize());
    while (destroyed == 0) std::this_thread::yield();  // CUDA does not say when; a program that hangs here fails
    EXPECT(destroyed == 3);
}

int main() {
    cudaStream_t stream, other;
    for (auto* one : {&stream, &other}) CUDA_OK(cudaStreamCreateWithFlags(one, cudaStreamNonBlocking));
    nodes(stream);
    events(stream, other);
    objects(stream);
    for (auto one : {stream, other}) CUDA_OK(cudaStreamDestroy(one));
    return check::finish();
}
