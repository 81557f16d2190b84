// Thread block clusters: blocks that read and write each other's shared memory and wait for each other.
#include <cooperative_groups.h>

#include "check.hpp"

namespace cg = cooperative_groups;

constexpr int threads = 64;

// Every block passes its numbers on to the next of its cluster, as often as there are blocks: they come home.
__global__ void pass_round(const int* in, int* out, int* ranks) {
    __shared__ int room[2][threads];
    auto cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank(), blocks = cluster.num_blocks(), next = (rank + 1) % blocks;
    int at = static_cast<int>(blockIdx.x * threads + threadIdx.x);
    room[0][threadIdx.x] = in[at];
    cluster.sync();
    for (unsigned turn = 0; turn < blocks; ++turn) {
        int* there = cluster.map_shared_rank(room[(turn + 1) % 2], next);
        there[threadIdx.x] = room[turn % 2][threadIdx.x] + 1;
        cluster.sync();
    }
    out[at] = room[blocks % 2][threadIdx.x];
    if (threadIdx.x == 0) ranks[blockIdx.x] = static_cast<int>(rank);
    cluster.sync();  // nobody leaves while its memory is in use
}

// One histogram over all blocks of a cluster, each with its share of the bins.
__global__ void __cluster_dims__(4, 1, 1) histogram(const int* in, int count, int* bins, int bins_each) {
    extern __shared__ int mine[];
    auto cluster = cg::this_cluster();
    for (int i = static_cast<int>(threadIdx.x); i < bins_each; i += threads) mine[i] = 0;
    cluster.sync();
    for (auto i = static_cast<int>(cluster.thread_rank()); i < count; i += static_cast<int>(cluster.num_threads())) {
        int* owner = cluster.map_shared_rank(mine, static_cast<unsigned>(in[i] / bins_each));
        atomicAdd(owner + in[i] % bins_each, 1);
    }
    cluster.sync();
    for (int i = static_cast<int>(threadIdx.x); i < bins_each; i += threads)
        bins[static_cast<int>(cluster.block_rank()) * bins_each + i] = mine[i];
}

cudaError_t launch_in_clusters(int blocks, int per_cluster, const int* in, int* out, int* ranks) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(per_cluster);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(threads);
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, pass_round, in, out, ranks);
}

int main() {
    const int blocks = 12;
    std::vector<int> in(blocks * threads);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * 13 % 997);
    check::Array<int> device_in(in), device_out(in.size()), device_ranks(blocks);
    for (int per_cluster : {1, 2, 3, 4, 6}) {
        CUDA_OK(launch_in_clusters(blocks, per_cluster, device_in.data, device_out.data, device_ranks.data));
        auto out = device_out.host(), ranks = device_ranks.host();
        for (int b = 0; b < blocks; ++b) EXPECT(ranks[b] == b % per_cluster);
        for (size_t i = 0; i < in.size(); ++i) EXPECT(out[i] == in[i] + per_cluster);
    }
    EXPECT_ERROR(launch_in_clusters(blocks, 5, device_in.data, device_out.data, device_ranks.data),
                 cudaErrorInvalidClusterSize);
    EXPECT_ERROR(launch_in_clusters(blocks, 12, device_in.data, device_out.data, device_ranks.data),
                 cudaErrorInvalidClusterSize);
    cudaGetLastError();

    const int bins_each = 50;
    std::vector<int> values(10'000), expected(4 * bins_each);
    for (size_t i = 0; i < values.size(); ++i) ++expected[values[i] = static_cast<int>(i * i % (4 * bins_each))];
    check::Array<int> device_values(values), device_bins(expected.size());
    histogram<<<4, threads, bins_each * sizeof(int)>>>(device_values.data, 10'000, device_bins.data, bins_each);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(device_bins.host(), expected);
    return check::finish();
}
