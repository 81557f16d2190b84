// Sums and extrema: within a warp by shuffles, within a block through shared memory, across blocks by an atomic.
#include "check.hpp"

__device__ int warp_sum(int value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffff, value, offset);
    return value;
}

__global__ void reduce(const int* in, int n, unsigned long long* sum, int* largest) {
    __shared__ int warp_sums[32];
    int value = 0, maximum = -2147483647;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        value += in[i];
        maximum = max(maximum, in[i]);
    }
    for (int mask = 16; mask > 0; mask /= 2) maximum = max(maximum, __shfl_xor_sync(0xffffffff, maximum, mask));
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    value = warp_sum(value);
    if (lane == 0) {
        warp_sums[warp] = value;
        atomicMax(largest, maximum);
    }
    __syncthreads();
    if (warp != 0) return;
    value = warp_sum(lane < blockDim.x / 32 ? warp_sums[lane] : 0);
    if (lane == 0) atomicAdd(sum, (unsigned long long)(long long)value);
}

int main() {
    const int n = 100'000;
    check::Random random;
    std::vector<int> in(n);
    long long sum = 0;
    int largest = -2147483647;
    for (int& value : in) {
        value = int(random.bits() % 2001) - 1000;
        sum += value;
        largest = std::max(largest, value);
    }
    check::Array<int> device_in(in), device_largest(std::vector<int>{-2147483647});
    check::Array<unsigned long long> device_sum(std::vector<unsigned long long>{0});
    reduce<<<32, 256>>>(device_in.data, n, device_sum.data, device_largest.data);
    CUDA_LAUNCHED();
    EXPECT((long long)device_sum.host()[0] == sum);
    EXPECT(device_largest.host()[0] == largest);
    return check::finish();
}
