// Cooperative groups: tiles of a warp, coalesced groups under divergence, labelled partitions by hand, block groups.
#include <cooperative_groups.h>

#include "check.hpp"

namespace cg = cooperative_groups;

template <int Size>
__global__ void tile_sums(const int* in, int* out) {
    auto tile = cg::tiled_partition<Size>(cg::this_thread_block());
    int value = in[threadIdx.x];
    for (int offset = Size / 2; offset > 0; offset /= 2) value += tile.shfl_down(value, offset);
    if (tile.thread_rank() == 0) out[threadIdx.x / Size] = value;
}

// One atomic for all the threads that took this branch, each still getting a place of its own.
__global__ void pack_odd(const int* in, int* out, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || in[i] % 2 == 0) return;
    cg::coalesced_group odd = cg::coalesced_threads();
    int place = 0;
    if (odd.thread_rank() == 0) place = atomicAdd(count, int(odd.size()));
    out[odd.shfl(place, 0) + odd.thread_rank()] = in[i];
}

__global__ void votes(int* out) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    bool mine = threadIdx.x >= 12;
    out[threadIdx.x] =
        tile.any(mine) + 2 * tile.all(mine) + 4 * int(tile.ballot(mine)) + 10'000 * int(tile.meta_group_rank());
}

template <int Size>
void check_tiles(const std::vector<int>& in, const check::Array<int>& device_in) {
    std::vector<int> expected(in.size() / Size);
    for (size_t i = 0; i < in.size(); ++i) expected[i / Size] += in[i];
    check::Array<int> out(expected.size());
    tile_sums<Size><<<1, int(in.size())>>>(device_in.data, out.data);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(out.host(), expected);
}

int main() {
    const int n = 256;
    std::vector<int> in(n), seen(n), present(n);
    for (int i = 0; i < n; ++i) in[i] = (i * 37) % n;
    check::Array<int> device_in(in), packed(n), count(std::vector<int>{0}), ballots(32);
    check_tiles<32>(in, device_in);
    check_tiles<16>(in, device_in);
    check_tiles<4>(in, device_in);

    pack_odd<<<2, n / 2>>>(device_in.data, packed.data, count.data, n);
    CUDA_LAUNCHED();
    EXPECT(count.host()[0] == n / 2);
    auto result = packed.host();
    for (int i = 0; i < n / 2; ++i)
        if (EXPECT(result[i] >= 0 && result[i] < n)) ++seen[result[i]];
    for (int i = 1; i < n; i += 2) present[i] = 1;
    EXPECT_EQUAL(seen, present);

    votes<<<1, 32>>>(ballots.data);
    CUDA_LAUNCHED();
    std::vector<int> expected(32);
    for (int i = 0; i < 32; ++i) {
        int tile = i / 8, any = tile >= 1, all = tile >= 2, ballot = tile == 0 ? 0 : tile == 1 ? 0xf0 : 0xff;
        expected[i] = any + 2 * all + 4 * ballot + 10'000 * tile;
    }
    EXPECT_EQUAL(ballots.host(), expected);
    return check::finish();
}
