// Prefix sums over many blocks: scan each block, scan the block sums, add them back. Warp scans use ballots too.
#include "check.hpp"

constexpr int block = 256;

__global__ void scan_blocks(const int* in, int* out, int* sums, int n) {
    __shared__ int values[2][block];
    int i = blockIdx.x * block + threadIdx.x, from = 0;
    values[0][threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (int offset = 1; offset < block; offset *= 2, from ^= 1) {
        int value = values[from][threadIdx.x];
        if (threadIdx.x >= offset) value += values[from][threadIdx.x - offset];
        values[from ^ 1][threadIdx.x] = value;
        __syncthreads();
    }
    if (i < n) out[i] = values[from][threadIdx.x];
    if (threadIdx.x == block - 1 && sums) sums[blockIdx.x] = values[from][threadIdx.x];
}

__global__ void add_sums(int* out, const int* sums, int n) {
    int i = blockIdx.x * block + threadIdx.x;
    if (blockIdx.x > 0 && i < n) out[i] += sums[blockIdx.x - 1];
}

// Where each positive element of a warp goes when the positive ones are packed together.
__global__ void rank_positive(const int* in, int* rank) {
    unsigned positive = __ballot_sync(0xffffffff, in[threadIdx.x] > 0);
    rank[threadIdx.x] = __popc(positive & ((1u << (threadIdx.x % 32)) - 1));
}

int main() {
    const int n = 60'000, blocks = (n + block - 1) / block;
    static_assert(blocks <= block, "the sums are scanned by one block");
    check::Random random;
    std::vector<int> in(n), expected(n);
    int sum = 0;
    for (int i = 0; i < n; ++i) expected[i] = sum += in[i] = int(random.bits() % 100) - 50;

    check::Array<int> device_in(in), out(n), sums(blocks), ranks(64);
    scan_blocks<<<blocks, block>>>(device_in.data, out.data, sums.data, n);
    scan_blocks<<<1, block>>>(sums.data, sums.data, nullptr, blocks);
    add_sums<<<blocks, block>>>(out.data, sums.data, n);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(out.host(), expected);

    rank_positive<<<1, 64>>>(device_in.data, ranks.data);
    CUDA_LAUNCHED();
    std::vector<int> expected_ranks(64);
    for (int i = 1; i < 64; ++i) expected_ranks[i] = i % 32 == 0 ? 0 : expected_ranks[i - 1] + (in[i - 1] > 0);
    EXPECT_EQUAL(ranks.host(), expected_ranks);
    return check::finish();
}
