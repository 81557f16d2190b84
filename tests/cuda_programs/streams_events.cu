// Several streams at once, one waiting for another's event, elapsed time, and a host function in between.
#include "check.hpp"

#include <future>

__global__ void add(int* values, int n, int amount) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] += amount;
}

__global__ void copy_doubled(const int* from, int* to, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = 2 * from[i];
}

int main() {
    const int n = 1000, count = 4;
    cudaStream_t streams[count];
    for (auto& stream : streams) CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaEvent_t start, end, produced;
    CUDA_OK(cudaEventCreate(&start));
    CUDA_OK(cudaEventCreate(&end));
    CUDA_OK(cudaEventCreateWithFlags(&produced, cudaEventDisableTiming));
    check::Array<int> values(std::vector<int>(n, 1)), doubled(n);

    // Nothing on stream 0 can run before the gate opens, so stream 1 shows whether it really waits.
    std::promise<void> gate;
    auto opened = gate.get_future();
    CUDA_OK(cudaEventRecord(start, streams[0]));
    CUDA_OK(cudaLaunchHostFunc(
        streams[0], [](void* f) { static_cast<std::future<void>*>(f)->wait(); }, &opened));
    for (int i = 0; i < 10; ++i) add<<<1, 256, 0, streams[0]>>>(values.data, n, i);
    CUDA_OK(cudaEventRecord(produced, streams[0]));
    CUDA_OK(cudaStreamWaitEvent(streams[1], produced, 0));
    copy_doubled<<<1, 256, 0, streams[1]>>>(values.data, doubled.data, n);
    CUDA_LAUNCHED();
    EXPECT_ERROR(cudaEventQuery(produced), cudaErrorNotReady);
    EXPECT_ERROR(cudaStreamQuery(streams[1]), cudaErrorNotReady);

    check::Array<int> other(std::vector<int>(n, 5));  // streams 2 and 3 are not held up
    add<<<1, 256, 0, streams[2]>>>(other.data, n / 2, 1);
    add<<<1, 256, 0, streams[3]>>>(other.data + n / 2, n - n / 2, 2);
    CUDA_OK(cudaStreamSynchronize(streams[2]));
    CUDA_OK(cudaStreamSynchronize(streams[3]));
    std::vector<int> expected(n, 6);
    for (int i = n / 2; i < n; ++i) expected[i] = 7;
    EXPECT_EQUAL(other.host(), expected);

    gate.set_value();
    CUDA_OK(cudaEventRecord(end, streams[1]));
    CUDA_OK(cudaEventSynchronize(end));
    float elapsed_ms = -1;
    CUDA_OK(cudaEventElapsedTime(&elapsed_ms, start, end));
    EXPECT(elapsed_ms > 0 && elapsed_ms < 60'000);
    EXPECT_EQUAL(doubled.host(), std::vector<int>(n, 2 * 46));
    for (auto& stream : streams) CUDA_OK(cudaStreamDestroy(stream));
    for (auto event : {start, end, produced}) CUDA_OK(cudaEventDestroy(event));
    return check::finish();
}
