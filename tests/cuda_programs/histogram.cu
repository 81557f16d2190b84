// A histogram with atomics in shared and in global memory, and the other atomic operations with known totals.
#include "check.hpp"

__global__ void histogram(const unsigned char* in, int n, unsigned* bins) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[in[i]], 1);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

struct Totals {
    unsigned increments, ors, xors, highest, swaps_seen;
    unsigned long long wide;
    float floating;
    int lock, guarded;
};

__global__ void other_atomics(Totals* totals) {
    unsigned id = blockIdx.x * blockDim.x + threadIdx.x;
    atomicInc(&totals->increments, 999);  // wraps to 0 after 999
    atomicOr(&totals->ors, 1u << (id % 32));
    atomicXor(&totals->xors, id);
    atomicMax(&totals->highest, id);
    atomicAdd(&totals->wide, 1ull << 33);
    atomicAdd(&totals->floating, 0.5f);
    for (bool done = false; !done;) {  // a lock: every thread of a warp must get its turn
        if (atomicCAS(&totals->lock, 0, 1) != 0) continue;
        __threadfence();
        totals->guarded = *(volatile int*)&totals->guarded + 1;
        __threadfence();
        atomicExch(&totals->lock, 0);
        done = true;
    }
}

int main() {
    const int n = 200'000;
    check::Random random;
    std::vector<unsigned char> in(n);
    std::vector<unsigned> expected(256);
    for (auto& value : in) ++expected[value = (unsigned char)(random.bits() % 200)];
    check::Array<unsigned char> device_in(in);
    check::Array<unsigned> bins(std::vector<unsigned>(256, 0));
    histogram<<<16, 256>>>(device_in.data, n, bins.data);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(bins.host(), expected);

    check::Array<Totals> totals(std::vector<Totals>(1));
    other_atomics<<<8, 192>>>(totals.data);
    CUDA_LAUNCHED();
    const unsigned threads = 8 * 192;
    unsigned all_xored = 0;
    for (unsigned id = 0; id < threads; ++id) all_xored ^= id;
    Totals got = totals.host()[0];
    EXPECT(got.increments == threads % 1000);
    EXPECT(got.ors == 0xffffffffu);
    EXPECT(got.xors == all_xored);
    EXPECT(got.highest == threads - 1);
    EXPECT(got.wide == (unsigned long long)threads << 33);
    EXPECT(got.floating == 0.5f * threads);
    EXPECT(got.lock == 0 && got.guarded == int(threads));
    return check::finish();
}
