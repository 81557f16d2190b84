// Copies from global to shared memory that a barrier waits for, as pipelines on compute capability 9.0 and later do: two stages,
// one thread that starts them, all others at work on what has come.
#include <cuda/barrier>
#include <utility>

#include "check.hpp"

using Barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int per_block = 256, stages = 2;

__global__ void sum_tiles(const int* in, int* out, int tiles) {
    __shared__ alignas(128) int room[stages][per_block];
    __shared__ Barrier full[stages];
    if (threadIdx.x == 0)
        for (auto& barrier : full) init(&barrier, blockDim.x);
    __syncthreads();
    auto fetch = [&](int tile) {
        auto& barrier = full[tile % stages];
        const int* from = in + (blockIdx.x * tiles + tile) * per_block;
        cuda::device::memcpy_async_tx(room[tile % stages], from, cuda::aligned_size_t<16>(sizeof room[0]), barrier);
        return cuda::device::barrier_arrive_tx(barrier, 1, sizeof room[0]);
    };
    int sum = 0;
    Barrier::arrival_token tokens[stages];
    for (int tile = 0; tile < tiles + stages - 1; ++tile) {
        if (tile < tiles) tokens[tile % stages] = threadIdx.x == 0 ? fetch(tile) : full[tile % stages].arrive();
        int ready = tile - (stages - 1);
        if (ready < 0) continue;
        full[ready % stages].wait(std::move(tokens[ready % stages]));
        sum += room[ready % stages][per_block - 1 - threadIdx.x];
        __syncthreads();  // before the stage is filled again
    }
    out[blockIdx.x * per_block + threadIdx.x] = sum;
}

int main() {
    const int blocks = 3, tiles = 7;
    std::vector<int> in(blocks * tiles * per_block);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * 7 % 1001);
    check::Array<int> device_in(in), device_out(std::vector<int>(blocks * per_block));
    sum_tiles<<<blocks, per_block>>>(device_in.data, device_out.data, tiles);
    CUDA_LAUNCHED();
    std::vector<int> expected(blocks * per_block);
    for (int b = 0; b < blocks; ++b)
        for (int t = 0; t < tiles; ++t)
            for (int i = 0; i < per_block; ++i)
                expected[b * per_block + i] += in[(b * tiles + t) * per_block + per_block - 1 - i];
    EXPECT_EQUAL(device_out.host(), expected);
    return check::finish();
}
