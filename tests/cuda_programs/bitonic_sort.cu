// A bitonic sort: many dependent launches on one stream, then the inner stages in shared memory.
#include "check.hpp"

#include <algorithm>

constexpr int block = 512;

__device__ void compare(unsigned& low, unsigned& high, bool ascending) {
    if ((low > high) == ascending) {
        unsigned kept = low;
        low = high;
        high = kept;
    }
}

__global__ void merge_step(unsigned* values, int distance, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int partner = i ^ distance;
    if (partner > i) compare(values[i], values[partner], (i & size) == 0);
}

__global__ void merge_rest(unsigned* values, int distance, int size) {
    __shared__ unsigned part[block];
    int base = blockIdx.x * block, i = threadIdx.x;
    part[i] = values[base + i];
    for (; distance > 0; distance /= 2) {
        __syncthreads();
        int partner = i ^ distance;
        if (partner > i) compare(part[i], part[partner], ((base + i) & size) == 0);
    }
    __syncthreads();
    values[base + i] = part[i];
}

int main() {
    const int n = 1 << 14;
    check::Random random;
    std::vector<unsigned> values(n);
    for (auto& value : values) value = random.bits();
    check::Array<unsigned> device(values);
    for (int size = 2; size <= n; size *= 2) {
        int distance = size / 2;
        for (; distance >= block; distance /= 2) merge_step<<<n / block, block>>>(device.data, distance, size);
        merge_rest<<<n / block, block>>>(device.data, distance, size);
    }
    CUDA_LAUNCHED();
    std::sort(values.begin(), values.end());
    EXPECT_EQUAL(device.host(), values);
    return check::finish();
}
