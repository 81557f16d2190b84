// Managed memory: the program and kernels use the same pointers.
#include <sys/mman.h>

#include <cstring>
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

namespace {

const char* managed_number = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 number = 41;
.visible .entry add_one() { .reg .u32 %r; ld.global.u32 %r, [number]; add.u32 %r, %r, 1; st.global.u32 [number], %r; ret; }
)";
const char* plain_number = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 number = 12;
)";

CUmodule load_text(const char* text) {
    CUmodule module = nullptr;
    CU_OK(cu.cuModuleLoadData(&module, text));
    return module;
}

CUdeviceptr number_of(CUmodule module) {
    CUdeviceptr address = 0;
    size_t size = 0;
    CU_OK(cu.cuModuleGetGlobal(&address, &size, module, "number"));
    CHECK(size == sizeof(int));
    return address;
}

void add_one_to(CUmodule module) {
    CUfunction add_one = nullptr;
    CU_OK(cu.cuModuleGetFunction(&add_one, module, "add_one"));
    CU_OK(cu.cuLaunchKernel(add_one, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CU_OK(cu.cuCtxSynchronize());
}

}  // namespace

TEST_CASE("a module's managed variable is found by name where the program can use it", "[managed]") {
    Gpu gpu;
    CUmodule module = load_text(managed_number);
    auto* number = reinterpret_cast<volatile int*>(number_of(module));
    CHECK(*number == 41);
    for (int value : {42, 8}) {
        add_one_to(module);
        CHECK(*number == value);
        *number = 7;
    }
    CU_OK(cu.cuModuleUnload(module));
}

TEST_CASE("each of a module's managed variables may be attached to a stream", "[managed]") {
    Gpu gpu;
    CUmodule module = load_text(R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 other = 1;
.visible .global .attribute(.managed) .align 4 .u32 number = 41;
.visible .entry add_one() { .reg .u32 %r; ld.global.u32 %r, [number]; add.u32 %r, %r, 1; st.global.u32 [number], %r; ret; }
)");
    CUdeviceptr other = 0, number = number_of(module);
    size_t size = 0;
    CU_OK(cu.cuModuleGetGlobal(&other, &size, module, "other"));
    Stream stream;
    for (CUdeviceptr variable : {other, number})
        for (auto flags : {CU_MEM_ATTACH_HOST, CU_MEM_ATTACH_SINGLE, CU_MEM_ATTACH_GLOBAL})
            for (size_t length : {size_t{0}, sizeof(int)}) {
                CU_OK(cu.cuStreamAttachMemAsync(stream, variable, length, flags));
                CU_CHECK(cu.cuStreamAttachMemAsync(stream, variable, length, 7), CUDA_ERROR_INVALID_VALUE);
            }
    CU_OK(cu.cuStreamAttachMemAsync(stream, other, 0, CU_MEM_ATTACH_HOST));
    CU_OK(cu.cuStreamSynchronize(stream));
    add_one_to(module);
    CHECK(*reinterpret_cast<volatile int*>(number) == 42);  // its neighbour is not attached with it
    CU_OK(cu.cuModuleUnload(module));
}

// Drivers use an address again and again.
TEST_CASE("a managed variable may lie where another module had one", "[managed]") {
    Gpu gpu;
    for (int round = 0; round < 6; ++round) {
        CUmodule plain = load_text(plain_number);
        CHECK(number_of(plain) != 0);
        CUmodule managed = load_text(managed_number), second = load_text(managed_number);
        CU_OK(cu.cuModuleUnload(plain));
        auto* number = reinterpret_cast<volatile int*>(number_of(managed));
        REQUIRE(number);
        add_one_to(managed);
        CHECK(*number == 42);
        CHECK(*reinterpret_cast<volatile int*>(number_of(second)) == 41);
        CU_OK(cu.cuModuleUnload(managed));
        CU_OK(cu.cuModuleUnload(second));
    }
}

FRESH_PROCESS_TEST_CASE("managed variables go where the program has nothing", "[managed]") {
    Gpu gpu;
    CUmodule first = load_text(managed_number);
    constexpr size_t bytes = 3 * 4096;
    // Where the next ones would be. In the driver's own process nothing else can be there.
    auto* beside = reinterpret_cast<void*>(number_of(first) / 4096 * 4096 + 4096);
    void* taken = mmap(beside, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // as a hint
    REQUIRE(taken != MAP_FAILED);
    std::memset(taken, 5, bytes);
    std::vector<CUmodule> modules;
    for (int i = 0; i < 4; ++i) {
        modules.push_back(load_text(managed_number));
        auto* number = reinterpret_cast<volatile int*>(number_of(modules.back()));
        REQUIRE(number);
        *number = 10 + i;
    }
    for (int i = 0; i < 4; ++i) {
        add_one_to(modules[i]);
        CHECK(*reinterpret_cast<volatile int*>(number_of(modules[i])) == 11 + i);
        CU_OK(cu.cuModuleUnload(modules[i]));
    }
    CHECK(static_cast<char*>(taken)[bytes / 2] == 5);
    munmap(taken, bytes);
    CU_OK(cu.cuModuleUnload(first));
}

FRESH_PROCESS_TEST_CASE("a library's managed variable is the program's again when its context was reset", "[managed]") {
    CU_OK(cu.cuInit(0));
    CUlibrary library = nullptr;
    CU_OK(cu.cuLibraryLoadData(&library, managed_number, nullptr, nullptr, 0, nullptr, nullptr, 0));
    for (int round = 0; round < 3; ++round) {
        Gpu gpu;
        CUmodule module = nullptr;
        CU_OK(cu.cuLibraryGetModule(&module, library));
        auto* number = reinterpret_cast<volatile int*>(number_of(module));
        REQUIRE(number);
        *number = 50 + round;
        add_one_to(module);
        CHECK(*number == 51 + round);
        CU_OK(cu.cuDevicePrimaryCtxReset(0));
    }
}
