// Lists the devices as NVIDIA's own sample does, and checks that what they say of themselves hangs together.
#include "check.hpp"

#include <cstring>

int attribute(cudaDeviceAttr which, int device) {
    int value = -1;
    CUDA_OK(cudaDeviceGetAttribute(&value, which, device));
    return value;
}

void describe(int device) {
    cudaDeviceProp properties;
    CUDA_OK(cudaGetDeviceProperties(&properties, device));
    CUDA_OK(cudaSetDevice(device));
    size_t free = 0, total = 0;
    CUDA_OK(cudaMemGetInfo(&free, &total));
    std::printf("device %d: %s, compute capability %d.%d, %d multiprocessors, %zu MiB, %zu MiB free\n", device,
                properties.name, properties.major, properties.minor, properties.multiProcessorCount,
                properties.totalGlobalMem >> 20, free >> 20);
    EXPECT(std::strlen(properties.name) > 0);
    EXPECT(properties.major >= 7 && properties.minor >= 0);
    EXPECT(properties.multiProcessorCount > 0 && properties.warpSize == 32);
    EXPECT(properties.maxThreadsPerBlock == 1024 && properties.maxThreadsDim[2] == 64);
    EXPECT(properties.maxThreadsPerMultiProcessor >= properties.maxThreadsPerBlock);
    EXPECT(properties.sharedMemPerBlock == 49'152 && properties.sharedMemPerBlockOptin >= properties.sharedMemPerBlock);
    EXPECT(properties.regsPerBlock >= 32'768 && properties.totalConstMem == 65'536);
    EXPECT(free > 0 && free <= total && total <= properties.totalGlobalMem);
    EXPECT(attribute(cudaDevAttrComputeCapabilityMajor, device) == properties.major);
    EXPECT(attribute(cudaDevAttrMultiProcessorCount, device) == properties.multiProcessorCount);
    EXPECT(attribute(cudaDevAttrMaxThreadsPerBlock, device) == properties.maxThreadsPerBlock);
    char bus_id[32] = {};
    int same = -1;
    CUDA_OK(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device));
    CUDA_OK(cudaDeviceGetByPCIBusId(&same, bus_id));
    EXPECT(same == device);
}

__global__ void set(int* out, int value) {
    *out = value;
}

int main() {
    int count = 0, driver = 0, runtime = 0;
    CUDA_OK(cudaGetDeviceCount(&count));
    CUDA_OK(cudaDriverGetVersion(&driver));
    CUDA_OK(cudaRuntimeGetVersion(&runtime));
    std::printf("%d devices, driver %d, runtime %d\n", count, driver, runtime);
    // A runtime runs on any driver of its major version, a program on any runtime that is no older than its compiler.
    EXPECT(count > 0 && driver / 1000 >= runtime / 1000 && runtime >= CUDART_VERSION);
    for (int device = 0; device < count; ++device) {
        describe(device);
        check::Array<int> out(1);  // on this device: describe() made it current
        set<<<1, 1>>>(out.data, 70 + device);
        CUDA_LAUNCHED();
        EXPECT(out.host()[0] == 70 + device);
    }
    return check::finish();
}
