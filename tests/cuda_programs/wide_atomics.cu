// Atomic functions on 16 bytes: no thread ever sees a half of them.
#include "check.hpp"

struct alignas(16) Pair {
    unsigned long long count, triple;
    __host__ __device__ bool operator==(const Pair& other) const {
        return count == other.count && triple == other.triple;
    }
};

__global__ void count_up(Pair* pair, int* torn, int rounds) {
    for (int k = 0; k < rounds; ++k) {
        Pair seen = atomicCAS(pair, Pair{0, 0}, Pair{0, 0}), expected;
        do {
            if (seen.triple != 3 * seen.count) atomicAdd(torn, 1);
            expected = seen;
            seen = atomicCAS(pair, expected, Pair{expected.count + 1, expected.triple + 3});
        } while (!(seen == expected));
    }
}

__global__ void pass_on(Pair* pair, Pair* all) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    all[i] = atomicExch(pair, Pair{i + 1, 3 * (i + 1)});
}

int main() {
    const int blocks = 4, threads = 64, rounds = 5, all = blocks * threads;
    check::Array<Pair> pair(std::vector<Pair>{{0, 0}}), passed(all);
    check::Array<int> torn(std::vector<int>{0});
    count_up<<<blocks, threads>>>(pair.data, torn.data, rounds);
    CUDA_LAUNCHED();
    EXPECT(pair.host()[0].count == all * rounds);
    EXPECT(pair.host()[0].triple == 3 * all * rounds);
    EXPECT(torn.host()[0] == 0);

    CUDA_OK(cudaMemset(pair.data, 0, sizeof(Pair)));
    pass_on<<<blocks, threads>>>(pair.data, passed.data);
    CUDA_LAUNCHED();
    std::vector<int> seen(all + 1), once(all + 1, 1);
    auto values = passed.host();
    values.push_back(pair.host()[0]);
    for (auto& value : values) {
        EXPECT(value.triple == 3 * value.count);
        if (EXPECT(value.count <= all)) ++seen[value.count];
    }
    EXPECT_EQUAL(seen, once);
    return check::finish();
}
