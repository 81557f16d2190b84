// Graphs: captured from streams, built node by node, cloned, updated, and launched again with other data.
#include "check.hpp"

#include <cstring>

__global__ void add(int* values, int n, int amount) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] += amount;
}

__global__ void sum(const int* a, const int* b, int* to, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = a[i] + b[i];
}

static const int n = 1000;

struct Exec {
    explicit Exec(cudaGraph_t graph) { CUDA_OK(cudaGraphInstantiate(&handle, graph, 0)); }
    ~Exec() { cudaGraphExecDestroy(handle); }
    void run(cudaStream_t stream) const {
        CUDA_OK(cudaGraphLaunch(handle, stream));
        CUDA_OK(cudaStreamSynchronize(stream));
    }
    cudaGraphExec_t handle = nullptr;
};

// Two streams work side by side, copies come from the host and go there.
static void captured() {
    cudaStream_t stream, other;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    cudaEvent_t forked, joined;
    CUDA_OK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    CUDA_OK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    check::Array<int> a(n), b(n), to(n);
    std::vector<int> in(n), out(n, -1);
    int* pinned = nullptr;
    CUDA_OK(cudaMallocHost(&pinned, n * sizeof(int)));

    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CUDA_OK(cudaMemcpyAsync(a.data, in.data(), n * sizeof(int), cudaMemcpyHostToDevice, stream));
    CUDA_OK(cudaEventRecord(forked, stream));
    CUDA_OK(cudaStreamWaitEvent(other, forked, 0));
    CUDA_OK(cudaMemsetAsync(b.data, 0, n * sizeof(int), other));
    add<<<1, 256, 0, other>>>(b.data, n, 100);
    add<<<1, 256, 0, stream>>>(a.data, n, 1);
    CUDA_OK(cudaEventRecord(joined, other));
    CUDA_OK(cudaStreamWaitEvent(stream, joined, 0));
    sum<<<1, 256, 0, stream>>>(a.data, b.data, to.data, n);
    CUDA_OK(cudaMemcpyAsync(pinned, to.data, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaMemcpyAsync(out.data(), to.data, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CUDA_OK(cudaStreamIsCapturing(other, &status));
    EXPECT(status == cudaStreamCaptureStatusActive);
    EXPECT_ERROR(cudaStreamQuery(nullptr), cudaErrorStreamCaptureUnsupported);  // spoils it
    cudaGraph_t graph = nullptr;
    EXPECT_ERROR(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT(graph == nullptr);
    (void)cudaGetLastError();

    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CUDA_OK(cudaMemcpyAsync(a.data, in.data(), n * sizeof(int), cudaMemcpyHostToDevice, stream));
    CUDA_OK(cudaEventRecord(forked, stream));
    CUDA_OK(cudaStreamWaitEvent(other, forked, 0));
    CUDA_OK(cudaMemsetAsync(b.data, 0, n * sizeof(int), other));
    add<<<1, 256, 0, other>>>(b.data, n, 100);
    add<<<1, 256, 0, stream>>>(a.data, n, 1);
    CUDA_OK(cudaEventRecord(joined, other));
    CUDA_OK(cudaStreamWaitEvent(stream, joined, 0));
    sum<<<1, 256, 0, stream>>>(a.data, b.data, to.data, n);
    CUDA_OK(cudaMemcpyAsync(pinned, to.data, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaMemcpyAsync(out.data(), to.data, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    CUDA_OK(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes == 7);
    {
        Exec exec(graph);
        for (int round = 0; round < 3; ++round) {
            std::fill(in.begin(), in.end(), round);
            exec.run(stream);
            EXPECT_EQUAL(out, std::vector<int>(n, round + 101));
            EXPECT_EQUAL(std::vector<int>(pinned, pinned + n), std::vector<int>(n, round + 101));
        }
    }
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaFreeHost(pinned));
    for (auto event : {forked, joined}) CUDA_OK(cudaEventDestroy(event));
    for (auto one : {stream, other}) CUDA_OK(cudaStreamDestroy(one));
}

// What a host function in a graph sees of the copy before it.
struct Seen {
    const int* values;
    long total = 0;
    int calls = 0;
};
static void CUDART_CB look(void* data) {
    auto& seen = *static_cast<Seen*>(data);
    for (int i = 0; i < n; ++i) seen.total += seen.values[i];
    ++seen.calls;
}

static void built() {
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    check::Array<int> values(n);
    std::vector<int> in(n, 5), out(n, -1);
    Seen seen{out.data()};
    cudaGraph_t graph;
    CUDA_OK(cudaGraphCreate(&graph, 0));

    cudaGraphNode_t bring, change, fetch, call, nothing;
    CUDA_OK(cudaGraphAddMemcpyNode1D(&bring, graph, nullptr, 0, values.data, in.data(), n * sizeof(int),
                                     cudaMemcpyHostToDevice));
    int count = n, amount = 7;
    void* arguments[] = {&values.data, &count, &amount};
    cudaKernelNodeParams kernel{};
    kernel.func = reinterpret_cast<void*>(add);
    kernel.gridDim = dim3(1);
    kernel.blockDim = dim3(128);
    kernel.kernelParams = arguments;
    CUDA_OK(cudaGraphAddKernelNode(&change, graph, &bring, 1, &kernel));
    amount = 1000;  // too late: the node has its own copy
    CUDA_OK(cudaGraphAddMemcpyNode1D(&fetch, graph, &change, 1, out.data(), values.data, n * sizeof(int),
                                     cudaMemcpyDeviceToHost));
    cudaHostNodeParams host{look, &seen};
    CUDA_OK(cudaGraphAddHostNode(&call, graph, &fetch, 1, &host));
    CUDA_OK(cudaGraphAddEmptyNode(&nothing, graph, nullptr, 0));
    CUDA_OK(cudaGraphAddDependencies(graph, &call, &nothing, nullptr, 1));

    size_t nodes = 0, edges = 0;
    CUDA_OK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CUDA_OK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    EXPECT(nodes == 5 && edges == 4);
    cudaGraphNodeType type;
    CUDA_OK(cudaGraphNodeGetType(change, &type));
    EXPECT(type == cudaGraphNodeTypeKernel);
    cudaKernelNodeParams shown{};
    CUDA_OK(cudaGraphKernelNodeGetParams(change, &shown));
    EXPECT(shown.blockDim.x == 128 && *static_cast<int*>(shown.kernelParams[2]) == 7);

    Exec exec(graph);
    exec.run(stream);
    EXPECT_EQUAL(out, std::vector<int>(n, 12));
    EXPECT(seen.calls == 1 && seen.total == 12L * n);

    // The instance with another argument; the graph itself stays as it is.
    amount = 20;
    CUDA_OK(cudaGraphExecKernelNodeSetParams(exec.handle, change, &kernel));
    std::fill(in.begin(), in.end(), 1);
    exec.run(stream);
    EXPECT_EQUAL(out, std::vector<int>(n, 21));

    cudaGraph_t copy;
    CUDA_OK(cudaGraphClone(&copy, graph));
    cudaGraphNode_t change_there;
    CUDA_OK(cudaGraphNodeFindInClone(&change_there, change, copy));
    amount = 300;
    CUDA_OK(cudaGraphKernelNodeSetParams(change_there, &kernel));
    cudaGraphExecUpdateResultInfo info{};
    CUDA_OK(cudaGraphExecUpdate(exec.handle, copy, &info));
    EXPECT(info.result == cudaGraphExecUpdateSuccess);
    exec.run(stream);
    EXPECT_EQUAL(out, std::vector<int>(n, 301));
    EXPECT(seen.calls == 3);

    CUDA_OK(cudaGraphDestroy(copy));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaStreamDestroy(stream));
}

int main() {
    captured();
    built();
    return check::finish();
}
