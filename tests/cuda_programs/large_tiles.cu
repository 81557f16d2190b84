// Tiles of several warps, whose barriers lie in shared memory that belongs to the system; and the groups' collectives: reduce,
// scans, invoke_one, labelled partitions.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include "check.hpp"

namespace cg = cooperative_groups;

constexpr int threads = 512;

// For each thread: its tile's sum, the largest value up to it, the sum before it, and what the tile's first thread holds.
template <int Size>
__global__ void collectives(const int* in, int* sums, int* largest, int* before, int* first, char* own) {
    extern __shared__ char dynamic[];
    dynamic[threadIdx.x] = static_cast<char>(threadIdx.x * 3);
    __shared__ cg::block_tile_memory<threads> memory;
    auto block = cg::this_thread_block(memory);
    auto tile = cg::tiled_partition<Size>(block);
    int i = blockIdx.x * threads + threadIdx.x, value = in[i];
    for (int round = 0; round < 3; ++round) {
        tile.sync();
        sums[i] = cg::reduce(tile, value, cg::plus<int>());
    }
    largest[i] = cg::inclusive_scan(tile, value, cg::greater<int>());
    before[i] = cg::exclusive_scan(tile, value);
    first[i] = tile.shfl(value, 0);
    block.sync();
    own[i] = dynamic[threadIdx.x];
}

template <int Size>
void check_size(const std::vector<int>& in) {
    check::Array<int> device(in), sums(in.size()), largest(in.size()), before(in.size()), first(in.size());
    check::Array<char> own(in.size());
    collectives<Size><<<in.size() / threads, threads, threads>>>(device.data, sums.data, largest.data, before.data,
                                                                 first.data, own.data);
    CUDA_LAUNCHED();
    auto got_sums = sums.host(), got_largest = largest.host(), got_before = before.host(), got_first = first.host();
    auto got_own = own.host();
    for (size_t tile = 0; tile < in.size(); tile += Size) {
        int sum = 0, most = in[tile], all = 0;
        for (int k = 0; k < Size; ++k) all += in[tile + k];
        for (int k = 0; k < Size; ++k) {
            size_t i = tile + k;
            most = std::max(most, in[i]);
            EXPECT_NEAR(got_sums[i], all, 0, i);
            EXPECT_NEAR(got_largest[i], most, 0, i);
            EXPECT_NEAR(got_before[i], sum, 0, i);
            EXPECT_NEAR(got_first[i], in[tile], 0, i);
            EXPECT_NEAR(got_own[i], static_cast<char>(i % threads * 3), 0, i);
            sum += in[i];
        }
    }
}

// Threads with one label among a warp's count themselves; one of each group writes.
__global__ void labels(const int* in, int* members, int* writers) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto group = cg::labeled_partition(warp, in[threadIdx.x] % 3);
    members[threadIdx.x] = group.size();
    cg::invoke_one(group, [&] { atomicAdd(writers, 1); });
    auto half = cg::binary_partition(warp, in[threadIdx.x] > 0);
    members[32 + threadIdx.x] = cg::reduce(half, 1, cg::plus<int>());
}

int main() {
    std::vector<int> in(2 * threads);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * 7919 % 1000) - 300;
    check_size<32>(in);
    check_size<64>(in);
    check_size<128>(in);
    check_size<256>(in);
    check_size<512>(in);

    std::vector<int> small(32), expected(64);
    for (int i = 0; i < 32; ++i) small[i] = i * i % 7;
    for (int i = 0; i < 32; ++i)
        for (int k = 0; k < 32; ++k) {
            expected[i] += small[i] % 3 == small[k] % 3;
            expected[32 + i] += (small[i] > 0) == (small[k] > 0);
        }
    check::Array<int> device(small), members(64), writers(std::vector<int>{0});
    labels<<<1, 32>>>(device.data, members.data, writers.data);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(members.host(), expected);
    EXPECT(writers.host()[0] == 3);
    return check::finish();
}
