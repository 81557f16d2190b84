// Virtual memory: addresses reserved first, physical memory made, mapped, opened and taken away again.
#include "gpu.hpp"

using namespace driver_api;

namespace {
CUmemAllocationProp properties_of(const Gpu& gpu) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = gpu.device;
    return properties;
}

size_t granularity(const Gpu& gpu, CUmemAllocationGranularity_flags which = CU_MEM_ALLOC_GRANULARITY_MINIMUM) {
    auto properties = properties_of(gpu);
    size_t bytes = 0;
    CU_OK(cu.cuMemGetAllocationGranularity(&bytes, &properties, which));
    return bytes;
}

void open_for(const Gpu& gpu, CUdeviceptr address, size_t bytes) {
    CUmemAccessDesc access{};
    access.location = properties_of(gpu).location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CU_OK(cu.cuMemSetAccess(address, bytes, &access, 1));
}
}  // namespace

TEST_CASE("the granularity is a power of two", "[address space]") {
    Gpu gpu;
    CHECK(gpu.attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 1);
    size_t least = granularity(gpu), best = granularity(gpu, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    CHECK(least > 0);
    CHECK((least & (least - 1)) == 0);
    CHECK(best % least == 0);
}

// NCCL asks before it tries cuMemCreate, and does without what is refused.
TEST_CASE("memory of the host has a granularity, also where other processes cannot have it", "[address space]") {
    Gpu gpu;
    auto properties = properties_of(gpu);
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    size_t bytes = 0;
    CU_OK(cu.cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(bytes > 0);
    CUmemGenericAllocationHandle handle = 0;
    const auto result = cu.cuMemCreate(&handle, bytes, &properties, 0);
    if (result == CUDA_SUCCESS)
        CU_OK(cu.cuMemRelease(handle));
    else
        CHECK(result == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("reserved addresses become memory by mapping and lose it by unmapping", "[address space]") {
    Gpu gpu;
    Module module;
    const size_t bytes = granularity(gpu);
    auto properties = properties_of(gpu);
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    CU_OK(cu.cuMemAddressReserve(&address, 2 * bytes, 0, 0, 0));
    CHECK(address % bytes == 0);
    CU_OK(cu.cuMemCreate(&handle, bytes, &properties, 0));
    CU_OK(cu.cuMemMap(address, bytes, 0, handle, 0));
    open_for(gpu, address, bytes);
    CU_OK(launch(module.function("store"), nullptr, address + bytes - 4, 21));
    int value = 0;
    CU_OK(cu.cuMemcpyDtoH(&value, address + bytes - 4, sizeof(value)));
    CHECK(value == 21);
    CU_OK(cu.cuMemUnmap(address, bytes));
    CU_CHECK(cu.cuMemcpyDtoH(&value, address, sizeof(value)), CUDA_ERROR_INVALID_VALUE);
    // The memory itself has survived, and can appear elsewhere.
    CU_OK(cu.cuMemMap(address + bytes, bytes, 0, handle, 0));
    open_for(gpu, address + bytes, bytes);
    CU_OK(cu.cuMemcpyDtoH(&value, address + 2 * bytes - 4, sizeof(value)));
    CHECK(value == 21);
    CU_OK(cu.cuMemUnmap(address + bytes, bytes));
    CU_OK(cu.cuMemRelease(handle));
    CU_OK(cu.cuMemAddressFree(address, 2 * bytes));
}

TEST_CASE("two pieces of memory side by side are one range", "[address space]") {
    Gpu gpu;
    Module module;
    const size_t bytes = granularity(gpu);
    auto properties = properties_of(gpu);
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handles[2] = {};
    CU_OK(cu.cuMemAddressReserve(&address, 2 * bytes, 0, 0, 0));
    for (size_t i = 0; i < 2; ++i) {
        CU_OK(cu.cuMemCreate(&handles[i], bytes, &properties, 0));
        CU_OK(cu.cuMemMap(address + i * bytes, bytes, 0, handles[i], 0));
        CU_OK(cu.cuMemRelease(handles[i]));  // the mapping keeps the memory
    }
    open_for(gpu, address, 2 * bytes);
    std::vector<int> data(1000);
    for (int i = 0; i < 1000; ++i) data[size_t(i)] = i;
    CU_OK(cu.cuMemcpyHtoD(address + bytes - 2000, data.data(), 4000));  // across the seam
    CU_OK(launch_shaped(module.function("add"), 2, 64, 0, nullptr, address + bytes - 2000, 1000, 5));
    std::vector<int> back(1000);
    CU_OK(cu.cuMemcpyDtoH(back.data(), address + bytes - 2000, 4000));
    for (int& value : data) value += 5;
    CHECK(back == data);
    CU_OK(cu.cuMemUnmap(address, 2 * bytes));
    CU_OK(cu.cuMemAddressFree(address, 2 * bytes));
}

TEST_CASE("one memory mapped twice is seen at both addresses", "[address space]") {
    Gpu gpu;
    const size_t bytes = granularity(gpu);
    auto properties = properties_of(gpu);
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    CU_OK(cu.cuMemAddressReserve(&address, 2 * bytes, 0, 0, 0));
    CU_OK(cu.cuMemCreate(&handle, bytes, &properties, 0));
    CU_OK(cu.cuMemMap(address, bytes, 0, handle, 0));
    CU_OK(cu.cuMemMap(address + bytes, bytes, 0, handle, 0));
    open_for(gpu, address, 2 * bytes);
    CU_OK(cu.cuMemsetD32(address + 64, 0x5eed, 1));
    unsigned value = 0;
    CU_OK(cu.cuMemcpyDtoH(&value, address + bytes + 64, sizeof(value)));
    CHECK(value == 0x5eed);
    CHECK(cu.cuMemUnmap(address, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu.cuMemUnmap(address, bytes + 1) == CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemUnmap(address, 2 * bytes));
    CU_OK(cu.cuMemRelease(handle));
    CU_OK(cu.cuMemAddressFree(address, 2 * bytes));
}

TEST_CASE("physical memory is what is free, not addresses", "[address space][full]") {
    Gpu gpu;
    size_t before = 0, reserved = 0, created = 0, total = 0;
    const size_t bytes = granularity(gpu) * ((size_t{64} << 20) / granularity(gpu));
    auto properties = properties_of(gpu);
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    CU_OK(cu.cuMemGetInfo(&before, &total));
    CU_OK(cu.cuMemAddressReserve(&address, size_t{1} << 38, 0, 0, 0));
    CU_OK(cu.cuMemGetInfo(&reserved, &total));
    CHECK(before - reserved < bytes);
    CU_OK(cu.cuMemCreate(&handle, bytes, &properties, 0));
    CU_OK(cu.cuMemGetInfo(&created, &total));
    CHECK(reserved - created >= bytes);
    CU_OK(cu.cuMemRelease(handle));
    CU_OK(cu.cuMemAddressFree(address, size_t{1} << 38));
    CUmemGenericAllocationHandle too_large = 0;
    const size_t unit = granularity(gpu);
    CU_CHECK(cu.cuMemCreate(&too_large, (2 * total) / unit * unit, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("a mapped address leads back to its handle and access", "[address space]") {
    Gpu gpu;
    const size_t bytes = granularity(gpu);
    auto properties = properties_of(gpu), found = CUmemAllocationProp{};
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0, again = 0;
    CU_OK(cu.cuMemAddressReserve(&address, bytes, 0, 0, 0));
    CU_OK(cu.cuMemCreate(&handle, bytes, &properties, 0));
    CU_OK(cu.cuMemMap(address, bytes, 0, handle, 0));
    unsigned long long flags = 99;
    CU_OK(cu.cuMemGetAccess(&flags, &properties.location, address));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    open_for(gpu, address, bytes);
    CU_OK(cu.cuMemGetAccess(&flags, &properties.location, address));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CU_OK(cu.cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(address)));
    CHECK(again == handle);
    CU_OK(cu.cuMemRelease(again));
    CU_OK(cu.cuMemGetAllocationPropertiesFromHandle(&found, handle));
    CHECK(found.type == CU_MEM_ALLOCATION_TYPE_PINNED);
    CHECK(found.location.id == gpu.device);
    CU_OK(cu.cuMemUnmap(address, bytes));
    CU_OK(cu.cuMemRelease(handle));
    CU_OK(cu.cuMemAddressFree(address, bytes));
}

TEST_CASE("access that cannot be is refused at the call", "[address space]") {
    Gpu gpu;
    const size_t bytes = granularity(gpu);
    auto properties = properties_of(gpu);
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    CU_OK(cu.cuMemAddressReserve(&address, 2 * bytes, 0, 0, 0));
    CU_OK(cu.cuMemCreate(&handle, 2 * bytes, &properties, 0));
    CU_OK(cu.cuMemMap(address, 2 * bytes, 0, handle, 0));
    CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CU_CHECK(cu.cuMemSetAccess(address, bytes, &access, 1), CUDA_ERROR_INVALID_VALUE);  // a part of a mapping
    auto refused = access;
    refused.flags = static_cast<CUmemAccess_flags>(0xff);
    CU_CHECK(cu.cuMemSetAccess(address, 2 * bytes, &refused, 1), CUDA_ERROR_INVALID_VALUE);
    refused = access, refused.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    CU_CHECK(cu.cuMemSetAccess(address, 2 * bytes, &refused, 1), CUDA_ERROR_INVALID_VALUE);
    refused = access, refused.location.id = -1;
    CU_CHECK(cu.cuMemSetAccess(address, 2 * bytes, &refused, 1), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuCtxSynchronize());  // nothing was refused later
    CU_OK(cu.cuMemSetAccess(address, 2 * bytes, &access, 1));
    CU_OK(cu.cuMemUnmap(address, 2 * bytes));
    CU_OK(cu.cuMemRelease(handle));
    CU_OK(cu.cuMemAddressFree(address, 2 * bytes));
}

TEST_CASE("sizes that are no multiple of the granularity are refused", "[address space]") {
    Gpu gpu;
    const size_t bytes = granularity(gpu);
    auto properties = properties_of(gpu);
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    CU_CHECK(cu.cuMemCreate(&handle, bytes + 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemCreate(&handle, 0, &properties, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemAddressReserve(&address, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemAddressReserve(&address, 1234, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemAddressReserve(&address, 2 * bytes, 0, 0, 0));
    CU_OK(cu.cuMemCreate(&handle, 2 * bytes, &properties, 0));
    CU_CHECK(cu.cuMemMap(address, bytes / 2, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    CU_CHECK(cu.cuMemMap(address + bytes / 2, bytes, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    CU_CHECK(cu.cuMemMap(address, bytes, bytes / 2, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    CU_CHECK(cu.cuMemMap(address, bytes, 2 * bytes, handle, 0), CUDA_ERROR_NOT_SUPPORTED);      // beyond the memory
    CU_CHECK(cu.cuMemMap(address + bytes, 2 * bytes, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);  // or what is reserved
    CU_OK(cu.cuCtxSynchronize());  // nothing was refused later
    CU_OK(cu.cuMemRelease(handle));
    CU_OK(cu.cuMemAddressFree(address, 2 * bytes));
}

FRESH_PROCESS_TEST_CASE("a kernel that touches reserved addresses without memory faults", "[address space]") {
    Gpu gpu;
    Module module;
    CUdeviceptr address = 0;
    CU_OK(cu.cuMemAddressReserve(&address, granularity(gpu), 0, 0, 0));
    CU_OK(launch(module.function("store"), nullptr, address, 1));
    CU_CHECK(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
