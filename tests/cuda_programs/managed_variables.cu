// Variables that host and device name alike.
#include "check.hpp"

__device__ __managed__ int counter = 5;
__managed__ float table[5000];
__managed__ int* cell = nullptr;

__global__ void work(int amount) {
    counter += amount;
    for (int i = 0; i < 5000; ++i) table[i] += 0.5f;
    if (cell) *cell += 1;
}

int main() {
    EXPECT(counter == 5);
    counter = 7;
    for (int i = 0; i < 5000; ++i) table[i] = float(i);
    for (int round = 1; round <= 4; ++round) {
        work<<<1, 1>>>(10);
        CUDA_OK(cudaDeviceSynchronize());
        EXPECT(counter == 7 + 10 * round + (round - 1));
        EXPECT(table[4999] == 4999 + 0.5f * round);
        counter += 1;
    }
    CUDA_OK(cudaMallocManaged(&cell, sizeof(int)));
    *cell = 41;
    work<<<1, 1>>>(0);
    CUDA_OK(cudaDeviceSynchronize());
    EXPECT(*cell == 42);
    int copy = 0;
    CUDA_OK(cudaMemcpyFromSymbol(&copy, counter, sizeof copy));
    EXPECT(copy == counter);
    CUDA_OK(cudaFree(cell));
    return check::finish();
}
