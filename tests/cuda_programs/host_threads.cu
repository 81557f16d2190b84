// Several host threads use the device at once through the default stream. Built twice: with the legacy default stream
// that all threads share, and (host_threads_ptds) with a default stream per thread.
#include <future>
#include <thread>

#include "check.hpp"

__global__ void mix(unsigned* values, int n, unsigned salt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = values[i] * 2654435761u + salt;
}

void work(unsigned id) {
    const int n = 2000, rounds = 10;
    std::vector<unsigned> values(n);
    for (int i = 0; i < n; ++i) values[i] = id * 1000 + i;
    check::Array<unsigned> device(values);
    for (unsigned round = 0; round < rounds; ++round) {
        mix<<<(n + 127) / 128, 128>>>(device.data, n, id + round);
        CUDA_LAUNCHED();
        for (auto& value : values) value = value * 2654435761u + id + round;
    }
    EXPECT_EQUAL(device.host(), values);
    CUDA_OK(cudaStreamSynchronize(nullptr));
}

// An error belongs to the thread that made it.
void errors_stay_in_their_thread() {
    cudaFree(reinterpret_cast<void*>(1));
    std::thread([] { EXPECT_ERROR(cudaGetLastError(), cudaSuccess); }).join();
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidValue);
}

// Work that this thread has in its default stream holds up another thread's only where the two share one stream.
void default_streams_are_shared_or_not() {
    std::promise<void> gate;
    auto opened = gate.get_future();
    CUDA_OK(cudaLaunchHostFunc(
        nullptr, [](void* f) { static_cast<std::future<void>*>(f)->wait(); }, &opened));
    std::thread([] {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
        EXPECT_ERROR(cudaStreamQuery(nullptr), cudaSuccess);
#else
        EXPECT_ERROR(cudaStreamQuery(nullptr), cudaErrorNotReady);
#endif
    }).join();
    gate.set_value();
    CUDA_OK(cudaStreamSynchronize(nullptr));
}

int main() {
    std::vector<std::thread> threads;
    for (unsigned id = 0; id < 4; ++id) threads.emplace_back(work, id);
    for (auto& thread : threads) thread.join();
    errors_stay_in_their_thread();
    default_streams_are_shared_or_not();
    return check::finish();
}
