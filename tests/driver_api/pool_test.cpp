// Memory allocated and freed in stream order, from the default pool and from one's own.
#include "gpu.hpp"

using namespace driver_api;

TEST_CASE("memory is allocated, used and freed in stream order", "[pool]") {
    Gpu gpu;
    Module module;
    Stream stream;
    CHECK(gpu.attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == 1);
    for (int round = 0; round < 5; ++round) {
        CUdeviceptr address = 0;
        int value = -1;
        CU_OK(cu.cuMemAllocAsync(&address, 4000, stream));
        CHECK(address != 0);
        CU_OK(launch(module.function("store"), stream, address, round));
        CU_OK(cu.cuMemcpyDtoHAsync(&value, address, sizeof(value), stream));
        CU_OK(cu.cuMemFreeAsync(address, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(value == round);
    }
}

TEST_CASE("memory from a pool may be freed like other memory", "[pool]") {
    Gpu gpu;
    Stream stream;
    CUdeviceptr address = 0;
    CU_OK(cu.cuMemAllocAsync(&address, 4000, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_OK(cu.cuMemFree(address));
    CU_CHECK(cu.cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a pool of one's own counts what it holds", "[pool]") {
    Gpu gpu;
    Stream stream;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = gpu.device;
    CUmemoryPool pool = nullptr, usual = nullptr;
    CU_OK(cu.cuMemPoolCreate(&pool, &properties));
    CU_OK(cu.cuDeviceGetDefaultMemPool(&usual, gpu.device));
    CHECK(pool != usual);
    CUdeviceptr address = 0;
    cuuint64_t used = 0;
    CU_OK(cu.cuMemAllocFromPoolAsync(&address, 1 << 20, pool, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_OK(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK(used >= 1 << 20);
    CU_OK(cu.cuMemsetD8(address, 1, 1 << 20));
    CU_OK(cu.cuMemFreeAsync(address, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_OK(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK(used == 0);
    CU_OK(cu.cuMemPoolTrimTo(pool, 0));
    CU_OK(cu.cuMemPoolDestroy(pool));
}

TEST_CASE("stream-ordered allocations that cannot be are refused at the call", "[pool]") {
    Gpu gpu;
    Stream stream;
    CUdeviceptr address = 0;
    size_t free_bytes = 0, total = 0;
    CU_OK(cu.cuMemGetInfo(&free_bytes, &total));
    CU_CHECK(cu.cuMemAllocAsync(&address, 2 * total, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CU_CHECK(cu.cuMemFreeAsync(0x1234, stream), CUDA_ERROR_INVALID_VALUE);
}
