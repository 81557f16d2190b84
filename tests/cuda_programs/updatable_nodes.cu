// Kernels of a graph that another kernel of it changes: parameters, grid, and whether they run at all.
#include <string>

#include "check.hpp"

__global__ void add(int* sum, int step) {
    if (threadIdx.x == 0) atomicAdd(sum, step);
}

enum Wish { nothing, parameter, grid, off, on, several, beyond };

struct Order {
    cudaGraphDeviceNode_t node;
    Wish wish;
    int value;
    int errors[2];
    cudaGraphKernelNodeUpdate updates[3];
};

__global__ void change(Order* order) {
    auto& error = order->errors[0];
    switch (order->wish) {
        case parameter:
            error = cudaGraphKernelNodeSetParam(order->node, 8, order->value);
            break;
        case grid:
            error = cudaGraphKernelNodeSetGridDim(order->node, dim3(order->value));
            break;
        case off:
        case on:
            error = cudaGraphKernelNodeSetEnabled(order->node, order->wish == on);
            break;
        case several:
            order->updates[1].updateData.param.pValue = &order->value;
            error = cudaGraphKernelNodeUpdatesApply(order->updates, 3);
            break;
        default:
            break;
    }
    if (order->wish == beyond) {
        error = cudaGraphKernelNodeSetParam(order->node, 9, order->value);
        order->errors[1] = cudaGraphKernelNodeSetGridDim(order->node, dim3(0));
    }
}

struct Scene {
    Scene() {
        CUDA_OK(cudaMallocManaged(&order, sizeof(Order)));
        CUDA_OK(cudaMallocManaged(&sum, sizeof(int)));
        *order = {};
        CUDA_OK(cudaGraphCreate(&graph, 0));
    }
    cudaGraphNode_t add_node(void (*kernel)(), void** arguments, const cudaGraphNode_t* after) {
        cudaKernelNodeParams node{};
        node.func = reinterpret_cast<void*>(kernel);
        node.gridDim = 1, node.blockDim = 32;
        node.kernelParams = arguments;
        cudaGraphNode_t made;
        CUDA_OK(cudaGraphAddKernelNode(&made, graph, after, after ? 1 : 0, &node));
        return made;
    }
    void instantiate() {
        CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
        CUDA_OK(cudaGraphUpload(exec, nullptr));
    }
    // What the graph adds when its first kernel has this wish.
    int run(Wish wish, int value = 0) {
        order->wish = wish, order->value = value;
        order->errors[0] = order->errors[1] = -1;
        *sum = 0;
        CUDA_OK(cudaGraphLaunch(exec, nullptr));
        CUDA_OK(cudaStreamSynchronize(nullptr));
        if (wish != nothing && wish != beyond) EXPECT(order->errors[0] == cudaSuccess);
        return *sum;
    }

    Order* order;
    int* sum;
    cudaGraph_t graph;
    cudaGraphExec_t exec{};
};

template <class... Parameters>
auto kernel(void (*function)(Parameters...)) {
    return reinterpret_cast<void (*)()>(function);
}

bool is_emulated() {
    cudaDeviceProp device;
    CUDA_OK(cudaGetDeviceProperties(&device, 0));
    return std::string(device.name).find("(emulated)") != std::string::npos;
}

void changes_last(Scene& scene) {
    EXPECT(scene.run(nothing) == 1);
    EXPECT(scene.run(parameter, 5) == 5);  // of this very launch
    EXPECT(scene.run(nothing) == 5);
    EXPECT(scene.run(grid, 4) == 20);
    EXPECT(scene.run(off) == 0);
    EXPECT(scene.run(nothing) == 0);
    EXPECT(scene.run(on) == 20);
    auto* updates = scene.order->updates;
    for (int i = 0; i < 3; ++i) updates[i].node = scene.order->node;
    updates[0].field = cudaGraphKernelNodeFieldGridDim;
    updates[0].updateData.gridDim = dim3(2);
    updates[1].field = cudaGraphKernelNodeFieldParam;
    updates[1].updateData.param.offset = 8;
    updates[1].updateData.param.size = sizeof(int);
    updates[2].field = cudaGraphKernelNodeFieldEnabled;
    updates[2].updateData.isEnabled = 1;
    EXPECT(scene.run(several, 3) == 6);
    if (!is_emulated()) return;  // a GPU need not notice
    EXPECT(scene.run(beyond, 7) == 6);
    EXPECT(scene.order->errors[0] == cudaErrorInvalidValue);
    EXPECT(scene.order->errors[1] == cudaErrorInvalidValue);
}

