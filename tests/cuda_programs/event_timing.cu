// Event times are real: they add up, grow with the work, and lie within what the host's own clock saw.
#include "check.hpp"

#include <chrono>

__global__ void spin(unsigned* out, int rounds) {
    unsigned value = threadIdx.x;
    for (int i = 0; i < rounds; ++i) value = value * 1664525u + 1013904223u;
    out[threadIdx.x] = value;
}

int main() {
    cudaEvent_t events[3];
    for (auto& event : events) CUDA_OK(cudaEventCreate(&event));
    check::Array<unsigned> out(32);
    spin<<<1, 32>>>(out.data, 1);  // loads the code, so that the times below do not contain it
    CUDA_OK(cudaDeviceSynchronize());

    auto host_start = std::chrono::steady_clock::now();
    CUDA_OK(cudaEventRecord(events[0]));
    spin<<<1, 32>>>(out.data, 1'000);
    CUDA_OK(cudaEventRecord(events[1]));
    spin<<<1, 32>>>(out.data, 100'000);
    CUDA_OK(cudaEventRecord(events[2]));
    CUDA_OK(cudaEventSynchronize(events[2]));
    float host_ms = std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - host_start).count();

    float first = 0, second = 0, both = 0;
    CUDA_OK(cudaEventElapsedTime(&first, events[0], events[1]));
    CUDA_OK(cudaEventElapsedTime(&second, events[1], events[2]));
    CUDA_OK(cudaEventElapsedTime(&both, events[0], events[2]));
    EXPECT(first > 0 && second > first);
    EXPECT_NEAR(first + second, both, 0.01, 0);  // the documented resolution is about half a microsecond
    EXPECT(both <= host_ms);

    std::vector<unsigned> expected(32);
    for (unsigned thread = 0; thread < 32; ++thread) {
        unsigned value = thread;
        for (int i = 0; i < 100'000; ++i) value = value * 1664525u + 1013904223u;
        expected[thread] = value;
    }
    EXPECT_EQUAL(out.host(), expected);
    return check::finish();
}
