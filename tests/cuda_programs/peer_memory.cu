// Two GPUs: copies between them by name and by address, kernels that use the other's memory, events that order both. There
// must be two.
#include "check.hpp"

__global__ void add_other(float* to, const float* other, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] += other[i];
}

int main() {
    const int n = 10'000;
    int gpus = 0, can = 0;
    CUDA_OK(cudaGetDeviceCount(&gpus));
    if (!EXPECT(gpus >= 2)) return check::finish();
    auto first = check::random_floats(n, 1), second = check::random_floats(n, 2);
    std::vector<float> sum(n), got(n);
    for (int i = 0; i < n; ++i) sum[i] = first[i] + second[i];

    CUDA_OK(cudaSetDevice(0));
    check::Array<float> here(first);
    CUDA_OK(cudaSetDevice(1));
    check::Array<float> there(second), copy(n);
    cudaStream_t stream;
    cudaEvent_t done;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    cudaPointerAttributes attributes{};
    CUDA_OK(cudaPointerGetAttributes(&attributes, here.data));
    EXPECT(attributes.device == 0);
    CUDA_OK(cudaPointerGetAttributes(&attributes, there.data));
    EXPECT(attributes.device == 1);

    CUDA_OK(cudaMemcpyPeerAsync(copy.data, 1, here.data, 0, n * sizeof(float), stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    EXPECT_EQUAL(copy.host(), first);
    CUDA_OK(cudaMemcpy(copy.data, there.data, n * sizeof(float), cudaMemcpyDefault));
    EXPECT_EQUAL(copy.host(), second);
    cudaMemcpy3DPeerParms box{};
    box.srcDevice = 0, box.dstDevice = 1;
    box.srcPtr = make_cudaPitchedPtr(here.data, 100 * sizeof(float), 100, 100);
    box.dstPtr = make_cudaPitchedPtr(copy.data, 100 * sizeof(float), 100, 100);
    box.extent = make_cudaExtent(50 * sizeof(float), 100, 1);
    CUDA_OK(cudaMemcpy3DPeer(&box));
    got = copy.host();
    for (int i = 0; i < n; ++i) EXPECT_NEAR(got[i], i % 100 < 50 ? first[i] : second[i], 0, i);

    CUDA_OK(cudaDeviceCanAccessPeer(&can, 1, 0));
    if (can) {
        CUDA_OK(cudaDeviceEnablePeerAccess(0, 0));
        EXPECT_ERROR(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
        (void)cudaGetLastError();
        add_other<<<4, 256, 0, stream>>>(there.data, here.data, n);
        CUDA_LAUNCHED();
        CUDA_OK(cudaEventRecord(done, stream));
        CUDA_OK(cudaSetDevice(0));
        CUDA_OK(cudaStreamWaitEvent(nullptr, done, 0));
        CUDA_OK(cudaMemcpyAsync(got.data(), there.data, n * sizeof(float), cudaMemcpyDefault, nullptr));
        CUDA_OK(cudaStreamSynchronize(nullptr));
        EXPECT_EQUAL(got, sum);
        CUDA_OK(cudaSetDevice(1));
        CUDA_OK(cudaDeviceDisablePeerAccess(0));
        EXPECT_ERROR(cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);
        (void)cudaGetLastError();
    }
    CUDA_OK(cudaEventDestroy(done));
    CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
