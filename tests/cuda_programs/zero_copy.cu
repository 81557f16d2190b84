// Mapped host memory: kernels read their input from the host and write their results there, with no copy in between.
#include <cstdint>

#include "check.hpp"

__global__ void squares(const int* in, long long* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = static_cast<long long>(in[i]) * in[i];
}

// A function between two kernels sees what the first has put into a few bytes of pinned memory, and the second what the
// function has made of them, in a stream and in a graph.
__global__ void add(int* value, int what) {
    *value += what;
}

void function_between_kernels(bool captured) {
    int* value = nullptr;
    CUDA_OK(cudaMallocHost(&value, sizeof *value));
    *value = 1;
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    for (int round = 0; round < 2; ++round) {
        bool in_graph = captured && round == 1;  // in the first round it becomes memory that both address
        cudaGraph_t graph;
        cudaGraphExec_t instance;
        if (in_graph) CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        add<<<1, 1, 0, stream>>>(value, 2);
        CUDA_OK(cudaLaunchHostFunc(
            stream, [](void* at) { *static_cast<int*>(at) *= 10; }, value));
        add<<<1, 1, 0, stream>>>(value, 4);
        if (in_graph) {
            CUDA_OK(cudaStreamEndCapture(stream, &graph));
            CUDA_OK(cudaGraphInstantiateWithFlags(&instance, graph, 0));
            CUDA_OK(cudaGraphLaunch(instance, stream));
        }
        CUDA_OK(cudaStreamSynchronize(stream));
        if (in_graph) {
            CUDA_OK(cudaGraphExecDestroy(instance));
            CUDA_OK(cudaGraphDestroy(graph));
        }
    }
    EXPECT(*value == ((1 + 2) * 10 + 4 + 2) * 10 + 4);
    CUDA_OK(cudaStreamDestroy(stream));
    CUDA_OK(cudaFreeHost(value));
}

int main() {
    function_between_kernels(false);
    function_between_kernels(true);
    int can_map = 0;
    CUDA_OK(cudaDeviceGetAttribute(&can_map, cudaDevAttrCanMapHostMemory, 0));
    EXPECT(can_map == 1);
    const int n = 40'000;
    int *in = nullptr, *device_in = nullptr;
    long long *out = nullptr, *device_out = nullptr;
    CUDA_OK(cudaHostAlloc(&in, n * sizeof(int), cudaHostAllocMapped | cudaHostAllocWriteCombined));
    CUDA_OK(cudaHostAlloc(&out, n * sizeof(long long), cudaHostAllocMapped | cudaHostAllocPortable));
    CUDA_OK(cudaHostGetDevicePointer(&device_in, in, 0));
    CUDA_OK(cudaHostGetDevicePointer(&device_out, out, 0));
    for (int round = 1; round <= 3; ++round) {
        for (int i = 0; i < n; ++i) in[i] = i - round;
        squares<<<32, 128>>>(device_in, device_out, n);
        CUDA_OK(cudaDeviceSynchronize());
        int wrong = 0;
        for (int i = 0; i < n; ++i) wrong += out[i] != static_cast<long long>(i - round) * (i - round);
        EXPECT(wrong == 0);
    }
    // Memory of the program's own, from the middle of a page to the middle of another.
    std::vector<long long> own(n + 3, -1);
    CUDA_OK(cudaHostRegister(own.data() + 1, n * sizeof(long long), cudaHostRegisterMapped));
    CUDA_OK(cudaHostGetDevicePointer(&device_out, own.data() + 1, 0));
    cudaEvent_t done;
    CUDA_OK(cudaEventCreate(&done));
    for (int round = 1; round <= 3; ++round) {
        for (int i = 0; i < n; ++i) in[i] = i + round;
        squares<<<32, 128>>>(device_in, device_out, n);
        CUDA_OK(cudaEventRecord(done));
        while (cudaEventQuery(done) == cudaErrorNotReady) {
        }
        own[0] = own[n + 1] = own[n + 2] = round;  // neighbours
        int wrong = 0;
        for (int i = 0; i < n; ++i) wrong += own[i + 1] != static_cast<long long>(i + round) * (i + round);
        EXPECT(wrong == 0);
    }
    EXPECT(own[0] == 3);
    EXPECT(own[n + 2] == 3);
    squares<<<32, 128>>>(device_in, device_out, 2);
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaHostUnregister(own.data() + 1));
    EXPECT(own[1] == 9);
    EXPECT(own[n] == static_cast<long long>(n + 2) * (n + 2));
    cudaPointerAttributes attributes{};
    CUDA_OK(cudaPointerGetAttributes(&attributes, in + 100));
    EXPECT(int(attributes.type) == int(cudaMemoryTypeHost));
    EXPECT(reinterpret_cast<uintptr_t>(attributes.devicePointer) == reinterpret_cast<uintptr_t>(device_in + 100));
    CUDA_OK(cudaEventDestroy(done));
    CUDA_OK(cudaFreeHost(in));
    CUDA_OK(cudaFreeHost(out));
    return check::finish();
}
