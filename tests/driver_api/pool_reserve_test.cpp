// What a memory pool holds of the device beyond what is in use.
#include "gpu.hpp"

using namespace driver_api;

namespace {

class Pool {
public:
    explicit Pool(const Gpu& gpu) {
        CUmemPoolProps properties{};
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = gpu.device;
        CU_OK(cu.cuMemPoolCreate(&handle, &properties));
    }
    ~Pool() { cu.cuMemPoolDestroy(handle); }
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    cuuint64_t amount(CUmemPool_attribute which) const {
        cuuint64_t bytes = ~cuuint64_t{0};
        CU_OK(cu.cuMemPoolGetAttribute(handle, which, &bytes));
        return bytes;
    }
    void set(CUmemPool_attribute which, cuuint64_t bytes) const {
        CU_OK(cu.cuMemPoolSetAttribute(handle, which, &bytes));
    }
    cuuint64_t reserved() const { return amount(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
    cuuint64_t used() const { return amount(CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }
    CUdeviceptr allocate(size_t bytes, CUstream stream) const {
        CUdeviceptr address = 0;
        CU_OK(cu.cuMemAllocFromPoolAsync(&address, bytes, handle, stream));
        return address;
    }

    CUmemoryPool handle = nullptr;
};

constexpr cuuint64_t mib = 1 << 20;

}  // namespace

TEST_CASE("a pool reserves in granules and lets go of what is unused when the program waits", "[pool]") {
    Gpu gpu;
    Stream stream;
    Pool pool(gpu);
    CHECK(pool.used() == 0);
    CUdeviceptr address = pool.allocate(1000, stream);
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(pool.used() >= 1000);
    CHECK(pool.used() <= 4096);
    CHECK(pool.reserved() >= 2 * mib);
    CHECK(pool.reserved() % (2 * mib) == 0);
    CUdeviceptr large = pool.allocate(100 * mib, stream);
    CHECK(pool.reserved() >= 100 * mib);
    CHECK(pool.reserved() % (2 * mib) == 0);
    CU_OK(cu.cuMemFreeAsync(large, stream));
    CU_OK(cu.cuMemFreeAsync(address, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(pool.used() == 0);
    CHECK(pool.reserved() == 0);  // the release threshold is 0 unless the program says otherwise
    CHECK(pool.amount(CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 100 * mib + 1000);
    CHECK(pool.amount(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= pool.amount(CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    pool.set(CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
    CHECK(pool.amount(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
    CHECK(pool.amount(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 100 * mib);
    pool.set(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
    CHECK(pool.amount(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 0);
}

TEST_CASE("the release threshold keeps memory in the pool until it is trimmed", "[pool]") {
    Gpu gpu;
    Stream stream;
    Pool pool(gpu);
    pool.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~cuuint64_t{0});
    CU_OK(cu.cuMemFreeAsync(pool.allocate(100 * mib, stream), stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(pool.used() == 0);
    CHECK(pool.reserved() >= 100 * mib);
    CU_OK(cu.cuMemPoolTrimTo(pool.handle, 40 * mib));
    CHECK(pool.reserved() >= 40 * mib);
    CHECK(pool.reserved() < 100 * mib);
    CU_OK(cu.cuMemPoolTrimTo(pool.handle, 0));
    CHECK(pool.reserved() == 0);
}

TEST_CASE("memory that is freed behind work under way stays in the pool when that is trimmed", "[pool]") {
    Gpu gpu;
    Stream stream;
    Pool pool(gpu);
    pool.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~cuuint64_t{0});
    auto address = pool.allocate(100 * mib, stream);
    {
        Gate gate(stream);
        CU_OK(cu.cuMemFreeAsync(address, stream));
        CU_OK(cu.cuMemPoolTrimTo(pool.handle, 0));
        CHECK(pool.reserved() >= 100 * mib);
    }
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_OK(cu.cuMemPoolTrimTo(pool.handle, 0));
    CHECK(pool.reserved() == 0);
}

TEST_CASE("what a pool keeps is not called free", "[pool]") {
    Gpu gpu;
    Stream stream;
    Pool pool(gpu);
    size_t before = 0, kept = 0, after = 0, total = 0;
    CU_OK(cu.cuCtxSynchronize());
    CU_OK(cu.cuMemGetInfo(&before, &total));
    pool.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~cuuint64_t{0});
    CU_OK(cu.cuMemFreeAsync(pool.allocate(100 * mib, stream), stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_OK(cu.cuMemGetInfo(&kept, &total));
    CHECK(kept + pool.reserved() == before);
    CU_OK(cu.cuMemPoolTrimTo(pool.handle, 0));
    CU_OK(cu.cuMemGetInfo(&after, &total));
    CHECK(after == before);
}

TEST_CASE("what a pool keeps is there for an allocation that needs it", "[pool][full]") {
    Gpu gpu;
    Stream stream;
    Pool pool(gpu);
    pool.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~cuuint64_t{0});
    size_t free_bytes = 0, total = 0;
    CU_OK(cu.cuMemGetInfo(&free_bytes, &total));
    size_t most = free_bytes / 4 * 3;
    CU_OK(cu.cuMemFreeAsync(pool.allocate(most, stream), stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    REQUIRE(pool.reserved() >= most);
    CUdeviceptr address = 0;
    CU_OK(cu.cuMemAlloc(&address, most));
    CHECK(pool.reserved() < most);
    CU_OK(cu.cuMemFree(address));
}

TEST_CASE("memory of a pool that was destroyed goes back when it is freed", "[pool][full]") {
    Gpu gpu;
    Stream stream;
    size_t free_bytes = 0, total = 0;
    CU_OK(cu.cuMemGetInfo(&free_bytes, &total));
    for (int round = 0; round < 12; ++round) {  // more, all in all, than there is
        CUdeviceptr address = 0;
        {
            Pool pool(gpu);
            address = pool.allocate(total / 10, stream);
        }
        CU_OK(cu.cuMemsetD8Async(address, 1, mib, stream));
        CU_OK(cu.cuMemFreeAsync(address, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
    }
}

TEST_CASE("a pool holds no more than it was made for", "[pool]") {
    Gpu gpu;
    Stream stream;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    properties.maxSize = size_t{64} << 20;
    CUmemoryPool pool = nullptr;
    CU_OK(cu.cuMemPoolCreate(&pool, &properties));
    CUdeviceptr first = 0, second = 0;
    CU_CHECK(cu.cuMemAllocFromPoolAsync(&first, size_t{128} << 20, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CU_OK(cu.cuMemAllocFromPoolAsync(&first, size_t{40} << 20, pool, stream));
    CU_CHECK(cu.cuMemAllocFromPoolAsync(&second, size_t{40} << 20, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CU_OK(cu.cuMemFreeAsync(first, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_OK(cu.cuMemAllocFromPoolAsync(&second, size_t{40} << 20, pool, stream));
    CU_OK(cu.cuMemFreeAsync(second, stream));
    CU_OK(cu.cuMemPoolDestroy(pool));
}
