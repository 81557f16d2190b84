// Graphs that kernels launch: at once, at the end of their own graph, beside it, and themselves again.
#include <initializer_list>
#include <tuple>

#include "check.hpp"

constexpr cudaGraphExec_t nothing = nullptr;

// A list in memory: its length, then what was appended.
__global__ void append(int* list, int value) {
    list[++list[0]] = value;
}

struct Children {
    cudaGraphExec_t at_once, sibling, tail, other_tail;
    int errors[4];
};
// The handles come out of memory, not as arguments.
__global__ void launch_all(Children* children, int* list) {
    children->errors[0] = cudaGraphLaunch(children->tail, cudaStreamGraphTailLaunch);
    children->errors[1] = cudaGraphLaunch(children->other_tail, cudaStreamGraphTailLaunch);
    children->errors[2] = cudaGraphLaunch(children->at_once, cudaStreamGraphFireAndForget);
    if (children->sibling)
        children->errors[3] = cudaGraphLaunch(children->sibling, cudaStreamGraphFireAndForgetAsSibling);
}

__global__ void again(int* rounds, int wanted, int* errors) {
    if (++*rounds < wanted) errors[0] = cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
    errors[1] = cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphFireAndForget);  // it runs
}

__global__ void ask(cudaGraphExec_t exec, int* errors) {
    errors[0] = cudaGraphLaunch(exec, cudaStreamGraphFireAndForget);
    errors[1] = cudaGraphLaunch(exec, cudaStreamGraphFireAndForget);
    errors[2] = cudaGraphLaunch(nullptr, cudaStreamGraphFireAndForget);
    errors[3] = cudaGetCurrentGraphExec() != nullptr;
}

template <class... Parameters, class... Arguments>
cudaGraphNode_t add(cudaGraph_t graph, std::initializer_list<cudaGraphNode_t> after, void (*kernel)(Parameters...),
                    Arguments... given) {
    std::tuple<Parameters...> arguments(given...);
    void* pointers[sizeof...(Parameters)];
    int count = 0;
    std::apply([&](auto&... each) { ((pointers[count++] = &each), ...); }, arguments);
    cudaKernelNodeParams node{};
    node.func = reinterpret_cast<void*>(kernel);
    node.gridDim = 1, node.blockDim = 1;
    node.kernelParams = pointers;
    cudaGraphNode_t made;
    CUDA_OK(cudaGraphAddKernelNode(&made, graph, after.begin(), after.size(), &node));
    return made;
}

cudaGraph_t new_graph() {
    cudaGraph_t graph;
    CUDA_OK(cudaGraphCreate(&graph, 0));
    return graph;
}

cudaGraphExec_t for_kernels(cudaGraph_t graph, bool uploaded = true) {
    cudaGraphExec_t exec;
    CUDA_OK(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagDeviceLaunch));
    if (uploaded) CUDA_OK(cudaGraphUpload(exec, nullptr));
    return exec;
}

cudaGraphExec_t appending(int* list, int value) {
    cudaGraph_t graph = new_graph();
    add(graph, {}, append, list, value);
    return for_kernels(graph);
}

template <class T>
T* managed() {
    T* memory;
    CUDA_OK(cudaMallocManaged(&memory, sizeof(T)));
    *memory = T{};
    return memory;
}

void run(cudaGraphExec_t exec) {
    CUDA_OK(cudaGraphLaunch(exec, nullptr));
    CUDA_OK(cudaDeviceSynchronize());
}

