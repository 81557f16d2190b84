// Pools: what each attribute says, what they keep and let go of, and the default ones of each place.
#include "check.hpp"

static size_t attribute(cudaMemPool_t pool, cudaMemPoolAttr which) {
    size_t value = 0;
    CUDA_OK(cudaMemPoolGetAttribute(pool, which, &value));
    return value;
}

constexpr size_t everything = ~size_t{0};

// A pool of the first device that gives nothing back by itself.
static cudaMemPool_t keeping_pool() {
    cudaMemPoolProps props{};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool = nullptr;
    CUDA_OK(cudaMemPoolCreate(&pool, &props));
    size_t keep = everything;
    CUDA_OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    return pool;
}

static void own(cudaStream_t stream) {
    cudaMemPool_t pool = keeping_pool();
    EXPECT(attribute(pool, cudaMemPoolAttrReleaseThreshold) == everything);
    for (auto which : {cudaMemPoolReuseFollowEventDependencies, cudaMemPoolReuseAllowOpportunistic,
                       cudaMemPoolReuseAllowInternalDependencies}) {
        int on = 0;
        CUDA_OK(cudaMemPoolGetAttribute(pool, which, &on));
        EXPECT(on == 1);
        on = 0;
        CUDA_OK(cudaMemPoolSetAttribute(pool, which, &on));
        on = 7;
        CUDA_OK(cudaMemPoolGetAttribute(pool, which, &on));
        EXPECT(on == 0);
    }
    const size_t bytes = size_t{3} << 20;
    void *one = nullptr, *other = nullptr;
    CUDA_OK(cudaMallocFromPoolAsync(&one, bytes, pool, stream));
    CUDA_OK(cudaMallocFromPoolAsync(&other, bytes, pool, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    EXPECT(attribute(pool, cudaMemPoolAttrUsedMemCurrent) >= 2 * bytes);
    EXPECT(attribute(pool, cudaMemPoolAttrReservedMemCurrent) >= attribute(pool, cudaMemPoolAttrUsedMemCurrent));
    CUDA_OK(cudaFreeAsync(one, stream));
    CUDA_OK(cudaFreeAsync(other, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    EXPECT(attribute(pool, cudaMemPoolAttrUsedMemCurrent) == 0);
    EXPECT(attribute(pool, cudaMemPoolAttrUsedMemHigh) >= 2 * bytes);
    EXPECT(attribute(pool, cudaMemPoolAttrReservedMemCurrent) >= 2 * bytes);  // kept
    size_t none = 0;
    CUDA_OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &none));
    EXPECT(attribute(pool, cudaMemPoolAttrUsedMemHigh) == 0);
    CUDA_OK(cudaMemPoolTrimTo(pool, 0));
    EXPECT(attribute(pool, cudaMemPoolAttrReservedMemCurrent) == 0);
    CUDA_OK(cudaMemPoolDestroy(pool));
}

static void defaults(cudaStream_t stream) {
    cudaMemPool_t pool = nullptr, same = nullptr, current = nullptr;
    CUDA_OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    cudaMemLocation here{};
    here.type = cudaMemLocationTypeDevice;
    CUDA_OK(cudaMemGetDefaultMemPool(&same, &here, cudaMemAllocationTypePinned));
    EXPECT(pool == same);
    CUDA_OK(cudaDeviceGetMemPool(&current, 0));
    EXPECT(pool == current);
    cudaMemPoolProps props{};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t own = nullptr;
    CUDA_OK(cudaMemPoolCreate(&own, &props));
    CUDA_OK(cudaDeviceSetMemPool(0, own));
    void* memory = nullptr;
    CUDA_OK(cudaMallocAsync(&memory, 1000, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    EXPECT(attribute(own, cudaMemPoolAttrUsedMemCurrent) >= 1000);
    CUDA_OK(cudaFreeAsync(memory, stream));
    CUDA_OK(cudaDeviceSetMemPool(0, pool));
    CUDA_OK(cudaMemPoolDestroy(own));
    cudaMemAccessFlags flags{};
    CUDA_OK(cudaMemPoolGetAccess(&flags, pool, &here));
    EXPECT(flags == cudaMemAccessFlagsProtReadWrite);
}

__global__ void wait_for(const volatile int* word) {
    while (*word == 0) {
    }
}

// The GPU waits for the program, so nothing that the program does before may wait for the GPU.
static void trim_while_a_kernel_waits(cudaStream_t stream) {
    cudaMemPool_t pool = keeping_pool();
    volatile int* word = nullptr;
    int* on_gpu = nullptr;
    CUDA_OK(cudaHostAlloc((void**)&word, sizeof(int), cudaHostAllocMapped));
    CUDA_OK(cudaHostGetDevicePointer((void**)&on_gpu, (void*)word, 0));
    *word = 1;
    wait_for<<<1, 1, 0, stream>>>(on_gpu);  // loaded by now
    void *spare = nullptr, *memory = nullptr;
    CUDA_OK(cudaMallocFromPoolAsync(&spare, size_t{16} << 20, pool, stream));
    CUDA_OK(cudaMallocFromPoolAsync(&memory, size_t{64} << 20, pool, stream));
    CUDA_OK(cudaFreeAsync(spare, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    *word = 0;
    wait_for<<<1, 1, 0, stream>>>(on_gpu);
    CUDA_OK(cudaFreeAsync(memory, stream));
    const size_t before = attribute(pool, cudaMemPoolAttrReservedMemCurrent);
    CUDA_OK(cudaMemPoolTrimTo(pool, 0));
    EXPECT(attribute(pool, cudaMemPoolAttrReservedMemCurrent) >= size_t{64} << 20);
    EXPECT(attribute(pool, cudaMemPoolAttrReservedMemCurrent) <= before);
    *word = 1;
    CUDA_OK(cudaStreamSynchronize(stream));
    CUDA_OK(cudaMemPoolTrimTo(pool, 0));
    EXPECT(attribute(pool, cudaMemPoolAttrReservedMemCurrent) == 0);
    CUDA_OK(cudaMemPoolDestroy(pool));
    CUDA_OK(cudaFreeHost((void*)word));
}

int main() {
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    own(stream);
    defaults(stream);
    trim_while_a_kernel_waits(stream);
    CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
