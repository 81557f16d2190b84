// A graph captured from a stream and launched several times: copies, kernels and a fork over a second stream.
#include "check.hpp"

__global__ void add(int* values, int n, int amount) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += amount;
}

int main() {
    const int n = 1000;
    check::Array<int> values(std::vector<int>(n, 1)), others(std::vector<int>(n, 0));
    int* out = nullptr;
    CUDA_OK(cudaMallocHost(&out, n * sizeof(int)));
    cudaStream_t main_stream, side_stream;
    cudaEvent_t forked, joined;
    CUDA_OK(cudaStreamCreate(&main_stream));
    CUDA_OK(cudaStreamCreate(&side_stream));
    CUDA_OK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    CUDA_OK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));

    CUDA_OK(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal));
    add<<<4, 256, 0, main_stream>>>(values.data, n, 10);
    CUDA_OK(cudaEventRecord(forked, main_stream));
    CUDA_OK(cudaStreamWaitEvent(side_stream, forked, 0));
    add<<<4, 256, 0, side_stream>>>(others.data, n, 5);
    CUDA_OK(cudaEventRecord(joined, side_stream));
    add<<<4, 256, 0, main_stream>>>(values.data, n, 100);
    CUDA_OK(cudaStreamWaitEvent(main_stream, joined, 0));
    CUDA_OK(cudaMemcpyAsync(out, values.data, n * sizeof(int), cudaMemcpyDeviceToHost, main_stream));
    cudaGraph_t graph;
    CUDA_OK(cudaStreamEndCapture(main_stream, &graph));
    EXPECT_EQUAL(values.host(), std::vector<int>(n, 1));  // nothing ran while capturing

    cudaGraphExec_t runnable;
    CUDA_OK(cudaGraphInstantiate(&runnable, graph, 0));
    for (int round = 1; round <= 3; ++round) {
        CUDA_OK(cudaGraphLaunch(runnable, main_stream));
        CUDA_OK(cudaStreamSynchronize(main_stream));
        EXPECT_EQUAL(std::vector<int>(out, out + n), std::vector<int>(n, 1 + 110 * round));
    }
    EXPECT_EQUAL(others.host(), std::vector<int>(n, 15));
    CUDA_OK(cudaGraphExecDestroy(runnable));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaFreeHost(out));
    return check::finish();
}
