// The usual pipeline: pinned buffers, and per chunk an asynchronous copy in, a kernel and a copy out.
#include "check.hpp"

__global__ void square(int* values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= values[i];
}

int main() {
    const int chunks = 6, n = 10'000;
    int *in, *out;
    CUDA_OK(cudaMallocHost(&in, chunks * n * sizeof(int)));
    CUDA_OK(cudaHostAlloc(&out, chunks * n * sizeof(int), cudaHostAllocPortable));
    for (int i = 0; i < chunks * n; ++i) in[i] = i % 1000, out[i] = -1;
    check::Array<int> device(chunks * n);
    cudaStream_t streams[2];
    for (auto& stream : streams) CUDA_OK(cudaStreamCreate(&stream));

    for (int chunk = 0; chunk < chunks; ++chunk) {
        cudaStream_t stream = streams[chunk % 2];
        int first = chunk * n;
        CUDA_OK(cudaMemcpyAsync(device.data + first, in + first, n * sizeof(int), cudaMemcpyHostToDevice, stream));
        square<<<(n + 255) / 256, 256, 0, stream>>>(device.data + first, n);
        CUDA_OK(cudaMemcpyAsync(out + first, device.data + first, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    }
    for (auto& stream : streams) CUDA_OK(cudaStreamSynchronize(stream));

    for (int i = 0; i < chunks * n; ++i) EXPECT_NEAR(out[i], (i % 1000) * (i % 1000), 0, i);
    for (auto& stream : streams) CUDA_OK(cudaStreamDestroy(stream));
    CUDA_OK(cudaFreeHost(in));
    CUDA_OK(cudaFreeHost(out));
    return check::finish();
}
