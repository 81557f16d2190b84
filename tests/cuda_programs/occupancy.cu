// Occupancy questions: answers within the device's limits, less of it with more shared memory, and a usable block size.
#include "check.hpp"

__global__ void count(int* out) {
    extern __shared__ int unused[];
    if (out == nullptr) unused[threadIdx.x] = 1;
    atomicAdd(out, 1);
}

int main() {
    cudaDeviceProp device;
    CUDA_OK(cudaGetDeviceProperties(&device, 0));
    int previous = 1 << 20;
    for (int shared : {0, 8 << 10, 24 << 10, 48 << 10}) {
        int blocks = -1;
        CUDA_OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, count, 128, shared));
        std::printf("%d bytes of shared memory: %d blocks of 128 on a multiprocessor\n", shared, blocks);
        EXPECT(blocks >= 1 && blocks <= previous);
        EXPECT(blocks * 128 <= device.maxThreadsPerMultiProcessor && blocks <= device.maxBlocksPerMultiProcessor);
        EXPECT(size_t(blocks) * shared <= device.sharedMemPerMultiprocessor);
        previous = blocks;
    }
    int grid = 0, block = 0;
    CUDA_OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, count));
    EXPECT(block > 0 && block <= device.maxThreadsPerBlock && grid >= device.multiProcessorCount);

    cudaFuncAttributes attributes;
    CUDA_OK(cudaFuncGetAttributes(&attributes, count));
    EXPECT(attributes.numRegs > 0 && attributes.maxThreadsPerBlock >= block && attributes.sharedSizeBytes == 0);

    check::Array<int> out(std::vector<int>{0});
    count<<<3, block>>>(out.data);
    CUDA_LAUNCHED();
    EXPECT(out.host()[0] == 3 * block);
    return check::finish();
}
