// What can be learned from a pointer.
#include <unistd.h>

#include <chrono>
#include <thread>

#include "gpu.hpp"

using namespace driver_api;

namespace {
template <class T>
T ask(CUpointer_attribute which, CUdeviceptr address) {
    T value{};
    CU_OK(cu.cuPointerGetAttribute(&value, which, address));
    return value;
}
}  // namespace

TEST_CASE("a device pointer says where it belongs", "[pointer]") {
    Gpu gpu;
    CUdeviceptr address = 0;
    CU_OK(cu.cuMemAlloc(&address, 1 << 20));
    CUdeviceptr inside = address + 777;
    CHECK(ask<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside) == CU_MEMORYTYPE_DEVICE);
    CHECK(ask<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside) == gpu.context);
    CHECK(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside) == inside);
    CHECK(ask<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside) == 0);
    CHECK(ask<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside) == 0);
    CHECK(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside) == address);
    CHECK(ask<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside) == 1 << 20);
    void* host = nullptr;
    CU_CHECK(cu.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemFree(address));
    unsigned type = 0;
    CU_CHECK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a pointer's booleans are integers of four bytes", "[pointer]") {
    Gpu gpu;
    Memory memory(4096);
    CUpointer_attribute booleans[] = {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                      CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                      CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, CU_POINTER_ATTRIBUTE_MAPPED};
    int local = 0;
    for (auto attribute : booleans) {
        INFO("attribute " << attribute);
        auto asked = ~0u;  // the runtime's stack holds anything
        CU_OK(cu.cuPointerGetAttribute(&asked, attribute, memory.address));
        CHECK(asked <= 1);
        void* where[] = {&asked};
        for (CUdeviceptr address : {memory.address, reinterpret_cast<CUdeviceptr>(&local)}) {
            asked = ~0u;
            CU_OK(cu.cuPointerGetAttributes(1, &attribute, where, address));
            CHECK(asked <= 1);
        }
    }
}

TEST_CASE("two allocations have two buffer ids, even at one address", "[pointer]") {
    Gpu gpu;
    CUdeviceptr address = 0;
    CU_OK(cu.cuMemAlloc(&address, 4096));
    auto first = ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address);
    CU_OK(cu.cuMemFree(address));
    CU_OK(cu.cuMemAlloc(&address, 4096));
    CHECK(ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address) != first);
    CU_OK(cu.cuMemFree(address));
}

TEST_CASE("a pointer to pinned memory is a host pointer", "[pointer]") {
    Gpu gpu;
    void* pinned = nullptr;
    bool can_map = gpu.attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) == 1;
    CU_OK(cu.cuMemHostAlloc(&pinned, 4096, can_map ? CU_MEMHOSTALLOC_DEVICEMAP : 0));
    auto address = reinterpret_cast<CUdeviceptr>(pinned);
    CHECK(ask<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CU_MEMORYTYPE_HOST);
    CHECK(ask<void*>(CU_POINTER_ATTRIBUTE_HOST_POINTER, address) == pinned);
    if (can_map) {
        CUdeviceptr device = 0;
        CU_OK(cu.cuMemHostGetDevicePointer(&device, pinned, 0));
        CHECK(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address) == device);
    }
    CU_OK(cu.cuMemFreeHost(pinned));
}

TEST_CASE("several attributes are asked at once and unknown pointers give zeros", "[pointer]") {
    Gpu gpu;
    Memory memory(4096);
    int local = 0;
    unsigned type = 99;
    CUcontext context = nullptr;
    int ordinal = 99;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void* where[] = {&type, &context, &ordinal};
    CU_OK(cu.cuPointerGetAttributes(3, which, where, memory.address + 5));
    CHECK(type == CU_MEMORYTYPE_DEVICE);
    CHECK(context == gpu.context);
    CHECK(ordinal == 0);
    CU_OK(cu.cuPointerGetAttributes(2, which, where, reinterpret_cast<CUdeviceptr>(&local)));
    CHECK(type == 0);
    CHECK(context == nullptr);
    CUpointer_attribute on_host[] = {CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void* host = nullptr;
    void* into[] = {&host};
    CU_OK(cu.cuPointerGetAttributes(1, on_host, into, reinterpret_cast<CUdeviceptr>(&local)));
    CHECK(host == &local);
    which[1] = static_cast<CUpointer_attribute>(0x1000);  // and nothing for what no driver knows
    CU_CHECK(cu.cuPointerGetAttributes(3, which, where, memory.address), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a copy on memory with synchronous operations is over when the call returns", "[pointer]") {
    Gpu gpu;
    Memory from(std::vector<int>(1000, 1)), to(std::vector<int>(1000, 0));
    CHECK(ask<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, to.address) == 0);
    unsigned on = 1;
    CU_OK(cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, to.address));
    CHECK(ask<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, to.address + 100) == 1);
    CHECK(ask<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, from.address) == 0);
    for (bool fill : {false, true}) {
        Gate gate(CU_STREAM_LEGACY);
        std::thread opener([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            gate.open();
        });
        CUresult result = fill ? cu.cuMemsetD32(to.address, 2, 1000) : cu.cuMemcpyDtoD(to.address, from.address, 4000);
        CUresult after = cu.cuStreamQuery(CU_STREAM_LEGACY);
        opener.join();
        CU_CHECK(result, CUDA_SUCCESS);
        CU_CHECK(after, CUDA_SUCCESS);
        CHECK(to.first<int>() == (fill ? 2 : 1));
    }
}

TEST_CASE("a pool's memory belongs to no context", "[pointer][pools]") {
    Gpu gpu;
    Stream stream;
    CUdeviceptr address = 0;
    CU_OK(cu.cuMemAllocAsync(&address, 4096, stream.handle));
    CUcontext context = gpu.context;
    CU_OK(cu.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    CHECK(context == nullptr);
    CU_OK(cu.cuMemFreeAsync(address, stream.handle));
}

TEST_CASE("a handle of an address range is given or refused for the right reason", "[pointer]") {
    Gpu gpu;
    Memory memory(1 << 21);
    constexpr auto dma_buf = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    int descriptor = -1;
    auto get = [&](CUdeviceptr address, size_t size, CUmemRangeHandleType type = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                   unsigned long long flags = 0) {
        return cu.cuMemGetHandleForAddressRange(&descriptor, address, size, type, flags);
    };
    CU_CHECK(cu.cuMemGetHandleForAddressRange(nullptr, memory.address, 4096, dma_buf, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(get(memory.address, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(get(memory.address, 100), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(get(memory.address + 16, 4096), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(get(memory.address, size_t{1} << 40), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(get(memory.address, 4096, static_cast<CUmemRangeHandleType>(2)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(get(memory.address, 4096, dma_buf, 0x100), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(get(0x10000, 4096), CUDA_ERROR_INVALID_VALUE);
    CHECK(descriptor == -1);
    CU_CHECK(get(memory.address, 4096),
             gpu.attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
    if (descriptor >= 0) close(descriptor);
}
