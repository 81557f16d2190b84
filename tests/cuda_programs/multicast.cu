// All GPUs sum what each of them has, as NCCL's NVLS does: each memory is bound to one multicast object, a kernel on each GPU
// reads its part of all copies as one sum and writes it to all copies at once, and the kernels wait for each other by
// counters that they reach the same way. For GPUs with NVLink multicast; there must be more than one.
#include <cuda.h>

#include "check.hpp"

constexpr int count = 1 << 18;  // floats
constexpr int threads = 256;

#define DRIVER_OK(call) check::that((call) == CUDA_SUCCESS, #call, __LINE__)

__device__ void add_to_all(unsigned* everywhere, unsigned value) {
    asm volatile("multimem.red.release.sys.global.add.u32 [%0], %1;" ::"l"(everywhere), "r"(value) : "memory");
}
__device__ unsigned look(const unsigned* here) {
    unsigned value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(here) : "memory");
    return value;
}

// All kernels get here before any goes on. `round` counts from 1.
__device__ void meet(unsigned* everywhere, const unsigned* here, unsigned kernels, unsigned round) {
    __syncthreads();
    if (threadIdx.x == 0) {
        add_to_all(everywhere, 1);
        while (look(here) < kernels * round) {
        }
    }
    __syncthreads();
}

// `everywhere`: the multicast address of `here`. Behind the floats is the counter. `bad` counts what is not there when all
// have written.
__global__ void sum_of_all(float* everywhere, float* here, const float* expected, int rank, int ranks, unsigned* bad) {
    auto* counters = reinterpret_cast<unsigned*>(everywhere + count);
    auto* counter = reinterpret_cast<unsigned*>(here + count);
    meet(counters, counter, ranks, 1);
    int part = count / 4 / ranks, last = rank + 1 == ranks ? count / 4 : (rank + 1) * part;
    for (int i = rank * part + threadIdx.x; i < last; i += threads) {
        float x, y, z, w;
        auto* at = everywhere + 4 * i;
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
                     : "l"(at)
                     : "memory");
        asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(x), "f"(y), "f"(z),
                     "f"(w)
                     : "memory");
    }
    meet(counters, counter, ranks, 2);
    for (int i = threadIdx.x; i < count; i += threads)
        if (fabsf(here[i] - expected[i]) > 1e-5f) atomicAdd(bad, 1);
}

// One GPU's copy.
struct Copy {
    CUmemGenericAllocationHandle memory{};
    CUdeviceptr address{};
};

static CUmemAccessDesc access_of(int device) {
    return {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

static Copy make_copy(int device, size_t bytes) {
    Copy copy;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    auto access = access_of(device);
    DRIVER_OK(cuMemCreate(&copy.memory, bytes, &properties, 0));
    DRIVER_OK(cuMemAddressReserve(&copy.address, bytes, 0, 0, 0));
    DRIVER_OK(cuMemMap(copy.address, bytes, 0, copy.memory, 0));
    DRIVER_OK(cuMemSetAccess(copy.address, bytes, &access, 1));
    return copy;
}

static void all_reduce(int gpus) {
    CUmulticastObjectProp properties{};
    properties.numDevices = gpus;
    properties.size = 1;
    size_t granularity = 0, bytes = count * sizeof(float) + sizeof(unsigned);
    DRIVER_OK(cuMulticastGetGranularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_RECOMMENDED));
    properties.size = bytes = (bytes + granularity - 1) / granularity * granularity;
    CUmemGenericAllocationHandle team{};
    DRIVER_OK(cuMulticastCreate(&team, &properties));
    for (int gpu = 0; gpu < gpus; ++gpu) DRIVER_OK(cuMulticastAddDevice(team, gpu));

    std::vector<float> sum(count);
    std::vector<Copy> copies;
    std::vector<float*> expected(gpus);
    std::vector<unsigned*> bad(gpus);
    for (int gpu = 0; gpu < gpus; ++gpu) {
        CUDA_OK(cudaSetDevice(gpu));
        copies.push_back(make_copy(gpu, bytes));
        auto values = check::random_floats(count, 100 + gpu);
        for (int i = 0; i < count; ++i) sum[i] += values[i];
        auto* here = reinterpret_cast<void*>(copies[gpu].address);
        CUDA_OK(cudaMemset(here, 0, bytes));
        CUDA_OK(cudaMemcpy(here, values.data(), count * sizeof(float), cudaMemcpyHostToDevice));
        DRIVER_OK(cuMulticastBindMem(team, 0, copies[gpu].memory, 0, bytes, 0));
    }
    CUdeviceptr everywhere = 0;
    DRIVER_OK(cuMemAddressReserve(&everywhere, bytes, 0, 0, 0));
    DRIVER_OK(cuMemMap(everywhere, bytes, 0, team, 0));
    for (int gpu = 0; gpu < gpus; ++gpu) {
        auto access = access_of(gpu);
        DRIVER_OK(cuMemSetAccess(everywhere, bytes, &access, 1));
        CUDA_OK(cudaSetDevice(gpu));
        CUDA_OK(cudaMalloc(&expected[gpu], count * sizeof(float)));
        CUDA_OK(cudaMemcpy(expected[gpu], sum.data(), count * sizeof(float), cudaMemcpyHostToDevice));
        CUDA_OK(cudaMalloc(&bad[gpu], sizeof(unsigned)));
        CUDA_OK(cudaMemset(bad[gpu], 0, sizeof(unsigned)));
    }
    for (int gpu = 0; gpu < gpus; ++gpu) {
        CUDA_OK(cudaSetDevice(gpu));
        sum_of_all<<<1, threads>>>(reinterpret_cast<float*>(everywhere), reinterpret_cast<float*>(copies[gpu].address),
                                   expected[gpu], gpu, gpus, bad[gpu]);
        CUDA_LAUNCHED();
    }
    for (int gpu = 0; gpu < gpus; ++gpu) {
        CUDA_OK(cudaSetDevice(gpu));
        unsigned seen_bad = 1;
        CUDA_OK(cudaMemcpy(&seen_bad, bad[gpu], sizeof seen_bad, cudaMemcpyDeviceToHost));
        EXPECT(seen_bad == 0);
        std::vector<float> values(count);
        CUDA_OK(cudaMemcpy(values.data(), reinterpret_cast<void*>(copies[gpu].address), count * sizeof(float),
                           cudaMemcpyDeviceToHost));
        for (int i = 0; i < count; ++i) EXPECT_NEAR(values[i], sum[i], 1e-5, i);
    }
    DRIVER_OK(cuMemUnmap(everywhere, bytes));
    DRIVER_OK(cuMemAddressFree(everywhere, bytes));
    for (int gpu = 0; gpu < gpus; ++gpu) {
        DRIVER_OK(cuMulticastUnbind(team, gpu, 0, bytes));
        DRIVER_OK(cuMemUnmap(copies[gpu].address, bytes));
        DRIVER_OK(cuMemAddressFree(copies[gpu].address, bytes));
        DRIVER_OK(cuMemRelease(copies[gpu].memory));
    }
    DRIVER_OK(cuMemRelease(team));
}

int main() {
    int gpus = 0, all_have_it = 1;
    CUDA_OK(cudaGetDeviceCount(&gpus));
    for (int gpu = 0; gpu < gpus; ++gpu) {
        int has_it = 0;
        DRIVER_OK(cuDeviceGetAttribute(&has_it, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, gpu));
        all_have_it &= has_it;
    }
    if (gpus > 1 && all_have_it)
        all_reduce(gpus);
    else
        std::printf("there are no two GPUs with multicast\n");
    return check::finish();
}
