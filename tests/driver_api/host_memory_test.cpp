// Pinned host memory: CUDA's own and the program's, registered.
#include <sys/mman.h>

#include <algorithm>
#include <span>

#include "gpu.hpp"

using namespace driver_api;

TEST_CASE("pinned memory is ordinary memory that copies can use", "[host memory]") {
    Gpu gpu;
    int* pinned = nullptr;
    CU_OK(cu.cuMemAllocHost(reinterpret_cast<void**>(&pinned), 4000));
    for (int i = 0; i < 1000; ++i) pinned[i] = i;
    Memory memory(4000);
    Stream stream;
    CU_OK(cu.cuMemcpyHtoDAsync(memory.address, pinned, 4000, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(memory.read<int>(1000) == std::vector<int>(pinned, pinned + 1000));
    CU_OK(cu.cuMemFreeHost(pinned));
}

TEST_CASE("a kernel finds pinned memory by an address in a struct", "[host memory]") {
    struct {
        char tag = 1;
        int* out = nullptr;
        double amount = 20;
        short parts[3] = {300, 4000, 50000 - 65536};
    } parcel;
    Gpu gpu;
    Module module;
    int* pinned = nullptr;
    CU_OK(cu.cuMemAllocHost(reinterpret_cast<void**>(&pinned), 4000));
    std::fill(pinned, pinned + 1000, 7);
    Stream stream;
    for (int round = 1; round <= 3; ++round) {
        parcel.out = pinned + 100 * round;
        parcel.amount = 20 + round;
        CU_OK(launch(module.function("take_parcel"), stream, parcel));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(pinned[100 * round] == 4321 + round - 15536);
        pinned[100 * round] = 7;
    }
    CHECK(std::count(pinned, pinned + 1000, 7) == 1000);
    CU_OK(cu.cuMemFreeHost(pinned));
}

TEST_CASE("a kernel finds pinned memory by an address anywhere in a large struct", "[host memory]") {
    Gpu gpu;
    Module module;
    Memory memory(std::vector<int>(500, 0));
    int* pinned = nullptr;
    CU_OK(cu.cuMemAllocHost(reinterpret_cast<void**>(&pinned), sizeof(int) * 500));
    std::fill(pinned, pinned + 500, 0);
    std::vector<int> expected(500, 0);
    // One at a time: whoever skips parts without addresses must not skip it.
    for (int i : {0, 1, 31, 62, 63, 64, 127, 128, 301, 446, 447, 448, 498, 499}) {
        struct {
            int* out[500] = {};
        } places;
        places.out[i] = pinned + i;
        expected[size_t(i)] = i + 1;
        places.out[200] = reinterpret_cast<int*>(memory.address) + 200;
        CU_OK(launch(module.function("write_to_places"), nullptr, places));
    }
    CU_OK(cu.cuCtxSynchronize());
    CHECK(std::vector<int>(pinned, pinned + 500) == expected);
    CHECK(memory.read<int>(500)[200] == 201);
    CU_OK(cu.cuMemFreeHost(pinned));
}

TEST_CASE("an asynchronous copy from pinned memory takes what is there when it runs", "[host memory]") {
    Gpu gpu;
    int* pinned = nullptr;
    CU_OK(cu.cuMemAllocHost(reinterpret_cast<void**>(&pinned), sizeof(int)));
    *pinned = 1;
    Memory memory(sizeof(int));
    {
        Stream stream;
        Gate gate(stream);
        CU_OK(cu.cuMemcpyHtoDAsync(memory.address, pinned, sizeof(int), stream));
        CU_CHECK(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);  // it returned without waiting for the gate
        gate.open();
        CU_OK(cu.cuStreamSynchronize(stream));
    }
    CHECK(memory.first<int>() == 1);
    CU_OK(cu.cuMemFreeHost(pinned));
}

TEST_CASE("a copy into pinned memory is there when its stream is done", "[host memory]") {
    Gpu gpu;
    Stream stream;
    int* pinned = nullptr;
    CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&pinned), 4000, CU_MEMHOSTALLOC_PORTABLE));
    std::fill(pinned, pinned + 1000, -1);
    Memory memory(std::vector<int>(1000, 6));
    CU_OK(cu.cuMemcpyDtoHAsync(pinned, memory.address, 4000, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(std::vector<int>(pinned, pinned + 1000) == std::vector<int>(1000, 6));
    CU_OK(cu.cuMemFreeHost(pinned));
}

// Every local GPU can map host memory. Where a driver says that its GPU cannot, it must refuse to.
static bool can_map(const Gpu& gpu) {
    if (gpu.attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) == 1) return true;
    void* host = nullptr;
    std::vector<int> own(1000);
    CUdeviceptr device = 0;
    CU_CHECK(cu.cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_ERROR_NOT_SUPPORTED);
    CU_CHECK(cu.cuMemHostRegister(own.data(), 4000, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_ERROR_NOT_SUPPORTED);
    CU_OK(cu.cuMemHostAlloc(&host, 4096, 0));
    CU_CHECK(cu.cuMemHostGetDevicePointer(&device, host, 0), CUDA_ERROR_NOT_SUPPORTED);
    CU_OK(cu.cuMemFreeHost(host));
    WARN("this device cannot map host memory: not tested");
    return false;
}

TEST_CASE("pinned memory remembers its flags", "[host memory]") {
    Gpu gpu;
    void* pinned = nullptr;
    unsigned flags = 0;
    for (unsigned wanted : {CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE}) {
        if ((wanted & CU_MEMHOSTALLOC_DEVICEMAP) != 0 && !can_map(gpu)) continue;
        CU_OK(cu.cuMemHostAlloc(&pinned, 100, wanted));
        CU_OK(cu.cuMemHostGetFlags(&flags, pinned));
        CHECK((flags & wanted) == wanted);
        CU_OK(cu.cuMemFreeHost(pinned));
    }
    CU_OK(cu.cuMemHostAlloc(&pinned, 100, 0));  // portable and mapped all the same, as addresses are unified
    CU_OK(cu.cuMemHostGetFlags(&flags, pinned));
    CHECK(flags == (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    CUdeviceptr address = 0;  // which leads to the same answer
    CU_OK(cu.cuMemHostGetDevicePointer(&address, pinned, 0));
    CU_OK(cu.cuMemHostGetFlags(&flags, reinterpret_cast<void*>(address)));
    CHECK(flags == (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    CU_OK(cu.cuMemFreeHost(pinned));
    CU_CHECK(cu.cuMemHostAlloc(&pinned, 100, 0xff00), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemHostAlloc(nullptr, 100, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("memory that was not pinned is refused", "[host memory]") {
    Gpu gpu;
    std::vector<int> ordinary(1000);
    CUdeviceptr address = 0;
    CU_CHECK(cu.cuMemFreeHost(ordinary.data()), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemHostUnregister(ordinary.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    CU_CHECK(cu.cuMemHostGetDevicePointer(&address, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("the program's own memory can be registered once", "[host memory]") {
    Gpu gpu;
    Stream stream;
    std::vector<int> data(10'000, 4), back(10'000, 0);
    const size_t bytes = data.size() * sizeof(int);
    CU_OK(cu.cuMemHostRegister(data.data(), bytes, 0));
    CU_CHECK(cu.cuMemHostRegister(data.data(), bytes, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    Memory memory(bytes);
    CU_OK(cu.cuMemcpyHtoDAsync(memory.address, data.data(), bytes, stream));
    CU_OK(cu.cuMemcpyDtoHAsync(back.data(), memory.address, bytes, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(back == data);
    CU_OK(cu.cuMemHostUnregister(data.data()));
    CU_CHECK(cu.cuMemHostUnregister(data.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    CU_OK(cu.cuMemHostRegister(data.data(), bytes, CU_MEMHOSTREGISTER_PORTABLE));
    CU_OK(cu.cuMemHostUnregister(data.data()));
    CU_CHECK(cu.cuMemHostRegister(nullptr, bytes, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemHostRegister(data.data(), 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("kernels read and write mapped host memory", "[host memory][mapped]") {
    Gpu gpu;
    if (!can_map(gpu)) return;
    Module module;
    int* host = nullptr;
    CUdeviceptr device = 0;
    CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&host), 4000, CU_MEMHOSTALLOC_DEVICEMAP));
    CU_OK(cu.cuMemHostGetDevicePointer(&device, host, 0));
    for (int round = 0; round < 3; ++round) {
        std::fill(host, host + 1000, 10 * round);
        CU_OK(launch_shaped(module.function("add"), 4, 64, 0, nullptr, device, 1000, 5));
        CU_OK(cu.cuCtxSynchronize());
        CHECK(std::vector<int>(host, host + 1000) == std::vector<int>(1000, 10 * round + 5));
    }
    CU_OK(cu.cuMemFreeHost(host));
}

TEST_CASE("kernels use registered memory through its device pointer", "[host memory][mapped]") {
    Gpu gpu;
    if (!can_map(gpu)) return;
    Module module;
    std::vector<int> values(5000, 3);
    CUdeviceptr device = 0;
    CU_OK(cu.cuMemHostRegister(values.data(), values.size() * sizeof(int), CU_MEMHOSTREGISTER_DEVICEMAP));
    CU_OK(cu.cuMemHostGetDevicePointer(&device, values.data(), 0));
    CU_OK(launch_shaped(module.function("add"), 4, 64, 0, nullptr, device, 5000, 4));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(values == std::vector<int>(5000, 7));
    CU_OK(cu.cuMemHostUnregister(values.data()));
}

TEST_CASE("kernels use registered memory that other processes may have, too", "[host memory][mapped]") {
    Gpu gpu;
    if (!can_map(gpu)) return;
    Module module;
    constexpr size_t page = 4096, pages = 9;
    auto map = [](void* where, size_t bytes, int flags) {
        return ::mmap(where, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    };
    auto* first = static_cast<char*>(map(nullptr, pages * page, MAP_PRIVATE));
    REQUIRE(map(first + 3 * page, 4 * page, MAP_SHARED | MAP_FIXED) ==
            first + 3 * page);  // with pages of its own around
    const std::span values(reinterpret_cast<int*>(first), pages * page / sizeof(int));
    CUdeviceptr device = 0;
    CU_OK(cu.cuMemHostRegister(first, pages * page, CU_MEMHOSTREGISTER_DEVICEMAP));
    CU_OK(cu.cuMemHostGetDevicePointer(&device, first, 0));
    for (int round = 1; round <= 3; ++round) {
        CU_OK(launch_shaped(module.function("add"), 36, 256, 0, nullptr, device, static_cast<int>(values.size()), 4));
        CU_OK(cu.cuCtxSynchronize());
        CHECK(std::ranges::count(values, 5 * round - 1) == static_cast<long>(values.size()));
        for (auto& value : values) ++value;
    }
    CU_OK(cu.cuMemHostUnregister(first));
    CHECK(std::ranges::count(values, 15) == static_cast<long>(values.size()));
    ::munmap(first, pages * page);
}

TEST_CASE("kernels take the address of pinned memory that nobody has mapped", "[host memory][mapped]") {
    Gpu gpu;
    if (!can_map(gpu)) return;
    Module module;
    Stream stream;
    Memory memory(std::vector<int>(1000, 20));
    int* host = nullptr;
    CU_OK(cu.cuMemAllocHost(reinterpret_cast<void**>(&host), 4000));
    std::fill(host, host + 1000, 1);
    auto add = module.function("add");
    CU_OK(launch_shaped(add, 4, 64, 0, stream, address_of(host), 1000, 5));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(std::vector<int>(host, host + 1000) == std::vector<int>(1000, 6));

    CU_OK(launch_shaped(add, 4, 64, 0, stream, address_of(host + 100), 900, 1));  // not its first byte
    CU_OK(cu.cuMemcpyDtoHAsync(host, memory.address, 400, stream));
    CU_OK(launch_shaped(add, 4, 64, 0, stream, address_of(host), 100, 2));  // behind a copy into it
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(std::vector<int>(host, host + 100) == std::vector<int>(100, 22));
    CHECK(std::vector<int>(host + 100, host + 1000) == std::vector<int>(900, 7));
    CU_OK(cu.cuMemFreeHost(host));
}

// Across a network such memory takes as much of the GPU's. CatBoost takes 95 % of that before.
FRESH_PROCESS_TEST_CASE("a launch with pinned memory on a full GPU works or says that it is full",
                        "[host memory][mapped][full]") {
    Gpu gpu;
    if (!can_map(gpu)) return;
    Module module;
    Stream stream;
    constexpr size_t pinned_bytes = 64 << 20;
    int* host = nullptr;
    CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&host), pinned_bytes, CU_MEMHOSTALLOC_PORTABLE));
    host[0] = 1;
    std::vector<CUdeviceptr> taken;
    for (size_t size = size_t{1} << 38; size >= pinned_bytes / 4; size /= 2)
        for (CUdeviceptr address = 0; cu.cuMemAlloc(&address, size) == CUDA_SUCCESS;) taken.push_back(address);
    auto result = launch_shaped(module.function("add"), 1, 32, 0, stream, address_of(host), 1, 5);
    CU_CHECK_EITHER(result, CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY);
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(host[0] == (result == CUDA_SUCCESS ? 6 : 1));
    for (auto address : taken) CU_OK(cu.cuMemFree(address));
    CU_OK(cu.cuMemFreeHost(host));
}

TEST_CASE("pinned memory that a copy still writes is given to a kernel afterwards", "[host memory][mapped]") {
    Gpu gpu;
    if (!can_map(gpu)) return;
    Module module;
    Stream stream;
    constexpr int count = 1 << 20;
    Memory memory(std::vector<int>(count, 3));
    int* host = nullptr;
    CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&host), count * sizeof(int), CU_MEMHOSTALLOC_PORTABLE));
    CU_OK(cu.cuMemcpyDtoHAsync(host, memory.address, count * sizeof(int), stream));
    CU_OK(launch_shaped(module.function("add"), 64, 64, 0, stream, address_of(host), count, 4));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(std::count(host, host + count, 7) == count);
    CU_OK(cu.cuMemFreeHost(host));
}

TEST_CASE("kernels of a graph take the address of registered memory", "[host memory][mapped]") {
    Gpu gpu;
    if (!can_map(gpu)) return;
    Module module;
    Stream stream;
    std::vector<int> values(5000, 3);
    CU_OK(cu.cuMemHostRegister(values.data(), values.size() * sizeof(int), 0));
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CU_OK(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_OK(launch_shaped(module.function("add"), 4, 64, 0, stream, address_of(values.data()), 5000, 4));
    CU_OK(cu.cuStreamEndCapture(stream, &graph));
    CU_OK(cu.cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; ++i) CU_OK(cu.cuGraphLaunch(exec, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(values == std::vector<int>(5000, 11));
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
    CU_OK(cu.cuMemHostUnregister(values.data()));
}
