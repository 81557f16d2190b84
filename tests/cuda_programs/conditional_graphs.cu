// Graphs that decide for themselves: Newton's iteration goes on until it is near enough, a choice of several bodies, a body
// that is captured, and one inside another.
#include "check.hpp"

__global__ void improve(double* root, double of, double tolerance, cudaGraphConditionalHandle again, int* rounds) {
    double next = (*root + of / *root) / 2;
    bool far = fabs(next - *root) > tolerance;
    *root = next;
    ++*rounds;
    cudaGraphSetConditional(again, far ? 1 : 0);
}

__global__ void choose(const int* which, cudaGraphConditionalHandle choice) {
    cudaGraphSetConditional(choice, *which);
}

__global__ void add(int* value, int amount) {
    *value += amount;
}

template <class... Arguments>
static cudaGraphNode_t add_kernel(cudaGraph_t graph, cudaGraphNode_t after, void (*kernel)(Arguments...),
                                  Arguments... arguments) {
    void* pointers[] = {&arguments...};
    cudaKernelNodeParams params{};
    params.func = reinterpret_cast<void*>(kernel);
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = pointers;
    cudaGraphNode_t node = nullptr;
    CUDA_OK(cudaGraphAddKernelNode(&node, graph, after ? &after : nullptr, after ? 1 : 0, &params));
    return node;
}

static cudaGraph_t* add_conditional(cudaGraph_t graph, cudaGraphNode_t after, cudaGraphConditionalHandle handle,
                                    cudaGraphConditionalNodeType type, unsigned bodies) {
    cudaGraphNodeParams params{};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = bodies;
    cudaGraphNode_t node = nullptr;
    CUDA_OK(cudaGraphAddNode(&node, graph, after ? &after : nullptr, nullptr, after ? 1 : 0, &params));
    return params.conditional.phGraph_out;
}

static void run(cudaGraph_t graph, cudaStream_t stream) {
    cudaGraphExec_t exec = nullptr;
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaGraphLaunch(exec, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    CUDA_OK(cudaGraphExecDestroy(exec));
}

static void newton(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    cudaGraphConditionalHandle again;
    CUDA_OK(cudaGraphCreate(&graph, 0));
    CUDA_OK(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
    auto* body = add_conditional(graph, nullptr, again, cudaGraphCondTypeWhile, 1);
    check::Array<double> root(std::vector<double>{1000});
    check::Array<int> rounds(std::vector<int>{0});
    add_kernel(body[0], nullptr, improve, root.data, 2.0, 1e-12, again, rounds.data);
    run(graph, stream);
    EXPECT_NEAR(root.host()[0], std::sqrt(2.0), 1e-12, 0);
    EXPECT(rounds.host()[0] > 5 && rounds.host()[0] < 30);
    CUDA_OK(cudaGraphDestroy(graph));
}

// Body `i` of the switch adds 10^i; behind it, if `which` is not zero, a captured body adds 5.
static void choices(cudaStream_t stream) {
    for (int which = 0; which < 4; ++which) {
        cudaGraph_t graph = nullptr;
        cudaGraphConditionalHandle choice, either;
        CUDA_OK(cudaGraphCreate(&graph, 0));
        CUDA_OK(cudaGraphConditionalHandleCreate(&choice, graph, 0, 0));
        CUDA_OK(cudaGraphConditionalHandleCreate(&either, graph, 0, 0));
        check::Array<int> value(std::vector<int>{0}), number(std::vector<int>{which});
        const int* read = number.data;
        auto chosen = add_kernel(graph, nullptr, choose, read, choice);
        chosen = add_kernel(graph, chosen, choose, read, either);
        auto* bodies = add_conditional(graph, chosen, choice, cudaGraphCondTypeSwitch, 3);
        for (int i = 0, amount = 1; i < 3; ++i, amount *= 10) add_kernel(bodies[i], nullptr, add, value.data, amount);
        auto* body = add_conditional(graph, chosen, either, cudaGraphCondTypeIf, 1);
        check::Array<int> other(std::vector<int>{0});
        CUDA_OK(cudaStreamBeginCaptureToGraph(stream, body[0], nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
        add<<<1, 1, 0, stream>>>(other.data, 2);
        add<<<1, 1, 0, stream>>>(other.data, 3);
        cudaGraph_t captured = nullptr;
        CUDA_OK(cudaStreamEndCapture(stream, &captured));
        run(graph, stream);
        const int expected[] = {1, 10, 100, 0};
        EXPECT(value.host()[0] == expected[which]);
        EXPECT(other.host()[0] == (which ? 5 : 0));
        CUDA_OK(cudaGraphDestroy(graph));
    }
}

int main() {
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    newton(stream);
    choices(stream);
    CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
