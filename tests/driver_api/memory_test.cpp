// Device memory: allocating, freeing, running out, and asking where an address belongs.
#include <algorithm>
#include <thread>

#include "gpu.hpp"

using namespace driver_api;

TEST_CASE("allocations are aligned and do not overlap", "[memory]") {
    Gpu gpu;
    std::vector<std::pair<CUdeviceptr, size_t>> blocks;
    for (size_t bytes : {size_t{1}, size_t{3}, size_t{256}, size_t{257}, size_t{5000}, size_t{1} << 20, size_t{1}}) {
        CUdeviceptr address = 0;
        CU_OK(cu.cuMemAlloc(&address, bytes));
        CHECK(address % 256 == 0);  // the programming guide's promise
        blocks.emplace_back(address, bytes);
    }
    std::sort(blocks.begin(), blocks.end());
    for (size_t i = 1; i < blocks.size(); ++i) CHECK(blocks[i - 1].first + blocks[i - 1].second <= blocks[i].first);
    for (auto& block : blocks) CU_OK(cu.cuMemFree(block.first));
}

TEST_CASE("impossible allocations are refused at the call", "[memory]") {
    Gpu gpu;
    CUdeviceptr address = 0;
    CU_CHECK(cu.cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemAlloc(nullptr, 16), CUDA_ERROR_INVALID_VALUE);
    size_t total = 0;
    CU_OK(cu.cuDeviceTotalMem(&total, gpu.device));
    CU_CHECK(cu.cuMemAlloc(&address, 2 * total), CUDA_ERROR_OUT_OF_MEMORY);
    CU_CHECK(cu.cuMemAlloc(&address, size_t{1} << 60), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("memory runs out at the allocation that is too much, and freeing brings it back", "[memory][full]") {
    Gpu gpu;
    size_t free_bytes = 0, total = 0;
    CU_OK(cu.cuMemGetInfo(&free_bytes, &total));
    const size_t quarter = free_bytes / 4 + (size_t{2} << 20);
    std::vector<CUdeviceptr> blocks;
    CUresult last = CUDA_SUCCESS;
    for (int i = 0; i < 4 && last == CUDA_SUCCESS; ++i) {
        CUdeviceptr address = 0;
        last = cu.cuMemAlloc(&address, quarter);
        if (last == CUDA_SUCCESS) blocks.push_back(address);
    }
    CHECK(name_of(last) == "CUDA_ERROR_OUT_OF_MEMORY");
    REQUIRE(blocks.size() >= 2);
    CU_OK(cu.cuMemsetD8(blocks[0], 1, 1000));  // the context has survived
    CU_OK(cu.cuCtxSynchronize());
    CU_OK(cu.cuMemFree(blocks.back()));
    CU_OK(cu.cuMemAlloc(&blocks.back(), quarter));
    for (auto block : blocks) CU_OK(cu.cuMemFree(block));
}

TEST_CASE("free memory shrinks with an allocation and grows back", "[memory][full]") {
    Gpu gpu;
    const size_t bytes = size_t{64} << 20;
    size_t before = 0, during = 0, after = 0, total = 0, device_total = 0;
    CU_OK(cu.cuMemGetInfo(&before, &total));
    CU_OK(cu.cuDeviceTotalMem(&device_total, gpu.device));
    CHECK(before <= total);
    CHECK(total <= device_total);
    CUdeviceptr address = 0;
    CU_OK(cu.cuMemAlloc(&address, bytes));
    CU_OK(cu.cuMemGetInfo(&during, &total));
    CHECK(before - during >= bytes);
    CU_OK(cu.cuMemFree(address));
    CU_OK(cu.cuMemGetInfo(&after, &total));
    CHECK(after > during);
}

TEST_CASE("only what was allocated can be freed, and only once", "[memory]") {
    Gpu gpu;
    CUdeviceptr address = 0;
    CU_OK(cu.cuMemAlloc(&address, 4096));
    CU_CHECK(cu.cuMemFree(address + 256), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemFree(address));
    CU_CHECK(cu.cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemFree(0x1234), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("many small allocations work and come back", "[memory]") {
    Gpu gpu;
    std::vector<CUdeviceptr> blocks(500);
    for (size_t i = 0; i < blocks.size(); ++i) CU_OK(cu.cuMemAlloc(&blocks[i], 100 + i));
    for (size_t i = 0; i < blocks.size(); ++i) CU_OK(cu.cuMemsetD32(blocks[i], unsigned(i), 25));
    for (size_t i = 0; i < blocks.size(); ++i) {
        unsigned value = 0;
        CU_OK(cu.cuMemcpyDtoH(&value, blocks[i] + 96, sizeof(value)));
        CHECK(value == i);
    }
    for (auto block : blocks) CU_OK(cu.cuMemFree(block));
}

TEST_CASE("pitched memory has room for every row", "[memory]") {
    Gpu gpu;
    CUdeviceptr address = 0;
    size_t pitch = 0;
    CU_OK(cu.cuMemAllocPitch(&address, &pitch, 1001, 33, 4));
    CHECK(pitch >= 1001);
    CHECK(pitch % 16 == 0);
    CU_OK(cu.cuMemsetD8(address, 1, pitch * 32 + 1001));
    CU_OK(cu.cuMemFree(address));
    CU_CHECK(cu.cuMemAllocPitch(&address, &pitch, 1001, 33, 3), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemAllocPitch(&address, &pitch, 0, 33, 4), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("any address inside an allocation leads to its start and size", "[memory]") {
    Gpu gpu;
    CUdeviceptr address = 0, base = 0;
    size_t size = 0;
    CU_OK(cu.cuMemAlloc(&address, 1 << 20));
    for (CUdeviceptr inside : {address, address + 1, address + (1 << 20) - 1}) {
        CU_OK(cu.cuMemGetAddressRange(&base, &size, inside));
        CHECK(base == address);
        CHECK(size == 1 << 20);
    }
    CU_OK(cu.cuMemGetAddressRange(nullptr, &size, address));
    CU_OK(cu.cuMemGetAddressRange(&base, nullptr, address));
    CU_OK(cu.cuMemFree(address));
    CU_CHECK(cu.cuMemGetAddressRange(&base, &size, address), CUDA_ERROR_NOT_FOUND);
    CU_CHECK(cu.cuMemGetAddressRange(&base, &size, 0x1000), CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("threads that allocate at once are given all that there is", "[memory][full]") {
    Gpu gpu;
    size_t free_bytes = 0, total = 0;
    CU_OK(cu.cuMemGetInfo(&free_bytes, &total));
    const size_t each = total / 12;
    auto allocate_all = [&](bool at_once) {
        std::vector<CUdeviceptr> made(16, 0);
        std::vector<std::thread> threads;
        auto allocate = [&](size_t i) {
            if (cu.cuCtxSetCurrent(gpu.context) == CUDA_SUCCESS) (void)cu.cuMemAlloc(&made[i], each);
        };
        for (size_t i = 0; i < made.size(); ++i) {
            if (at_once)
                threads.emplace_back(allocate, i);
            else
                allocate(i);
        }
        for (auto& thread : threads) thread.join();
        size_t count = 0;
        for (auto address : made) {
            count += address != 0;
            if (address != 0) CU_OK(cu.cuMemFree(address));
        }
        CU_OK(cu.cuCtxSynchronize());
        return count;
    };
    auto at_once = allocate_all(true);  // first, while the process has little memory
    CHECK(at_once == allocate_all(false));
}
