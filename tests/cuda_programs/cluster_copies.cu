// Copies that one block of a cluster sends to all of them, and sums that bulk copies make in global memory and in other blocks.
#include <cooperative_groups.h>
#include <cuda/ptx>

#include "check.hpp"

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

constexpr int cluster_blocks = 4, words = 256;

// The headers have this for sm_90a and sm_100a alone, where it is quick.
__device__ void multicast(void* to, const void* from, int bytes, uint64_t* barrier, uint16_t blocks) {
    auto shared = [](void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); };
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
        "%4;" ::"r"(shared(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared(barrier)), "h"(blocks)
        : "memory");
}

// Each block holds what rank 0 has fetched, plus its own rank; adds it all to `sums`, and its first word to rank 0's total.
__global__ void __cluster_dims__(cluster_blocks, 1, 1) send_and_add(const int* in, int* sums, int* totals) {
    __shared__ alignas(128) int room[words];
    __shared__ alignas(16) int total[4];
    __shared__ uint64_t arrived, added;
    auto cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank();
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&arrived, 1);
        ptx::mbarrier_init(&added, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        for (int& word : total) word = 0;
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &arrived, sizeof room);
        unsigned bytes = rank == 0 ? cluster_blocks * sizeof total : 0;
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &added, bytes);
    }
    cluster.sync();
    if (threadIdx.x == 0 && rank == 0) multicast(room, in, sizeof room, &arrived, (1 << cluster_blocks) - 1);
    while (!ptx::mbarrier_try_wait_parity(&arrived, 0)) {
    }
    __syncthreads();
    for (int i = threadIdx.x; i < words; i += blockDim.x) room[i] += rank;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, sums, room, sizeof room);
        ptx::cp_async_bulk_commit_group();
        int* there = cluster.map_shared_rank(total, 0);
        uint64_t* barrier = cluster.map_shared_rank(&added, 0);
        ptx::cp_reduce_async_bulk(ptx::space_cluster, ptx::space_shared, ptx::op_add, there, room, sizeof total,
                                  barrier);
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
    while (!ptx::mbarrier_try_wait_parity(&added, 0)) {
    }
    if (rank == 0 && threadIdx.x < 4) totals[blockIdx.x / cluster_blocks * 4 + threadIdx.x] = total[threadIdx.x];
    cluster.sync();
}

int main() {
    const int clusters = 3;
    std::vector<int> in(words), expected(words), totals(clusters * 4);
    for (int i = 0; i < words; ++i) in[i] = i * i;
    for (int rank = 0; rank < cluster_blocks; ++rank) {
        for (int i = 0; i < words; ++i) expected[i] += clusters * (in[i] + rank);
        for (int i = 0; i < clusters * 4; ++i) totals[i] += in[i % 4] + rank;
    }
    check::Array<int> device_in(in), sums(std::vector<int>(words, 0)), device_totals(clusters * 4);
    send_and_add<<<clusters * cluster_blocks, 64>>>(device_in.data, sums.data, device_totals.data);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(sums.host(), expected);
    EXPECT_EQUAL(device_totals.host(), totals);
    return check::finish();
}
