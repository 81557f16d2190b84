// A process that shares memory and an event with another one is killed in the middle of its kernel: the other one's
// waits end, what it has opened stays until it closes that, and then nothing is left to be opened.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"

constexpr size_t bytes = size_t(64) << 20;

__global__ void spin(volatile int* stop) {
    while (!*stop) {
    }
}

struct Shared {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
};

static void own(int line) {
    int* values = nullptr;
    cudaEvent_t event{};
    Shared shared{};
    CUDA_OK(cudaMalloc(&values, bytes));
    CUDA_OK(cudaMemset(values, 0, bytes));
    CUDA_OK(cudaIpcGetMemHandle(&shared.memory, values));
    CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
    CUDA_OK(cudaIpcGetEventHandle(&shared.event, event));
    CUDA_OK(cudaDeviceSynchronize());
    spin<<<1, 1>>>(values);
    CUDA_OK(cudaEventRecord(event));
    if (write(line, &shared, sizeof shared) != sizeof shared) std::exit(3);
    pause();
}

int main() {
    int ends[2];
    if (pipe(ends) != 0) return 2;
    pid_t owner = fork();
    if (owner == 0) own(ends[1]);
    Shared shared{};
    if (read(ends[0], &shared, sizeof shared) != sizeof shared) return 4;
    int* values = nullptr;
    cudaEvent_t event{};
    CUDA_OK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&values), shared.memory, cudaIpcMemLazyEnablePeerAccess));
    CUDA_OK(cudaIpcOpenEventHandle(&event, shared.event));
    EXPECT(cudaEventQuery(event) == cudaErrorNotReady);
    (void)cudaGetLastError();
    CUDA_OK(cudaStreamWaitEvent(nullptr, event, 0));
    kill(owner, SIGKILL);
    waitpid(owner, nullptr, 0);
    CUDA_OK(cudaEventSynchronize(event));
    CUDA_OK(cudaMemset(values, 7, bytes));
    int value = 0;
    CUDA_OK(cudaMemcpy(&value, values + 9, sizeof value, cudaMemcpyDeviceToHost));
    EXPECT(value == 0x07070707);
    CUDA_OK(cudaIpcCloseMemHandle(values));
    auto again = cudaIpcOpenMemHandle(reinterpret_cast<void**>(&values), shared.memory, cudaIpcMemLazyEnablePeerAccess);
    EXPECT(again == cudaErrorInvalidValue);
    return check::finish();
}