void of_nodes() {
    Scene scene;
    int step = 1;
    void *with_order[] = {&scene.order}, *with_sum[] = {&scene.sum, &step};
    auto first = scene.add_node(kernel(change), with_order, nullptr);
    auto node = scene.add_node(kernel(add), with_sum, &first);
    cudaLaunchAttributeValue value{};
    constexpr auto id = cudaLaunchAttributeDeviceUpdatableKernelNode;
    value.deviceUpdatableKernelNode.deviceUpdatable = 1;
    CUDA_OK(cudaGraphKernelNodeSetAttribute(node, id, &value));
    auto name = value.deviceUpdatableKernelNode.devNode;
    EXPECT(name != nullptr);
    value = {};
    CUDA_OK(cudaGraphKernelNodeGetAttribute(node, id, &value));
    EXPECT(value.deviceUpdatableKernelNode.deviceUpdatable == 1);
    EXPECT(value.deviceUpdatableKernelNode.devNode == name);
    scene.order->node = name;
    scene.instantiate();
    changes_last(scene);

    // What the program sets is valid from when it is uploaded.
    cudaKernelNodeParams changed{};
    step = 100;
    changed.func = reinterpret_cast<void*>(add);
    changed.gridDim = 3, changed.blockDim = 32;
    changed.kernelParams = with_sum;
    CUDA_OK(cudaGraphExecKernelNodeSetParams(scene.exec, node, &changed));
    CUDA_OK(cudaGraphUpload(scene.exec, nullptr));
    EXPECT(scene.run(nothing) == 300);
    EXPECT(scene.run(parameter, 2) == 6);

    // It stays what it is.
    value.deviceUpdatableKernelNode.deviceUpdatable = 0;
    EXPECT(cudaGraphKernelNodeSetAttribute(node, id, &value) != cudaSuccess);
    EXPECT(cudaGraphKernelNodeCopyAttributes(first, node) != cudaSuccess);
    EXPECT(cudaGraphDestroyNode(node) != cudaSuccess);
    cudaGraphExec_t second;
    EXPECT(cudaGraphInstantiate(&second, scene.graph, 0) != cudaSuccess);
    cudaGraphExecUpdateResultInfo info;
    EXPECT(cudaGraphExecUpdate(scene.exec, scene.graph, &info) != cudaSuccess);
    (void)cudaGetLastError();
    EXPECT(scene.run(nothing) == 6);
}

void captured() {
    Scene scene;
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeDeviceUpdatableKernelNode;
    attribute.val.deviceUpdatableKernelNode.deviceUpdatable = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = 1, config.blockDim = 32, config.stream = stream;
    config.attrs = &attribute, config.numAttrs = 1;
    EXPECT(cudaLaunchKernelEx(&config, add, scene.sum, 1) != cudaSuccess);  // only graphs have such kernels
    (void)cudaGetLastError();

    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    change<<<1, 1, 0, stream>>>(scene.order);
    CUDA_OK(cudaLaunchKernelEx(&config, add, scene.sum, 1));
    CUDA_OK(cudaStreamEndCapture(stream, &scene.graph));
    scene.order->node = attribute.val.deviceUpdatableKernelNode.devNode;
    EXPECT(scene.order->node != nullptr);
    scene.instantiate();
    changes_last(scene);
}

int main() {
    of_nodes();
    captured();
    return check::finish();
}
