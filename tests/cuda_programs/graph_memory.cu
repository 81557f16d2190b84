// Memory that graphs allocate when they run: captured from a stream, as nodes, left over and freed outside.
#include "check.hpp"

constexpr int count = 1 << 18;
constexpr int blocks = (count + 255) / 256;

__global__ void fill(int* out, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = value + i;
}
__global__ void add_to(const int* from, int* to) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] += from[i];
}

static size_t used() {
    size_t bytes = 0;
    CUDA_OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &bytes));
    return bytes;
}

int main() {
    cudaStream_t stream{};
    CUDA_OK(cudaStreamCreate(&stream));
    check::Array<int> sum(count);
    CUDA_OK(cudaMemset(sum.data, 0, count * sizeof(int)));
    cudaGraph_t graph{};
    cudaGraphExec_t exec{};
    int* temporary = nullptr;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CUDA_OK(cudaMallocAsync(&temporary, count * sizeof(int), stream));
    fill<<<blocks, 256, 0, stream>>>(temporary, 5);
    add_to<<<blocks, 256, 0, stream>>>(temporary, sum.data);
    CUDA_OK(cudaFreeAsync(temporary, stream));
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; ++i) CUDA_OK(cudaGraphLaunch(exec, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    auto host = sum.host();
    EXPECT(host[0] == 15 && host[count - 1] == 3 * (5 + count - 1));
    EXPECT(used() >= count * sizeof(int));
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));

    cudaGraphNode_t alloc{}, kernel{};
    CUDA_OK(cudaGraphCreate(&graph, 0));
    cudaGraphNodeParams params{};
    params.type = cudaGraphNodeTypeMemAlloc;
    params.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
    params.alloc.poolProps.location.type = cudaMemLocationTypeDevice;
    params.alloc.bytesize = count * sizeof(int);
    CUDA_OK(cudaGraphAddNode(&alloc, graph, nullptr, nullptr, 0, &params));
    int* left = static_cast<int*>(params.alloc.dptr);
    EXPECT(left != nullptr);
    int value = 100;
    void* arguments[] = {&left, &value};
    cudaKernelNodeParams launch{};
    launch.func = reinterpret_cast<void*>(fill);
    launch.gridDim = blocks, launch.blockDim = 256, launch.kernelParams = arguments;
    CUDA_OK(cudaGraphAddKernelNode(&kernel, graph, &alloc, 1, &launch));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaGraphLaunch(exec, stream));
    EXPECT(cudaGraphLaunch(exec, stream) != cudaSuccess);  // not freed yet
    (void)cudaGetLastError();
    int last = 0;
    CUDA_OK(cudaMemcpy(&last, left + count - 1, sizeof last, cudaMemcpyDeviceToHost));
    EXPECT(last == 100 + count - 1);
    cudaPointerAttributes attributes{};
    CUDA_OK(cudaPointerGetAttributes(&attributes, left));
    EXPECT(attributes.type == cudaMemoryTypeDevice);
    CUDA_OK(cudaFreeAsync(left, stream));
    CUDA_OK(cudaGraphLaunch(exec, stream));
    CUDA_OK(cudaFree(left));
    EXPECT(cudaFree(left) != cudaSuccess);
    (void)cudaGetLastError();
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaDeviceGraphMemTrim(0));
    EXPECT(used() == 0);
    return check::finish();
}
