// What the driver answers to questions that are wrong in one place only.
#include <algorithm>
#include <cstring>

#include "gpu.hpp"

using namespace driver_api;

TEST_CASE("a launch of a shape that no block can have is an invalid value", "[codes]") {
    Gpu gpu;
    Module module;
    Memory out(std::vector<int>(64, 0));
    CUfunction store = module.function("store");
    for (unsigned threads : {0u, 2048u})
        CU_CHECK(launch_shaped(store, 1, threads, 0, nullptr, out.address, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(launch_shaped(store, 0, 1, 0, nullptr, out.address, 1), CUDA_ERROR_INVALID_VALUE);
    // More than the kernel's .maxntid.
    CU_CHECK(launch_shaped(module.function("at_most_64_threads"), 1, 65, 0, nullptr, out.address),
             CUDA_ERROR_INVALID_VALUE);
    CU_OK(launch_shaped(module.function("at_most_64_threads"), 1, 64, 0, nullptr, out.address));
    CU_OK(cu.cuCtxSynchronize());
}

TEST_CASE("a library's kernel of an impossible shape is an invalid value, too", "[codes]") {
    Gpu gpu;
    CUlibrary library = nullptr;
    CUkernel store = nullptr, small = nullptr;
    CU_OK(cu.cuLibraryLoadData(&library, ptx_image().data, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CU_OK(cu.cuLibraryGetKernel(&store, library, "store"));
    CU_OK(cu.cuLibraryGetKernel(&small, library, "at_most_64_threads"));
    Memory out(std::vector<int>(64, 0));
    auto as_function = [](CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); };
    for (unsigned threads : {0u, 2048u})
        CU_CHECK(launch_shaped(as_function(store), 1, threads, 0, nullptr, out.address, 1), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(launch_shaped(as_function(small), 1, 128, 0, nullptr, out.address), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuLibraryUnload(library));
}

TEST_CASE("the name of nothing is an invalid value", "[codes]") {
    Gpu gpu;
    Module module;
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    const char* name = nullptr;
    CU_OK(cu.cuLibraryLoadData(&library, ptx_image().data, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CU_OK(cu.cuLibraryGetKernel(&kernel, library, "store"));
    CU_CHECK(cu.cuKernelGetName(&name, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuKernelGetName(nullptr, kernel), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuFuncGetName(&name, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuFuncGetName(nullptr, module.function("store")), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuKernelGetName(&name, kernel));
    CHECK(std::string(name) == "store");
    CU_OK(cu.cuLibraryUnload(library));
}

TEST_CASE("registered memory is unregistered at its beginning only", "[codes]") {
    Gpu gpu;
    std::vector<char> memory(16384);
    CU_OK(cu.cuMemHostRegister(memory.data(), memory.size(), 0));
    CU_CHECK(cu.cuMemHostUnregister(memory.data() + 4096), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuMemHostUnregister(memory.data()));
    CU_CHECK(cu.cuMemHostUnregister(memory.data() + 4096), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

FRESH_PROCESS_TEST_CASE("a kernel's parameters are known in a context", "[codes]") {
    CU_OK(cu.cuInit(0));
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    size_t offset = 99, size = 99;
    CU_OK(cu.cuLibraryLoadData(&library, ptx_image().data, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CU_OK(cu.cuLibraryGetKernel(&kernel, library, "copy_ints"));
    CHECK(cu.cuKernelGetParamInfo(kernel, 2, &offset, &size) != CUDA_SUCCESS);
    Gpu gpu;
    CU_OK(cu.cuKernelGetParamInfo(kernel, 2, &offset, &size));
    CHECK(offset == 16);
    CHECK(size == 4);
    CU_CHECK(cu.cuKernelGetParamInfo(kernel, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    // What was loaded without a context works in one.
    Memory from(std::vector<int>{1, 2, 3}), to(12);
    CU_OK(launch_shaped(reinterpret_cast<CUfunction>(kernel), 1, 32, 0, nullptr, from.address, to.address, 3));
    CHECK(to.read<int>(3) == std::vector<int>{1, 2, 3});
    CU_OK(cu.cuLibraryUnload(library));
}

TEST_CASE("pools are of pinned device memory", "[codes]") {
    Gpu gpu;
    CUmemPoolProps properties{};
    CUmemoryPool pool = nullptr;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = gpu.device;
    properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    // A driver that has managed pools may make one.
    CUresult managed = cu.cuMemPoolCreate(&pool, &properties);
    CHECK((managed == CUDA_ERROR_NOT_SUPPORTED || managed == CUDA_SUCCESS));
    properties.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    CU_CHECK(cu.cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("the dynamic shared memory that is available is what a launch may ask for", "[codes]") {
    Gpu gpu;
    Module module;
    CUfunction function = module.function("use_dynamic_shared");
    Memory out(sizeof(int));
    size_t bytes = 0;
    CU_OK(cu.cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 1, 32));
    CHECK(bytes == 48 << 10);
    CU_OK(launch_shaped(function, 1, 32, unsigned(bytes), nullptr, out.address, int(bytes / sizeof(int))));
    CU_CHECK(launch_shaped(function, 1, 32, unsigned(bytes) + 16, nullptr, out.address, 4), CUDA_ERROR_INVALID_VALUE);
    // More only for who has asked for more.
    const int more = 64 << 10;
    CU_OK(cu.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, more));
    CU_OK(cu.cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 1, 32));
    CHECK(bytes == more);
    CU_OK(launch_shaped(function, 1, 32, unsigned(bytes), nullptr, out.address, int(bytes / sizeof(int))));
    CU_OK(cu.cuCtxSynchronize());
    size_t shared_by_four = 0;
    CU_OK(cu.cuOccupancyAvailableDynamicSMemPerBlock(&shared_by_four, function, 4, 32));
    int multiprocessor = gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    CHECK(shared_by_four <= size_t(multiprocessor / 4));
    CHECK(shared_by_four > size_t(multiprocessor / 8));
}

TEST_CASE("boolean attributes of a pointer are integers of four bytes", "[codes]") {
    Gpu gpu;
    Memory device(4096);
    CUdeviceptr managed = 0;
    if (gpu.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY))
        CU_OK(cu.cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    auto ask = [](CUpointer_attribute attribute, CUdeviceptr address) {
        unsigned char bytes[8];
        std::fill(std::begin(bytes), std::end(bytes), 0xee);
        CU_OK(cu.cuPointerGetAttribute(bytes, attribute, address));
        for (int i = 4; i < 8; ++i) CHECK(bytes[i] == 0xee);
        unsigned value = 0;
        std::memcpy(&value, bytes, sizeof value);
        unsigned char again[8];
        std::fill(std::begin(again), std::end(again), 0xee);
        void* where = again;
        CU_OK(cu.cuPointerGetAttributes(1, &attribute, &where, address));
        CHECK(std::memcmp(bytes, again, sizeof bytes) == 0);
        return value;
    };
    CHECK(ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, device.address) == 0);
    CHECK(ask(CU_POINTER_ATTRIBUTE_MAPPED, device.address) == 1);
    for (auto attribute :
         {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
          CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE}) {
        INFO(attribute);
        CHECK(ask(attribute, device.address) <= 1);
    }
    if (managed) {
        CHECK(ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, managed) == 1);
        CU_OK(cu.cuMemFree(managed));
    }
}

TEST_CASE("pinned host memory's device address takes sets and copies", "[codes]") {
    Gpu gpu;
    unsigned char *first = nullptr, *second = nullptr;
    CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&first), 4096, 0));
    CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&second), 4096, 0));
    auto a = reinterpret_cast<CUdeviceptr>(first), b = reinterpret_cast<CUdeviceptr>(second);
    CU_OK(cu.cuMemsetD8(a, 7, 4096));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(std::all_of(first, first + 4096, [](auto byte) { return byte == 7; }));
    CU_OK(cu.cuMemcpyDtoD(b, a, 4096));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(std::memcmp(first, second, 4096) == 0);
    Memory memory(4096);
    Stream stream;
    CU_OK(cu.cuMemsetD32Async(a + 1024, 0x01020304, 16, stream));
    CU_OK(cu.cuMemcpyDtoDAsync(memory.address, a, 4096, stream));
    CU_OK(cu.cuMemcpyDtoDAsync(b, memory.address, 4096, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(second[1023] == 7);
    CHECK(second[1024] == 4);
    CHECK(second[1087] == 1);
    CHECK(second[1088] == 7);
    CU_OK(cu.cuMemFreeHost(first));
    CU_OK(cu.cuMemFreeHost(second));
}

TEST_CASE("an ordinary stream belongs to no green context", "[codes]") {
    Gpu gpu;
    Stream stream;
    for (CUstream one : {stream.handle, CUstream{}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
        auto green = reinterpret_cast<CUgreenCtx>(1);
        CU_CHECK(cu.cuStreamGetGreenCtx(one, &green), CUDA_SUCCESS);
        CHECK(green == nullptr);
    }
    CU_CHECK(cu.cuStreamGetGreenCtx(stream, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a context has one schedule", "[codes]") {
    Gpu gpu;
    const unsigned both = CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD;
    CUcontext made = nullptr;
    CU_CHECK(cu.context_create(&made, both, gpu.device), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDevicePrimaryCtxSetFlags(gpu.device, both), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuCtxSetFlags(both), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a launch's parameters in one buffer are all there", "[codes]") {
    Gpu gpu;
    Module module;
    CUfunction store = module.function("store");
    std::byte buffer[12]{};
    size_t size = sizeof buffer, too_short = 4;
    auto launch_with = [&](std::vector<void*> extra) {
        return cu.cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra.data());
    };
    auto *at = CU_LAUNCH_PARAM_BUFFER_POINTER, *sized = CU_LAUNCH_PARAM_BUFFER_SIZE, *end = CU_LAUNCH_PARAM_END;
    CU_CHECK(launch_with({at, buffer, sized, &too_short, end}), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(launch_with({at, buffer, end}), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(launch_with({sized, &size, end}), CUDA_ERROR_INVALID_VALUE);
    CU_OK(cu.cuCtxSynchronize());
}

TEST_CASE("a copy goes by its addresses where its name says otherwise", "[codes]") {
    Gpu gpu;
    Stream stream;
    Memory from(std::vector<int>{1, 2, 3, 4}), to(std::vector<int>(4, 0));
    auto host = [](const Memory& memory) { return reinterpret_cast<void*>(memory.address); };
    CU_OK(cu.cuMemcpyHtoD(to.address, host(from), 4));
    CU_OK(cu.cuMemcpyHtoDAsync(to.address + 4, reinterpret_cast<void*>(from.address + 4), 4, stream));
    CU_OK(cu.cuMemcpyDtoH(reinterpret_cast<void*>(to.address + 8), from.address + 8, 4));
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(to.read<int>(4) == std::vector<int>{1, 2, 3, 0});
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host(from);
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to.address;
    copy.WidthInBytes = 16;
    copy.Height = 1;
    CU_OK(cu.cuMemcpy2D(&copy));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(to.read<int>(4) == std::vector<int>{1, 2, 3, 4});
}
