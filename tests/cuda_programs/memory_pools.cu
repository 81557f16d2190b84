// Pools: what each attribute says, what they keep and let go of, and the default ones of each place.
#include "check.hpp"

static size_t attribute(cudaMemPool_t pool, cudaMemPoolAttr which) {
    size_t value = 0;
    CUDA_OK(cudaMemPoolGetAttribute(pool, which, &value));
    return value;
}

static void own(cudaStream_t stream) {
    cudaMemPoolProps props{};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool = nullptr;
    CUDA_OK(cudaMemPoolCreate(&pool, &props));
    size_t keep = ~size_t{0};
    CUDA_OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    EXPECT(attribute(pool, cudaMemPoolAttrReleaseThreshold) == keep);
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

int main() {
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    own(stream);
    defaults(stream);
    CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
