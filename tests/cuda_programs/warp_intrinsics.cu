// Warp intrinsics and bit tricks: match, ballots under divergence, shuffles of all kinds, population counts, byte
// moves.
#include "check.hpp"

__global__ void intrinsics(unsigned* out) {
    unsigned lane = threadIdx.x % 32, base = threadIdx.x / 32 * 32 * 8;
    auto put = [&](int which, unsigned value) { out[base + which * 32 + lane] = value; };
    put(0, __match_any_sync(0xffffffff, lane / 5));
    put(1, __shfl_up_sync(0xffffffff, lane * 3, 2, 8));
    put(2, __shfl_sync(0xffffffff, lane * lane, (lane + 9) % 32));
    unsigned inner = 0;
    if (lane % 3 == 1) inner = __ballot_sync(0x92492492, lane > 15);
    __syncwarp();
    put(3, inner);
    put(4, __popc(lane * 0x01010101u) + 100 * __clz(int(lane)) + 10'000 * __ffs(int(lane)));
    put(5, __brev(lane) ^ __byte_perm(0x33221100, 0x77665544, 0x1357));
    put(6, __funnelshift_l(0x12345678, 0x9abcdef0, lane));
    put(7, __umulhi(0x9e3779b9u * lane, 0xdeadbeef) + __vadd4(0x01ff80fe, 0x02010305) + __usad(lane, 20, 3));
}

int popcount(unsigned value) {
    return __builtin_popcount(value);
}

int main() {
    check::Array<unsigned> out(2 * 8 * 32);
    intrinsics<<<1, 64>>>(out.data);
    CUDA_LAUNCHED();
    auto got = out.host();
    for (unsigned thread = 0; thread < 64; ++thread) {
        unsigned lane = thread % 32, expected[8] = {};
        for (unsigned other = 0; other < 32; ++other) {
            expected[0] |= unsigned(other / 5 == lane / 5) << other;
            expected[3] |= unsigned(lane % 3 == 1 && other % 3 == 1 && other > 15) << other;
            expected[5] |= ((lane >> other) & 1) << (31 - other);
        }
        expected[1] = (lane % 8 < 2 ? lane : lane - 2) * 3;
        expected[2] = ((lane + 9) % 32) * ((lane + 9) % 32);
        expected[4] =
            popcount(lane * 0x01010101u) + 100 * (lane ? __builtin_clz(lane) : 32) + 10'000 * __builtin_ffs(int(lane));
        expected[5] ^= 0x11335577;
        expected[6] = lane ? (0x9abcdef0u << lane) | (0x12345678u >> (32 - lane)) : 0x9abcdef0u;
        expected[7] = unsigned((0x9e3779b9u * lane) * 0xdeadbeefull >> 32) + 0x03008303u +
                      (lane > 20 ? lane - 20 : 20 - lane) + 3;
        for (int which = 0; which < 8; ++which)
            EXPECT_NEAR(got[thread / 32 * 256 + which * 32 + lane], expected[which], 0, which * 100 + lane);
    }
    return check::finish();
}