void order() {
    int* list;
    CUDA_OK(cudaMallocManaged(&list, 64 * sizeof(int)));
    for (int i = 0; i < 64; ++i) list[i] = 0;
    auto *inner = managed<Children>(), *outer = managed<Children>();
    // The middle graph has a tail of its own, which comes before anything that its launcher has left for the end.
    *inner = {appending(list, 10), appending(list, 11), appending(list, 12), appending(list, 13)};
    cudaGraph_t middle = new_graph();
    add(middle, {add(middle, {}, launch_all, inner, list)}, append, list, 2);
    *outer = {for_kernels(middle), nothing, appending(list, 20), appending(list, 21)};
    cudaGraph_t first = new_graph();
    add(first, {}, launch_all, outer, list);
    cudaGraphExec_t exec;
    CUDA_OK(cudaGraphInstantiate(&exec, first, 0));  // the host's own need not be for kernels
    run(exec);
    for (int error : inner->errors) EXPECT(error == cudaSuccess);
    for (int error : outer->errors) EXPECT(error == cudaSuccess);
    auto at = [&](int value) {
        for (int i = 1; i <= list[0]; ++i)
            if (list[i] == value) return i;
        return 0;
    };
    EXPECT(list[0] == 7);
    for (int value : {10, 11, 12, 13, 2, 20, 21}) EXPECT(at(value) != 0);
    EXPECT(at(12) > at(2) && at(12) > at(10));  // a tail follows its graph and what that has launched at once
    EXPECT(at(13) > at(12));                    // in the order of the launches
    EXPECT(at(20) > at(13) && at(20) > at(11));
    EXPECT(at(21) > at(20));
}

void itself() {
    auto *rounds = managed<int>(), *errors = managed<int>();
    CUDA_OK(cudaMallocManaged(&errors, 2 * sizeof(int)));
    errors[0] = errors[1] = -1;
    cudaGraph_t graph = new_graph();
    add(graph, {}, again, rounds, 1000, errors);
    auto exec = for_kernels(graph);
    run(exec);
    EXPECT(*rounds == 1000);
    EXPECT(errors[0] == cudaSuccess);
    EXPECT(errors[1] != cudaSuccess);
    run(exec);  // once more from the host
    EXPECT(*rounds == 1001);
}

void refusals() {
    int* errors;
    CUDA_OK(cudaMallocManaged(&errors, 4 * sizeof(int)));
    auto ask_for = [&](cudaGraphExec_t child) {
        cudaGraph_t graph = new_graph();
        add(graph, {}, ask, child, errors);
        cudaGraphExec_t exec;
        CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
        run(exec);
    };
    auto* list = managed<Children>();
    auto* numbers = reinterpret_cast<int*>(list);
    ask_for(appending(numbers, 1));
    EXPECT(errors[0] == cudaSuccess && numbers[0] == 1);
    EXPECT(errors[1] != cudaSuccess);  // it is not done yet
    EXPECT(errors[2] != cudaSuccess);
    EXPECT(errors[3] == 0);  // no graph for kernels is around it
    cudaGraph_t graph = new_graph();
    add(graph, {}, append, numbers, 2);
    ask_for(for_kernels(graph, false));
    EXPECT(errors[0] != cudaSuccess && numbers[0] == 1);  // not uploaded
    cudaGraphExec_t plain;
    CUDA_OK(cudaGraphInstantiate(&plain, graph, 0));
    ask_for(plain);
    EXPECT(errors[0] != cudaSuccess && numbers[0] == 1);
    auto gone = appending(numbers, 3);
    CUDA_OK(cudaGraphExecDestroy(gone));
    EXPECT(cudaGraphLaunch(gone, nullptr) != cudaSuccess);
    (void)cudaGetLastError();
}

