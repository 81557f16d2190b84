// Memory allocated and freed in stream order, from the default pool and from one's own.
#include <unistd.h>

#include <algorithm>

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

TEST_CASE("memory of a pool outlives the context that it was allocated in", "[pool]") {
    Gpu gpu;
    CUmemoryPool pool = nullptr;
    CU_OK(cu.cuDeviceGetDefaultMemPool(&pool, gpu.device));
    auto used_by_pool = [&] {
        cuuint64_t used = 0;
        CU_OK(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
        return used;
    };
    const auto before = used_by_pool();
    CUcontext other = nullptr;
    CUdeviceptr address = 0;
    std::vector<int> values(1'000'000, 5);
    const size_t bytes = values.size() * sizeof(int);
    CU_OK(cu.context_create(&other, 0, gpu.device));
    CU_OK(cu.cuMemAllocAsync(&address, bytes, nullptr));
    CU_OK(cu.cuMemcpyHtoD(address, values.data(), bytes));
    CU_OK(cu.cuCtxDestroy(other));
    CU_OK(cu.cuCtxSetCurrent(gpu.context));
    CHECK(used_by_pool() >= before + bytes);
    Memory another(bytes);  // which must not be where that is
    CU_OK(cu.cuMemsetD8(another.address, 0, bytes));
    std::fill(values.begin(), values.end(), 0);
    CU_OK(cu.cuMemcpyDtoH(values.data(), address, bytes));
    CHECK(std::count(values.begin(), values.end(), 5) == std::ptrdiff_t(values.size()));
    CU_OK(cu.cuMemFreeAsync(address, nullptr));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(used_by_pool() == before);
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

TEST_CASE("what no pool of a device can do is refused", "[pool]") {
    Gpu gpu;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    CUmemoryPool pool = nullptr, imported = nullptr;
    CU_OK(cu.cuMemPoolCreate(&pool, &properties));
    CUmemAccessDesc access{properties.location, static_cast<CUmemAccess_flags>(0xff)};
    CU_CHECK(cu.cuMemPoolSetAccess(pool, &access, 1), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemPoolDestroy(pool));
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (cu.cuMemPoolCreate(&pool, &properties) == CUDA_ERROR_NOT_SUPPORTED) return;
    int fd = -1;
    CU_CHECK(cu.cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_NONE, 0), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    auto* descriptor = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
    CU_CHECK(cu.cuMemPoolImportFromShareableHandle(&imported, descriptor, CU_MEM_HANDLE_TYPE_NONE, 0),
             CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemPoolImportFromShareableHandle(&imported, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
    CU_CHECK(cu.cuDeviceSetMemPool(gpu.device, imported), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemPoolDestroy(imported));
    CU_OK(cu.cuMemPoolDestroy(pool));
}

TEST_CASE("a process that imports memory of its own pool has it under another address", "[pool]") {
    Gpu gpu;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    CUmemoryPool pool = nullptr, imported = nullptr;
    if (cu.cuMemPoolCreate(&pool, &properties) == CUDA_ERROR_NOT_SUPPORTED) return;
    int fd = -1;
    CU_OK(cu.cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    auto* descriptor = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
    CU_OK(cu.cuMemPoolImportFromShareableHandle(&imported, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
    CUmemPoolPtrExportData lent{};
    CUdeviceptr address = 0, other = 0;
    int value = 0;
    CU_OK(cu.cuMemAllocFromPoolAsync(&address, 1 << 20, pool, nullptr));
    CU_OK(cu.cuCtxSynchronize());
    CU_OK(cu.cuMemPoolExportPointer(&lent, address));
    CU_OK(cu.cuMemPoolImportPointer(&other, imported, &lent));
    CHECK(other != address);
    CU_OK(cu.cuMemsetD32(other, 5, 1 << 18));
    CU_OK(cu.cuMemcpyDtoH(&value, address + (1 << 20) - 4, sizeof value));
    CHECK(value == 5);
    CU_OK(cu.cuMemFree(other));
    CU_OK(cu.cuMemcpyDtoH(&value, address, sizeof value));
    CHECK(value == 5);
    CU_OK(cu.cuMemFreeAsync(address, nullptr));
    CU_OK(cu.cuMemPoolDestroy(imported));
    CU_OK(cu.cuMemPoolDestroy(pool));
}

TEST_CASE("a pool of pinned memory gives what the program and kernels share", "[pool]") {
    Gpu gpu;
    Module module;
    CHECK(gpu.attribute(CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED) == 1);
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    SECTION("wherever the system puts it") {
        properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
    }
    SECTION("of a NUMA node") {
        CHECK(gpu.attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED) == 1);
        properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA,
                               std::max(gpu.attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID), 0)};
    }
    properties.maxSize = 1 << 20;
    CUmemoryPool pool = nullptr;
    CU_OK(cu.cuMemPoolCreate(&pool, &properties));
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, gpu.device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CU_OK(cu.cuMemPoolSetAccess(pool, &access, 1));
    CUmemAccess_flags flags{};
    CU_OK(cu.cuMemPoolGetAccess(&flags, pool, &properties.location));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

    Stream stream;  // which waits for the fill of our own memory
    const int count = 10'000;
    CUdeviceptr address = 0, too_much = 0;
    CU_OK(cu.cuMemAllocFromPoolAsync(&address, count * sizeof(int), pool, stream));
    CU_CHECK(cu.cuMemAllocFromPoolAsync(&too_much, 1 << 20, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    unsigned type = 0;
    CU_OK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    CHECK(type == CU_MEMORYTYPE_HOST);
    auto* values = reinterpret_cast<int*>(address);
    for (int i = 0; i < count; ++i) values[i] = i;
    CU_OK(launch_shaped(module.function("add"), 8, 128, 0, stream, address, count, 5));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(values[0] == 5);
    CHECK(values[count - 1] == count + 4);
    CU_CHECK(cu.cuMemFreeHost(values), CUDA_ERROR_INVALID_VALUE);  // a stream's to free

    Memory copied(count * sizeof(int));
    CU_OK(launch_shaped(module.function("add"), 8, 128, 0, stream, address, count, 1));
    CU_OK(cu.cuMemcpyAsync(copied.address, address, count * sizeof(int), stream));
    CU_OK(cu.cuMemFreeAsync(address, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(copied.first<int>() == 6);
    CU_CHECK(cu.cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE);
    cuuint64_t used = 1;
    CU_OK(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK(used == 0);
    CU_OK(cu.cuMemPoolDestroy(pool));
}

// It is freed behind the program's back, when the GPU is done with it.
TEST_CASE("pinned memory that a stream frees before its context ends takes nothing from the next context", "[pool]") {
    constexpr int count = 10'000, rounds = 10;
    for (int round = 0; round < rounds; ++round) {
        Gpu gpu;
        Module module;
        CUmemPoolProps properties{};
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
        CUmemoryPool pool = nullptr;
        CU_OK(cu.cuMemPoolCreate(&pool, &properties));
        const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, gpu.device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CU_OK(cu.cuMemPoolSetAccess(pool, &access, 1));  // a kernel faults without
        Stream stream;
        CUdeviceptr address = 0;
        CU_OK(cu.cuMemAllocFromPoolAsync(&address, count * sizeof(int), pool, stream));
        auto* values = reinterpret_cast<int*>(address);
        for (int i = 0; i < count; ++i) values[i] = round;
        CU_OK(launch_shaped(module.function("add"), 8, 128, 0, stream, address, count, 5));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(values[0] == round + 5);
        CHECK(values[count - 1] == round + 5);
        CU_OK(launch_shaped(module.function("add"), 8, 128, 0, stream, address, count, 5));
        CU_OK(cu.cuMemFreeAsync(address, stream));
        CU_OK(cu.cuMemPoolDestroy(pool));
    }
}

TEST_CASE("pools of host memory that cannot be are refused as cuda.h says", "[pool]") {
    Gpu gpu;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    CUmemoryPool pool = nullptr;
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;  // they are not for other processes
    CU_CHECK(cu.cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
    properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    CU_CHECK(cu.cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
    properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 4711};
    CU_CHECK_EITHER(cu.cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("a pool of managed memory gives what the program and kernels share", "[pool]") {
    Gpu gpu;
    Module module;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    SECTION("on a device") {
        properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    }
    SECTION("wherever it is used") {
        properties.location.type = CU_MEM_LOCATION_TYPE_INVALID;  // which cuda.h 13 also calls NONE
    }
    SECTION("with the host") {
        properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
    }
    properties.maxSize = 1 << 20;
    CUmemoryPool pool = nullptr;
    CU_OK(cu.cuMemPoolCreate(&pool, &properties));
    CU_CHECK(cu.cuDeviceSetMemPool(gpu.device, pool), CUDA_ERROR_INVALID_VALUE);
    CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    CUmemAccess_flags flags{};
    CU_OK(cu.cuMemPoolGetAccess(&flags, pool, &device));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

    Stream stream;
    const int count = 10'000;
    CUdeviceptr address = 0, too_much = 0;
    CU_OK(cu.cuMemAllocFromPoolAsync(&address, count * sizeof(int), pool, stream));
    CU_CHECK(cu.cuMemAllocFromPoolAsync(&too_much, 1 << 20, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CU_OK(cu.cuStreamSynchronize(stream));
    unsigned managed = 0;
    CUmemoryPool owner = nullptr;
    CU_OK(cu.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    CU_OK(cu.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    CHECK(managed == 1);
    CHECK(owner == pool);
    auto* values = reinterpret_cast<int*>(address);
    for (int i = 0; i < count; ++i) values[i] = i;
    for (int round = 1; round <= 3; ++round) {
        CU_OK(launch_shaped(module.function("add"), 8, 128, 0, stream, address, count, 5));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(values[0] == 5 * round);
        CHECK(values[count - 1] == count - 1 + 5 * round);
    }
    Memory copied(count * sizeof(int));
    CU_OK(launch_shaped(module.function("add"), 8, 128, 0, stream, address, count, 1));
    CU_OK(cu.cuMemcpyAsync(copied.address, address, count * sizeof(int), stream));
    CU_OK(cu.cuMemFreeAsync(address, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(copied.first<int>() == 16);
    CU_CHECK(cu.cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE);
    cuuint64_t used = 1;
    CU_OK(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK(used == 0);
    CU_OK(cu.cuMemPoolDestroy(pool));
}

TEST_CASE("pools of managed memory that cannot be are refused", "[pool]") {
    Gpu gpu;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    CUmemoryPool pool = nullptr;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 4711};
    CU_CHECK(cu.cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_DEVICE);
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CU_CHECK(cu.cuMemPoolCreate(&pool, &properties), CUDA_ERROR_NOT_SUPPORTED);
}

FRESH_PROCESS_TEST_CASE("a device's pool can be set before anybody has asked for the default one", "[pools]") {
    Gpu gpu;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    CUmemoryPool pool = nullptr, current = nullptr, first = nullptr;
    CU_OK(cu.cuMemPoolCreate(&pool, &properties));
    CU_OK(cu.cuDeviceSetMemPool(gpu.device, pool));
    CU_OK(cu.cuDeviceGetMemPool(&current, gpu.device));
    CHECK(current == pool);
    CU_OK(cu.cuDeviceGetDefaultMemPool(&first, gpu.device));
    CHECK(first != pool);
    CU_OK(cu.cuMemPoolDestroy(pool));
}
