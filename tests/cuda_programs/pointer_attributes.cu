// What the runtime says of pointers, and pinned memory as both ends of a chain of asynchronous copies.
#include "check.hpp"

#include <cstring>

// What was on the stack before must not show in an answer.
__attribute__((noinline)) static void spoil_stack() {
    volatile char garbage[8192];
    for (auto& byte : garbage) byte = char(0xA5);
}

static cudaPointerAttributes ask(const void* pointer) {
    cudaPointerAttributes attributes;
    std::memset(&attributes, 0xA5, sizeof attributes);
    spoil_stack();
    CUDA_OK(cudaPointerGetAttributes(&attributes, pointer));
    return attributes;
}

int main() {
    const int n = 300'000;
    int *device = nullptr, *other = nullptr, *pinned = nullptr;
    CUDA_OK(cudaMalloc(&device, n * sizeof(int)));
    CUDA_OK(cudaMalloc(&other, n * sizeof(int)));
    CUDA_OK(cudaMallocHost(&pinned, n * sizeof(int)));
    std::vector<int> ordinary(n);

    EXPECT(ask(device).type == cudaMemoryTypeDevice);
    EXPECT(ask(device + 5).type == cudaMemoryTypeDevice);
    EXPECT(ask(device).devicePointer == device);
    EXPECT(ask(device).device == 0);
    EXPECT(ask(pinned).type == cudaMemoryTypeHost);
    EXPECT(ask(pinned).hostPointer == pinned);
    EXPECT(ask(ordinary.data()).type == cudaMemoryTypeUnregistered);

    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    CUDA_OK(cudaMemsetAsync(device, 1, n * sizeof(int), stream));
    CUDA_OK(cudaMemcpyAsync(pinned, device, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaMemcpyAsync(other, pinned, n * sizeof(int), cudaMemcpyHostToDevice, stream));
    CUDA_OK(cudaMemsetAsync(pinned, 2, n * sizeof(int), stream));
    CUDA_OK(cudaMemcpyAsync(ordinary.data(), other, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    EXPECT_EQUAL(ordinary, std::vector<int>(n, 0x01010101));
    EXPECT_EQUAL(std::vector<int>(pinned, pinned + n), std::vector<int>(n, 0x02020202));

    CUDA_OK(cudaStreamDestroy(stream));
    CUDA_OK(cudaFreeHost(pinned));
    CUDA_OK(cudaFree(other));
    CUDA_OK(cudaFree(device));
    return check::finish();
}
