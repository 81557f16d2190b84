// Blocks that take over the work of blocks that have not begun (cluster launch control), and memory that is discarded.
#include <cuda/annotated_ptr>
#include <cuda/work_stealing>

#include "check.hpp"

__global__ void count(int* counts, int* begun) {
    if (threadIdx.x == 0) atomicAdd(begun, 1);
    cuda::__for_each_canceled_block<3>(threadIdx.x == 0, [&](dim3 at) {
        unsigned i = (at.z * gridDim.y + at.y) * gridDim.x + at.x;
        atomicAdd(&counts[i * blockDim.x + threadIdx.x], 1);
    });
}

__global__ void discard(int* data) {
    cuda::discard_memory(data + 128, 512);
    data[threadIdx.x] += 1;
}

int main() {
    const dim3 grid(7, 5, 3);
    const int blocks = 7 * 5 * 3, threads = 32;
    check::Array<int> counts(std::vector<int>(blocks * threads, 0)), begun(std::vector<int>{0});
    count<<<grid, threads>>>(counts.data, begun.data);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(counts.host(), std::vector<int>(blocks * threads, 1));
    EXPECT(begun.host()[0] >= 1 && begun.host()[0] <= blocks);
    std::printf("%d of %d blocks began by themselves\n", begun.host()[0], blocks);

    check::Array<int> data(std::vector<int>(512, 4));
    discard<<<1, 128>>>(data.data);
    CUDA_LAUNCHED();
    auto after = data.host();
    for (int i : {0, 127}) EXPECT_NEAR(after[i], 5, 0, i);
    for (int i : {256, 511}) EXPECT_NEAR(after[i], 4, 0, i);
    return check::finish();
}