// Copies and fills may be in them; functions of the program may not.
void contents() {
    int* memory;
    CUDA_OK(cudaMalloc(&memory, 8 * sizeof(int)));
    cudaGraph_t graph = new_graph();
    cudaMemsetParams fill{};
    fill.dst = memory, fill.elementSize = 4, fill.width = 4, fill.height = 1, fill.value = 7;
    cudaGraphNode_t filled, copied, called;
    CUDA_OK(cudaGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill));
    CUDA_OK(cudaGraphAddMemcpyNode1D(&copied, graph, &filled, 1, memory + 4, memory, 16, cudaMemcpyDeviceToDevice));
    auto* errors = managed<Children>();
    cudaGraph_t parent = new_graph();
    add(parent, {}, ask, for_kernels(graph), errors->errors);
    cudaGraphExec_t exec;
    CUDA_OK(cudaGraphInstantiate(&exec, parent, 0));
    run(exec);
    int values[8];
    CUDA_OK(cudaMemcpy(values, memory, sizeof values, cudaMemcpyDeviceToHost));
    for (int value : values) EXPECT(value == 7);

    cudaHostNodeParams host{[](void*) {}, nullptr};
    CUDA_OK(cudaGraphAddHostNode(&called, graph, nullptr, 0, &host));
    cudaGraphInstantiateParams wanted{};
    wanted.flags = cudaGraphInstantiateFlagDeviceLaunch;
    EXPECT(cudaGraphInstantiateWithParams(&exec, graph, &wanted) != cudaSuccess);
    EXPECT(wanted.result_out == cudaGraphInstantiateNodeOperationNotSupported);
    EXPECT(wanted.errNode_out == called);
    EXPECT(cudaGraphInstantiate(&exec, new_graph(), cudaGraphInstantiateFlagDeviceLaunch) != cudaSuccess);
    (void)cudaGetLastError();
}

// Pinned memory of the program, as it is when the kernel launches; other host memory is refused.
void pinned_copies() {
    int *in, *out, *memory, ordinary[3];
    CUDA_OK(cudaMallocHost(&in, 3 * sizeof(int)));
    CUDA_OK(cudaMallocHost(&out, 3 * sizeof(int)));
    CUDA_OK(cudaMalloc(&memory, 3 * sizeof(int)));
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CUDA_OK(cudaMemcpyAsync(memory, in, 3 * sizeof(int), cudaMemcpyHostToDevice, stream));
    append<<<1, 1, 0, stream>>>(memory, 5);
    cudaGraph_t graph, parent = new_graph();
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    cudaGraphNode_t nodes[2], last;
    size_t count = 2;
    CUDA_OK(cudaGraphGetNodes(graph, nodes, &count));
    for (auto node : nodes) {
        cudaGraphNodeType type;
        CUDA_OK(cudaGraphNodeGetType(node, &type));
        if (type == cudaGraphNodeTypeKernel) last = node;
    }
    CUDA_OK(cudaGraphAddMemcpyNode1D(nodes, graph, &last, 1, out, memory, 3 * sizeof(int), cudaMemcpyDeviceToHost));
    auto* errors = managed<Children>();
    auto child = for_kernels(graph);
    add(parent, {}, ask, child, errors->errors);
    cudaGraphExec_t exec;
    CUDA_OK(cudaGraphInstantiate(&exec, parent, 0));
    for (int value : {77, 88}) {
        in[0] = 1, in[1] = value, out[1] = -1;
        run(exec);
        EXPECT(errors->errors[0] == cudaSuccess);
        EXPECT(out[0] == 2 && out[1] == value && out[2] == 5);
    }
    EXPECT(cudaGraphExecMemcpyNodeSetParams1D(child, nodes[0], ordinary, memory, 3 * sizeof(int),
                                              cudaMemcpyDeviceToHost) != cudaSuccess);
    cudaGraph_t refused = new_graph();
    CUDA_OK(cudaGraphAddMemcpyNode1D(nodes, refused, nullptr, 0, ordinary, memory, 12, cudaMemcpyDeviceToHost));
    EXPECT(cudaGraphInstantiate(&exec, refused, cudaGraphInstantiateFlagDeviceLaunch) != cudaSuccess);
    (void)cudaGetLastError();
}

__global__ void fault(int* nowhere) {
    *nowhere = 1;
}

// The last of all: the context is gone.
void faults() {
    auto* errors = managed<Children>();
    cudaGraph_t graph = new_graph(), parent = new_graph();
    add(graph, {}, fault, reinterpret_cast<int*>(64));
    add(parent, {}, ask, for_kernels(graph), errors->errors);
    cudaGraphExec_t exec;
    CUDA_OK(cudaGraphInstantiate(&exec, parent, 0));
    CUDA_OK(cudaGraphLaunch(exec, nullptr));
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}

int main() {
    order();
    itself();
    refusals();
    contents();
    pinned_copies();
    faults();
    return check::finish();
}
