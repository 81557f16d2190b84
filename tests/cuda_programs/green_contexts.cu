// Two halves of a GPU's multiprocessors, each with a stream and kernels of the runtime's: the runtime finds its own
// context behind a green one.
#include <cuda.h>

#include "check.hpp"

__device__ int launches;

__global__ void square(const float* in, float* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = in[i] * in[i];
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(&launches, 1);
}

#define DRIVER_OK(call) EXPECT((call) == CUDA_SUCCESS)

struct Half {
    CUgreenCtx green = nullptr;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
};

static std::vector<Half> halves_of(CUdevice device) {
    CUdevResource all{}, groups[2]{}, rest{};
    unsigned count = 2;
    DRIVER_OK(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    DRIVER_OK(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, all.sm.smCount / 2 / 8 * 8));
    EXPECT(count == 2 && groups[0].sm.smCount == groups[1].sm.smCount);
    std::vector<Half> halves(2);
    for (int i = 0; i < 2; ++i) {
        CUdevResourceDesc description = nullptr;
        DRIVER_OK(cuDevResourceGenerateDesc(&description, &groups[i], 1));
        DRIVER_OK(cuGreenCtxCreate(&halves[i].green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
        DRIVER_OK(cuCtxFromGreenCtx(&halves[i].context, halves[i].green));
        DRIVER_OK(cuGreenCtxStreamCreate(&halves[i].stream, halves[i].green, CU_STREAM_NON_BLOCKING, 0));
    }
    return halves;
}

int main() {
    constexpr int n = 40000;
    std::vector<float> in(n), expected(n), out(n);
    for (int i = 0; i < n; ++i) in[i] = static_cast<float>(i % 1000), expected[i] = in[i] * in[i];
    float *from = nullptr, *to[3] = {};
    CUDA_OK(cudaSetDevice(0));
    CUDA_OK(cudaMalloc(&from, n * sizeof(float)));
    for (auto& one : to) CUDA_OK(cudaMalloc(&one, n * sizeof(float)));
    CUDA_OK(cudaMemcpy(from, in.data(), n * sizeof(float), cudaMemcpyHostToDevice));

    auto halves = halves_of(0);
    for (int i = 0; i < 2; ++i) square<<<64, 128, 0, halves[i].stream>>>(from, to[i], n);
    CUDA_OK(cudaGetLastError());
    // With one half current: the runtime's null stream, and memory as before.
    DRIVER_OK(cuCtxPushCurrent(halves[1].context));
    square<<<64, 128>>>(from, to[2], n);
    CUDA_OK(cudaGetLastError());
    CUDA_OK(cudaDeviceSynchronize());
    void* more = nullptr;
    CUDA_OK(cudaMalloc(&more, 1024));
    CUcontext current = nullptr;
    DRIVER_OK(cuCtxPopCurrent(&current));
    EXPECT(current == halves[1].context);
    CUDA_OK(cudaFree(more));

    // One half waits for the other.
    cudaEvent_t event;
    CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    DRIVER_OK(cuGreenCtxRecordEvent(halves[0].green, event));
    DRIVER_OK(cuGreenCtxWaitEvent(halves[1].green, event));
    CUDA_OK(cudaMemsetAsync(from, 0, n * sizeof(float), halves[1].stream));
    for (auto& half : halves) {
        CUDA_OK(cudaStreamSynchronize(half.stream));
        CUDA_OK(cudaStreamDestroy(half.stream));
        DRIVER_OK(cuGreenCtxDestroy(half.green));
    }
    for (auto* one : to) {
        CUDA_OK(cudaMemcpy(out.data(), one, n * sizeof(float), cudaMemcpyDeviceToHost));
        EXPECT_EQUAL(out, expected);
    }
    int counted = 0;
    CUDA_OK(cudaMemcpyFromSymbol(&counted, launches, sizeof counted));
    EXPECT(counted == 3);
    CUDA_OK(cudaEventDestroy(event));
    return check::finish();
}
