// Managed memory: the program and kernels use the same pointers.
#include <array>
#include <thread>

#include "gpu.hpp"

using namespace driver_api;

namespace {

class Managed {
public:
    explicit Managed(size_t bytes, unsigned flags = CU_MEM_ATTACH_GLOBAL) {
        CU_OK(cu.cuMemAllocManaged(&address, bytes, flags));
    }
    ~Managed() { cu.cuMemFree(address); }
    Managed(const Managed&) = delete;
    Managed& operator=(const Managed&) = delete;
    int* ints() const { return reinterpret_cast<int*>(address); }

    CUdeviceptr address = 0;
};

CUmemLocation on_device(int ordinal) {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = ordinal;
    return location;
}
CUmemLocation on_host() {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_HOST;
    return location;
}

}  // namespace

TEST_CASE("kernels and the program use managed memory in turn", "[managed]") {
    Gpu gpu;
    Module module;
    const int count = 300'000;
    Managed memory(count * sizeof(int));
    int* values = memory.ints();
    for (int i = 0; i < count; ++i) values[i] = i;
    for (int round = 1; round <= 3; ++round) {
        CU_OK(launch_shaped(module.function("add"), 8, 128, 0, nullptr, memory.address, count, 1));
        CU_OK(cu.cuCtxSynchronize());
        int wrong = 0;
        for (int i = 0; i < count; ++i) wrong += values[i] != i + 11 * round - 10;
        CHECK(wrong == 0);
        for (int i = 0; i < count; ++i) values[i] += 10;
    }
}

