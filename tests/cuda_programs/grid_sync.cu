// A cooperative launch: all blocks of the grid meet at a barrier, many times in one kernel. And an ordinary launch that does
// the same with a barrier of its own, as programs did before there were cooperative ones.
#include <cooperative_groups.h>

#include "check.hpp"

namespace cg = cooperative_groups;

// Each round every cell becomes its right neighbour's old value plus one; the neighbour may be in another block.
__global__ void rotate(int* from, int* to, int n, int rounds) {
    auto grid = cg::this_grid();
    for (int round = 0; round < rounds; ++round) {
        for (int i = int(grid.thread_rank()); i < n; i += int(grid.size())) to[i] = from[(i + 1) % n] + 1;
        grid.sync();
        int* kept = from;
        from = to;
        to = kept;
    }
}

// `arrived` counts up; a round is over when all blocks of the grid have come to its end.
__global__ void meet(unsigned* arrived, int* late, int rounds) {
    for (int round = 1; round <= rounds; ++round) {
        __syncthreads();
        if (threadIdx.x == 0) {
            atomicAdd(arrived, 1u);
            while (*static_cast<volatile unsigned*>(arrived) < round * gridDim.x) {
            }
            if (*static_cast<volatile unsigned*>(arrived) > (round + 1) * gridDim.x) atomicAdd(late, 1);
        }
        __syncthreads();
    }
}

void meets_on_all_processors(int processors) {
    int blocks = 2 * processors, rounds = 5;
    check::Array<unsigned> arrived(std::vector<unsigned>{0});
    check::Array<int> late(std::vector<int>{0});
    meet<<<blocks, 64>>>(arrived.data, late.data, rounds);
    CUDA_LAUNCHED();
    EXPECT(arrived.host()[0] == unsigned(blocks * rounds));
    EXPECT(late.host()[0] == 0);
}

int main() {
    int cooperative = 0;
    CUDA_OK(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0));
    EXPECT(cooperative == 1);
    int n = 1000, rounds = 10;
    std::vector<int> values(n), expected(n);
    for (int i = 0; i < n; ++i) values[i] = i * i;
    for (int i = 0; i < n; ++i) expected[i] = values[(i + rounds) % n] + rounds;
    check::Array<int> first(values), second(n);
    void* arguments[] = {&first.data, &second.data, &n, &rounds};
    CUDA_OK(cudaLaunchCooperativeKernel(rotate, dim3(4), dim3(128), arguments, 0, nullptr));
    EXPECT_EQUAL(first.host(), expected);

    int per_processor = 0, processors = 0;
    CUDA_OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, rotate, 128, 0));
    CUDA_OK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    int too_many = per_processor * processors + 1;
    EXPECT_ERROR(cudaLaunchCooperativeKernel(rotate, dim3(too_many), dim3(128), arguments, 0, nullptr),
                 cudaErrorCooperativeLaunchTooLarge);
    cudaGetLastError();
    meets_on_all_processors(processors);
    return check::finish();
}
