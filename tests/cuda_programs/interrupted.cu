// Signals that interrupt whatever the program waits for, as profilers and the runtimes of some languages send them all the
// time: no call fails of them, the first one neither, and the data is right.
#include <sys/time.h>
#include <csignal>
#include <thread>

#include "check.hpp"

static volatile std::sig_atomic_t signals = 0;

static void count(int) {
    signals = signals + 1;
}

// Without SA_RESTART, so that calls of the system end early.
static void send_signals_every(long microseconds) {
    struct sigaction action {};
    action.sa_handler = count;
    sigaction(SIGALRM, &action, nullptr);
    itimerval timer{{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, nullptr);
}

__global__ void add_one(int* values, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] += 1;
}
__global__ void nap() {
    for (int i = 0; i < 20; ++i) __nanosleep(100000);
}

static void in_a_thread(int* device) {
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    add_one<<<1, 32, 0, stream>>>(device, 32);
    CUDA_OK(cudaStreamSynchronize(stream));
    CUDA_OK(cudaStreamDestroy(stream));
}

int main() {
    send_signals_every(500);
    const int count = 1 << 18;
    std::vector<int> host(count);
    check::Array<int> device(count);
    int *pinned = nullptr, *managed = nullptr;
    CUDA_OK(cudaMallocHost(&pinned, count * sizeof(int)));
    CUDA_OK(cudaMallocManaged(&managed, 4096 * sizeof(int)));
    for (int round = 0; round < 8; ++round) {
        for (int i = 0; i < count; ++i) host[i] = i * round;
        CUDA_OK(cudaMemcpy(device.data, host.data(), count * sizeof(int), cudaMemcpyHostToDevice));
        managed[round] = round;
        add_one<<<16, 256>>>(managed, 4096);
        nap<<<1, 1>>>();
        add_one<<<1, 256>>>(device.data, 256);
        CUDA_OK(cudaDeviceSynchronize());
        for (int i = 0; i < 5; ++i) std::thread(in_a_thread, device.data).join();
        CUDA_OK(cudaMemcpyAsync(pinned, device.data, count * sizeof(int), cudaMemcpyDeviceToHost));
        CUDA_OK(cudaStreamSynchronize(nullptr));
        EXPECT(pinned[5] == 5 * round + 6);
        EXPECT(pinned[count - 1] == (count - 1) * round);
        EXPECT(managed[round] == round + 1);
    }
    EXPECT(signals > 0);
    return check::finish();
}