TEST_CASE("what the program has not touched is what the kernel wrote", "[managed]") {
    Gpu gpu;
    Module module;
    const int count = 100'000;
    Managed memory(count * sizeof(int));
    int* values = memory.ints();
    CU_OK(cu.cuMemsetD32(memory.address, 5, count));
    CU_OK(cu.cuCtxSynchronize());
    values[50'000] = 100;  // one page
    CU_OK(launch_shaped(module.function("add"), 4, 64, 0, nullptr, memory.address, count, 1));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(values[0] == 6);
    CHECK(values[49'999] == 6);
    CHECK(values[50'000] == 101);
    CHECK(values[50'001] == 6);
    CHECK(values[count - 1] == 6);
}

TEST_CASE("copies take managed memory on either side", "[managed]") {
    Gpu gpu;
    const size_t count = 20'000, bytes = count * sizeof(int);
    Managed from(bytes), to(bytes);
    for (size_t i = 0; i < count; ++i) from.ints()[i] = int(i);
    CU_OK(cu.cuMemcpy(to.address, from.address, bytes));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(to.ints()[0] == 0);
    CHECK(to.ints()[count - 1] == int(count) - 1);

    std::vector<int> host(count, 8), back(count);
    CU_OK(cu.cuMemcpyHtoD(from.address + 400, host.data(), 4000));  // part of a page that the program has, too
    CHECK(from.ints()[99] == 99);
    CHECK(from.ints()[100] == 8);
    CHECK(from.ints()[1099] == 8);
    CHECK(from.ints()[1100] == 1100);
    from.ints()[5] = -5;
    CU_OK(cu.cuMemcpyDtoH(back.data(), from.address, bytes));
    CHECK(back == std::vector<int>(from.ints(), from.ints() + count));
    CHECK(back[5] == -5);
    CU_OK(cu.cuMemcpy(reinterpret_cast<CUdeviceptr>(host.data()), to.address, bytes));
    CHECK(host == std::vector<int>(to.ints(), to.ints() + count));
    CU_OK(cu.cuMemcpyHtoD(to.address, from.ints(), bytes));  // "host" memory that is managed
    CU_OK(cu.cuCtxSynchronize());
    CHECK(to.ints()[5] == -5);
}

TEST_CASE("streams take managed memory over in the order of their work", "[managed]") {
    Gpu gpu;
    Module module;
    Stream one(CU_STREAM_NON_BLOCKING), other(CU_STREAM_NON_BLOCKING);
    Managed memory(sizeof(int)), second(sizeof(int));
    for (int round = 0; round < 20; ++round) {
        *memory.ints() = round;
        *second.ints() = 2 * round;
        CU_OK(launch(module.function("add"), one, memory.address, 1, 5));
        CU_OK(launch(module.function("add"), other, second.address, 1, 7));
        CU_OK(cu.cuStreamSynchronize(one));
        CU_OK(cu.cuStreamSynchronize(other));
        CHECK(*memory.ints() == round + 5);
        CHECK(*second.ints() == 2 * round + 7);
    }
}

TEST_CASE("sixteen threads touch managed memory at once", "[managed]") {
    Gpu gpu;
    Module module;
    constexpr int threads = 16, each = 20'000;
    Managed memory(size_t{threads} * each * sizeof(int));
    for (int round = 0; round < 3; ++round) {
        CU_OK(cu.cuMemsetD32(memory.address, 3, size_t{threads} * each));
        CU_OK(cu.cuCtxSynchronize());
        std::array<int, threads> wrong{};
        std::vector<std::thread> running;
        for (int thread = 0; thread < threads; ++thread)
            running.emplace_back([&, thread] {
                int* mine = memory.ints() + thread * each;
                for (int i = 0; i < each; ++i) {
                    wrong[size_t(thread)] += mine[i] != 3;
                    mine[i] = thread;
                }
            });
        for (auto& thread : running) thread.join();
        CHECK(wrong == std::array<int, threads>{});
        CU_OK(launch_shaped(module.function("add"), 8, 128, 0, nullptr, memory.address, threads * each, 1));
        std::vector<int> back(size_t{threads} * each);
        CU_OK(cu.cuMemcpyDtoH(back.data(), memory.address, back.size() * sizeof(int)));
        int bad = 0;
        for (int i = 0; i < threads * each; ++i) bad += back[size_t(i)] != i / each + 1;
        CHECK(bad == 0);
    }
}

TEST_CASE("graphs use managed memory as it is when they are launched", "[managed]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Managed memory(4000);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CU_OK(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_OK(launch(module.function("add"), stream, memory.address, 1000, 1));
    CU_OK(cu.cuStreamEndCapture(stream, &graph));
    CU_OK(cu.cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 5; ++round) {
        std::fill(memory.ints(), memory.ints() + 1000, 100 * round);
        CU_OK(cu.cuGraphLaunch(exec, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(std::vector<int>(memory.ints(), memory.ints() + 1000) == std::vector<int>(1000, 100 * round + 1));
    }
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
}

TEST_CASE("a function of the program in a stream uses managed memory", "[managed]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Managed memory(sizeof(int));
    *memory.ints() = 1;
    CU_OK(launch(module.function("add"), stream, memory.address, 1, 10));
    CU_OK(cu.cuLaunchHostFunc(
        stream, [](void* value) { *static_cast<int*>(value) *= 2; }, memory.ints()));
    CU_OK(launch(module.function("add"), stream, memory.address, 1, 3));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(*memory.ints() == 25);
}

TEST_CASE("memory that is attached to a stream stays the program's while others work", "[managed]") {
    Gpu gpu;
    Module module;
    Stream mine, other;
    Managed memory(4096), of_host(4096);
    Memory elsewhere(4096);
    run_once(module.function("store"), elsewhere.address, 0);
    CU_OK(cu.cuStreamAttachMemAsync(mine, memory.address, 0, CU_MEM_ATTACH_SINGLE));
    CU_OK(cu.cuStreamAttachMemAsync(mine, of_host.address, 4096, CU_MEM_ATTACH_HOST));
    CU_OK(cu.cuStreamSynchronize(mine));
    *memory.ints() = 1;
    *of_host.ints() = 2;
    {
        Gate gate(other);
        CU_OK(launch(module.function("store"), other, elsewhere.address, 4));
        *memory.ints() += 1;  // would wait for the gate if it were everybody's
        *of_host.ints() += 1;
        gate.open();
    }
    CU_OK(launch(module.function("add"), mine, memory.address, 1, 5));
    CU_OK(cu.cuStreamSynchronize(mine));
    CHECK(*memory.ints() == 7);
    CHECK(*of_host.ints() == 3);
    CU_OK(cu.cuStreamAttachMemAsync(mine, of_host.address, 0, CU_MEM_ATTACH_GLOBAL));
    CU_OK(launch(module.function("add"), mine, of_host.address, 1, 5));
    CU_OK(cu.cuStreamSynchronize(mine));
    CHECK(*of_host.ints() == 8);
    CU_CHECK(cu.cuStreamAttachMemAsync(mine, memory.address, 100, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuStreamAttachMemAsync(nullptr, memory.address, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuStreamAttachMemAsync(mine, elsewhere.address, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuStreamAttachMemAsync(mine, memory.address, 0, 3), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("managed memory says what it is", "[managed]") {
    Gpu gpu;
    Managed memory(10'000);
    const CUdeviceptr inside = memory.address + 5000;
    int managed = 0, ordinal = -1;
    unsigned type = 0;
    CUdeviceptr device = 0, begin = 0;
    void* host = nullptr;
    size_t size = 0;
    CU_OK(cu.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, inside));
    CHECK(managed == 1);
    CU_OK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
    CHECK(type == CU_MEMORYTYPE_DEVICE);
    CU_OK(cu.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside));
    CHECK(device == inside);
    CU_OK(cu.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside));
    CHECK(host == reinterpret_cast<void*>(inside));
    CU_OK(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
    CHECK(ordinal == gpu.device);
    CU_OK(cu.cuMemGetAddressRange(&begin, &size, inside));
    CHECK(begin == memory.address);
    CHECK(size == 10'000);
    CHECK(gpu.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) == 1);
}

TEST_CASE("managed memory that cannot be is refused", "[managed]") {
    Gpu gpu;
    CUdeviceptr address = 0;
    CU_CHECK(cu.cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemAllocManaged(&address, 100, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemAllocManaged(&address, 100, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemAllocManaged(nullptr, 100, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
}

// A driver with its own hands on the GPU moves pages in and out; elsewhere the memory must fit.
TEST_CASE("managed memory larger than the GPU is out of memory", "[managed][emulated]") {
    Gpu gpu;
    CUdeviceptr address = 0;
    size_t total = 0, free_before = 0, free_after = 0;
    CU_OK(cu.cuDeviceTotalMem(&total, gpu.device));
    CU_OK(cu.cuMemGetInfo(&free_before, &total));
    CU_CHECK(cu.cuMemAllocManaged(&address, total + 1, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    CU_CHECK(cu.cuMemAllocManaged(&address, size_t{1} << 50, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    CU_OK(cu.cuMemGetInfo(&free_after, &total));
    CHECK(free_after == free_before);
}

TEST_CASE("advice on managed memory is kept", "[managed]") {
    Gpu gpu;
    constexpr size_t half = size_t{2} << 20;
    Managed memory(2 * half);
    auto ask = [&](CUmem_range_attribute attribute, CUdeviceptr at, size_t bytes) {
        int value = -100;
        CU_OK(cu.cuMemRangeGetAttribute(&value, sizeof value, attribute, at, bytes));
        return value;
    };
    const auto begin = memory.address;
    CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, begin, 2 * half) == 0);
    CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, begin, 2 * half) == CU_DEVICE_INVALID);
    CU_OK(cu.cuMemAdvise(begin, half, CU_MEM_ADVISE_SET_READ_MOSTLY, on_device(0)));
    CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, begin, half) == 1);
    CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, begin, 2 * half) == 0);
    CU_OK(cu.cuMemAdvise(begin, 2 * half, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, on_device(0)));
    CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, begin, 2 * half) == 0);
    CU_OK(cu.cuMemAdvise(begin + half, half, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, on_host()));
    CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, begin + half, half) == CU_DEVICE_CPU);
    CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, begin, 2 * half) == CU_DEVICE_INVALID);
    CU_OK(cu.cuMemAdvise(begin, half, CU_MEM_ADVISE_UNSET_READ_MOSTLY, on_device(0)));
    CHECK(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, begin, half) == 0);

    CU_OK(cu.cuMemAdvise(begin, 2 * half, CU_MEM_ADVISE_SET_ACCESSED_BY, on_device(0)));
    CU_OK(cu.cuMemAdvise(begin, half, CU_MEM_ADVISE_SET_ACCESSED_BY, on_host()));
    int accessed[3] = {7, 7, 7};
    CU_OK(cu.cuMemRangeGetAttribute(accessed, sizeof accessed, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, begin, 2 * half));
    CHECK(accessed[0] == 0);
    CHECK(accessed[1] == CU_DEVICE_INVALID);

    int mostly = -1, preferred = -1;
    void* data[] = {&mostly, &preferred};
    size_t sizes[] = {sizeof(int), sizeof(int)};
    CUmem_range_attribute attributes[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                          CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION};
    CU_OK(cu.cuMemRangeGetAttributes(data, sizes, attributes, 2, begin, half));
    CHECK(mostly == 0);
    CHECK(preferred == 0);

    Memory plain(4096);
    int value = 0;
    CU_CHECK(cu.cuMemAdvise(begin, 2 * half + 1, CU_MEM_ADVISE_SET_READ_MOSTLY, on_device(0)),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemAdvise(plain.address, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, on_device(0)),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemAdvise(begin, half, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, on_device(99)),
             CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.cuMemAdvise(begin, half, CUmem_advise(77), on_device(0)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemRangeGetAttribute(&value, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, begin, half),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemRangeGetAttribute(&value, 4, CUmem_range_attribute(99), begin, half), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("advice is for all pages that have some of the memory, and no node of the host accesses any", "[managed]") {
    Gpu gpu;
    constexpr size_t page = 4096;
    for (auto [offset, bytes, pages] : {std::array{page / 4, page / 2, size_t{1}},
                                        {page / 2, page, size_t{2}},
                                        {page / 2, 2 * page, size_t{3}},
                                        {page, page, size_t{2}}}) {
        Managed memory(3 * page);
        CU_OK(cu.cuMemAdvise(memory.address + offset, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, on_device(0)));
        const size_t first = offset / page * page;
        auto is_said = [&](size_t from, size_t to) {
            int value = -1;
            CU_OK(cu.cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                            memory.address + from, to - from));
            return value == 1;
        };
        CHECK(is_said(first, pages * page));
        CHECK(is_said(0, 3 * page) == (first == 0 && pages == 3));
    }
    Managed memory(page);
    for (auto type : {CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT}) {
        CUmemLocation node{};
        node.type = type;
        CU_OK(cu.cuMemAdvise(memory.address, page, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, node));
        CU_CHECK(cu.cuMemAdvise(memory.address, page, CU_MEM_ADVISE_SET_ACCESSED_BY, node), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuMemAdvise(memory.address, page, CU_MEM_ADVISE_UNSET_ACCESSED_BY, node), CUDA_ERROR_INVALID_VALUE);
    }
}

TEST_CASE("prefetched managed memory is where it was before, and says where it went", "[managed]") {
    Gpu gpu;
    Module module;
    Stream stream;
    const int count = 200'000;
    const size_t bytes = count * sizeof(int);
    Managed memory(bytes);
    for (int i = 0; i < count; ++i) memory.ints()[i] = i;
    CU_OK(cu.cuMemPrefetchAsync(memory.address, bytes, on_device(0), 0, stream));
    CU_OK(launch_shaped(module.function("add"), 8, 128, 0, stream, memory.address, count, 1));
    CU_OK(cu.cuMemPrefetchAsync(memory.address, bytes, on_host(), 0, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    int wrong = 0, where = 0;
    for (int i = 0; i < count; ++i) wrong += memory.ints()[i] != i + 1;
    CHECK(wrong == 0);
    CU_OK(cu.cuMemRangeGetAttribute(&where, sizeof where, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory.address,
                                    bytes));
    CHECK(where == CU_DEVICE_CPU);
    CU_CHECK(cu.cuMemPrefetchAsync(memory.address, bytes, on_device(50), 0, stream), CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.cuMemPrefetchAsync(memory.address, bytes, on_device(0), 1, stream), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemPrefetchAsync(memory.address, bytes + 1, on_device(0), 0, stream), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("several ranges are prefetched and discarded in one call", "[managed]") {
    Gpu gpu;
    Stream stream;
    Managed one(1 << 20), other(1 << 20);
    CUdeviceptr addresses[] = {one.address, other.address};
    size_t sizes[] = {1 << 20, 1 << 20}, first[] = {0, 1}, wrong_first[] = {1, 0};
    CUmemLocation places[] = {on_device(0), on_host()};
    one.ints()[3] = 4;
    CU_OK(cu.cuMemPrefetchBatchAsync(addresses, sizes, 2, places, first, 2, 0, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    int where = 0;
    CU_OK(cu.cuMemRangeGetAttribute(&where, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, one.address, 1 << 20));
    CHECK(where == 0);
    CU_OK(cu.cuMemRangeGetAttribute(&where, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, other.address, 1 << 20));
    CHECK(where == CU_DEVICE_CPU);
    CHECK(one.ints()[3] == 4);
    CU_OK(cu.cuMemDiscardBatchAsync(addresses, sizes, 1, 0, stream));
    CU_OK(cu.cuMemDiscardAndPrefetchBatchAsync(addresses, sizes, 2, places, first, 1, 0, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_CHECK(cu.cuMemPrefetchBatchAsync(addresses, sizes, 2, places, wrong_first, 2, 0, stream),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuMemPrefetchBatchAsync(addresses, sizes, 0, places, first, 1, 0, stream), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("kernels on every device use managed memory", "[managed]") {
    Gpu gpu;
    int devices = 0;
    CU_OK(cu.cuDeviceGetCount(&devices));
    Managed memory(4000);
    std::fill(memory.ints(), memory.ints() + 1000, 0);
    for (int ordinal = 0; ordinal < devices; ++ordinal) {
        Gpu other(ordinal);
        Module module;
        CU_OK(launch(module.function("add"), nullptr, memory.address, 1000, 1));
        CU_OK(cu.cuCtxSynchronize());
        CHECK(memory.ints()[0] == ordinal + 1);
        CHECK(memory.ints()[999] == ordinal + 1);
    }
}
