// Copies between the program's memory and the GPU's happen when their stream gets there, and see what came before them
// there: functions of the program, fills, other copies. Calls that wait are done when they return.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <thread>

#include "graph_host_copies.hpp"

using namespace driver_api;

namespace {

// Memory of the program, registered, that begins and ends within pages.
class Registered {
public:
    explicit Registered(size_t words) : count(words), room_(words + 200), data(room_.data() + 77) {
        CU_OK(cu.cuMemHostRegister(data, words * word, CU_MEMHOSTREGISTER_DEVICEMAP));
        CU_OK(cu.cuMemHostGetDevicePointer(&address, data, 0));
    }
    ~Registered() { cu.cuMemHostUnregister(data); }
    Registered(const Registered&) = delete;
    Registered& operator=(const Registered&) = delete;
    Words contents() const { return {data, data + count}; }

    size_t count;

private:
    Words room_;

public:
    unsigned* data;
    CUdeviceptr address = 0;
};

}  // namespace

TEST_CASE("a copy from pinned memory sees what a function before it has put there", "[copy][pinned]") {
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING), other(CU_STREAM_NON_BLOCKING);
    const size_t count = GENERATE(1, 25'000, 600'000);  // in the record, in a piece, in several
    PinnedWords host(count);
    Memory memory(host.bytes()), last(host.bytes());
    std::function<void()> functions[3];
    for (unsigned i = 0; i < 3; ++i) functions[i] = [&, i] { host.fill(10 + i); };
    Event reached(CU_EVENT_DISABLE_TIMING);
    CU_OK(cu.cuCtxSynchronize());  // these streams do not wait for what the memory is filled with
    {
        Gate gate(stream);
        CU_OK(cu.cuLaunchHostFunc(stream, call_function, &functions[0]));
        CU_OK(cu.cuMemcpyHtoDAsync(memory.address, host.data, host.bytes(), stream));
        CU_OK(cu.cuLaunchHostFunc(stream, call_function, &functions[1]));
        CU_OK(cu.cuEventRecord(reached, stream));
        CU_OK(cu.cuStreamWaitEvent(other, reached, 0));
        CU_OK(cu.cuMemcpyHtoDAsync(last.address, host.data, host.bytes(), other));
        CHECK(host.data[0] == 0);
    }
    CU_OK(cu.cuStreamSynchronize(other));
    CHECK((memory.read<unsigned>(count) == Words(count, 10)));
    CHECK((last.read<unsigned>(count) == Words(count, 11)));
    CU_OK(cu.cuLaunchHostFunc(stream, call_function, &functions[2]));
    CU_OK(cu.cuMemcpyHtoDAsync(memory.address, host.data, host.bytes(), stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK((memory.read<unsigned>(count) == Words(count, 12)));
}

// As a GPU copies by itself, whatever the program does in another stream.
TEST_CASE("a copy from pinned memory waits for no function of another stream", "[copy][pinned]") {
    Gpu gpu;
    Stream held(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING);
    const size_t count = GENERATE(1, 25'000);
    PinnedWords host(count);
    Memory memory(host.bytes());
    host.fill(3);
    CU_OK(cu.cuCtxSynchronize());
    Gate gate(held);
    CU_OK(cu.cuMemcpyHtoDAsync(memory.address, host.data, host.bytes(), stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    Words there(count);
    CU_OK(cu.cuMemcpyDtoHAsync(there.data(), memory.address, host.bytes(), stream));
    CHECK((there == Words(count, 3)));
}

TEST_CASE("a copy of rows, to an array and one that waits see what a function before them has put there",
          "[copy][pinned]") {
    Gpu gpu;
    Stream stream;
    constexpr unsigned width = 100, height = 60;
    PinnedWords host(width * height);
    Memory memory(host.bytes()), waited(host.bytes());
    CUDA_ARRAY_DESCRIPTOR shape{width, height, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    CUarray array = nullptr;
    CU_OK(cu.cuArrayCreate(&array, &shape));
    std::function<void()> first = [&] { host.fill(5); }, second = [&] { host.fill(6); };
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_HOST, rows.srcHost = host.data, rows.srcPitch = width * word;
    rows.dstMemoryType = CU_MEMORYTYPE_DEVICE, rows.dstDevice = memory.address, rows.dstPitch = width * word;
    rows.WidthInBytes = (width - 1) * word, rows.Height = height;
    auto texels = rows;
    texels.dstMemoryType = CU_MEMORYTYPE_ARRAY, texels.dstArray = array;
    CU_OK(cu.cuMemsetD32(memory.address, 1, width * height));
    {
        Gate gate(stream);
        CU_OK(cu.cuLaunchHostFunc(stream, call_function, &first));
        CU_OK(cu.cuMemcpy2DAsync(&rows, stream));
        CU_OK(cu.cuMemcpy2DAsync(&texels, stream));
        CU_OK(cu.cuLaunchHostFunc(stream, call_function, &second));
    }
    CU_OK(cu.cuMemcpyHtoD(waited.address, host.data, host.bytes()));
    CHECK((waited.read<unsigned>(width * height) == Words(width * height, 6)));
    Words expected(width * height, 5);
    for (unsigned row = 0; row < height; ++row) expected[row * width + width - 1] = 1;
    CHECK((memory.read<unsigned>(width * height) == expected));
    auto back = texels;
    back.srcMemoryType = CU_MEMORYTYPE_ARRAY, back.srcArray = array, back.srcHost = nullptr;
    back.dstMemoryType = CU_MEMORYTYPE_HOST, back.dstHost = host.data, back.dstPitch = width * word;
    host.fill(1);
    CU_OK(cu.cuMemcpy2D(&back));
    CHECK((host.contents() == expected));
    CU_OK(cu.cuArrayDestroy(array));
}

TEST_CASE("a launched graph copies what functions of earlier launches have left", "[graph][pinned]") {
    Gpu gpu;
    Stream stream;
    const bool pinned = GENERATE(true, false);
    PinnedWords allocated(5'000);
    Words ordinary(5'000);
    auto* data = pinned ? allocated.data : ordinary.data();
    Memory memory(allocated.bytes());
    std::function<void()> grow = [&] {
        for (size_t i = 0; i < allocated.count; ++i) ++data[i];
    };
    Graph graph;
    auto copied = add_copy(graph, {}, to_device(memory.address, data, allocated.bytes()));
    add_function(graph, {copied}, grow);
    GraphExec exec(graph);
    for (int i = 0; i < 5; ++i) CU_OK(cu.cuGraphLaunch(exec, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK((memory.read<unsigned>(allocated.count) == Words(allocated.count, 4)));
    CHECK(data[0] == 5);
}

// The larger one does not fit into a message with other things, and must not go before what came before it.
TEST_CASE("a graph's function sees the last of copies to one place, whatever their sizes", "[graph][pinned]") {
    Gpu gpu;
    Stream stream;
    PinnedWords host(20'000);
    Memory small(Words(10, 3)), large(Words(20'000, 7));
    Words seen;
    std::function<void()> look = [&] { seen = host.contents(); };
    Graph graph;
    auto first = add_copy(graph, {}, to_host(host.data + 5'000, small.address, 10 * word));
    auto second = add_copy(graph, {first}, to_host(host.data, large.address, host.bytes()));
    add_function(graph, {second}, look);
    GraphExec(graph).run(stream);
    CHECK((seen == Words(20'000, 7)));
    CHECK((host.contents() == Words(20'000, 7)));
}

// Those before it keep busy who sends what its stream has copied.
TEST_CASE("copies to one place in the program's memory arrive in the GPU's order", "[copy][pinned]") {
    Gpu gpu;
    Stream one(CU_STREAM_NON_BLOCKING), two(CU_STREAM_NON_BLOCKING);
    Event reached(CU_EVENT_DISABLE_TIMING);
    PinnedWords host(20), others(20);
    Memory first(Words(20, 1)), second(Words(20, 2)), spun(32 * word);
    const Module module;
    const auto spin = module.function("spin");
    for (int round = 0; round < 60; ++round) {
        auto &before = round % 2 != 0 ? one : two, &after = round % 2 != 0 ? two : one;
        CU_OK(launch_shaped(spin, 1, 32, 0, before, spun.address, 20'000));
        for (auto* to : {&others, &others, &host})
            CU_OK(cu.cuMemcpyDtoHAsync(to->data, first.address, to->bytes(), before));
        CU_OK(cu.cuEventRecord(reached, before));
        CU_OK(cu.cuStreamWaitEvent(after, reached, 0));
        CU_OK(cu.cuMemcpyDtoHAsync(host.data, second.address, host.bytes(), after));
        CU_OK(cu.cuStreamSynchronize(after));
        CHECK(host.contents() == Words(20, 2));
    }
}

TEST_CASE("what a call has copied or filled in registered memory is there to its ends when it returns",
          "[copy][pinned]") {
    Gpu gpu;
    Registered host(30'000);
    Memory memory(host.count * word);
    const size_t bytes = host.count * word;
    const Module module;
    run_once(module.function("store"), host.address, 1);  // the GPU has had it
    auto fill = [&](unsigned value) { CU_OK(cu.cuMemsetD32(memory.address, value, host.count)); };
    fill(2);
    CU_OK(cu.cuMemcpyDtoH(host.data, memory.address, bytes));
    CHECK((host.contents() == Words(host.count, 2)));
    fill(3);
    CU_OK(cu.cuMemcpy(host.address, memory.address, bytes));
    CHECK((host.contents() == Words(host.count, 3)));
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_DEVICE, rows.srcDevice = memory.address, rows.srcPitch = 300 * word;
    rows.dstMemoryType = CU_MEMORYTYPE_HOST, rows.dstHost = host.data, rows.dstPitch = 300 * word;
    rows.WidthInBytes = 300 * word, rows.Height = 100;
    fill(4);
    CU_OK(cu.cuMemcpy2D(&rows));
    CHECK((host.contents() == Words(host.count, 4)));
    const Words here(host.count, 8);
    CU_OK(cu.cuMemcpyHtoD(host.address, here.data(), bytes));
    CHECK((host.contents() == here));
    CU_OK(cu.cuMemsetD8(host.address, 5, bytes));
    CHECK((host.contents() == Words(host.count, 0x05050505)));
    CU_OK(cu.cuMemsetD32(host.address, 6, host.count));
    CHECK((host.contents() == Words(host.count, 6)));
    CU_OK(cu.cuMemsetD2D32(host.address, 300 * word, 7, 300, 100));
    CHECK((host.contents() == Words(host.count, 7)));
}

// The stream waits for no other, so only the return of the call says that the copy is done.
TEST_CASE("no stream overtakes a copy between memory that the program and the GPU share, when the call has returned",
          "[copy][pinned]") {
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING), blocking;
    PinnedWords mapped(2'000, CU_MEMHOSTALLOC_DEVICEMAP);
    Registered registered(2'000);
    const Module module;
    const auto spin = module.function("spin");
    Memory spun(32 * word), memory(mapped.bytes());
    for (int round = 0; round < 10; ++round) {
        mapped.fill(0);
        std::fill(registered.data, registered.data + registered.count, 4);
        CU_OK(cu.cuMemsetD32(memory.address, 9, mapped.count));
        CU_OK(cu.cuCtxSynchronize());
        CU_OK(launch_shaped(spin, 1, 32, 0, blocking, spun.address, 20'000));
        CU_OK(cu.cuMemcpy(reinterpret_cast<CUdeviceptr>(mapped.data), reinterpret_cast<CUdeviceptr>(registered.data),
                          mapped.bytes()));
        CU_OK(cu.cuMemcpyDtoHAsync(mapped.data, memory.address, 10 * word, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CU_OK(cu.cuCtxSynchronize());
        CHECK((Words(mapped.data, mapped.data + 11) == Words{9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 4}));
    }
}

// The other thread's launches take all such memory to the GPU, also what a function has just written.
TEST_CASE("the GPU has what a function has written to mapped memory, whatever other threads launch", "[pinned]") {
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING);
    const bool whole_pages = GENERATE(true, false);
    PinnedWords mapped(8'000, CU_MEMHOSTALLOC_DEVICEMAP);
    Registered registered(60);
    const size_t count = whole_pages ? mapped.count : registered.count;
    auto* data = whole_pages ? mapped.data : registered.data;
    const auto address = whole_pages ? reinterpret_cast<CUdeviceptr>(mapped.data) : registered.address;
    Memory memory(count * word);
    const Module module;
    const auto nothing = module.function("nothing");
    run_once(nothing);
    std::atomic<bool> stopping = false;
    std::thread other([&] {
        cu.cuCtxSetCurrent(gpu.context);
        CUstream own = nullptr;
        cu.cuStreamCreate(&own, CU_STREAM_NON_BLOCKING);
        while (!stopping) {
            cu.cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, own, nullptr, nullptr);
            cu.cuStreamSynchronize(own);
        }
        cu.cuStreamDestroy(own);
    });
    unsigned value = 0, wrong = 0;
    std::function<void()> write = [&] { std::fill(data, data + count, value); };
    while (value < 300) {
        ++value;
        CU_OK(cu.cuLaunchHostFunc(stream, call_function, &write));
        CU_OK(cu.cuMemcpyDtoDAsync(memory.address, address, count * word, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        Words there(count);
        CU_OK(cu.cuMemcpyDtoHAsync(there.data(), memory.address, count * word, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        wrong += there != Words(count, value);
    }
    stopping = true;
    other.join();
    CHECK(wrong == 0);
}

// Ours has to bring the memory to the function; what waits for the GPU meanwhile must not be in the way.
TEST_CASE("a function gets memory that the GPU had while another thread waits for the GPU to unmap memory",
          "[pinned]") {
    Gpu gpu;
    Stream stream;
    const bool whole_pages = GENERATE(true, false);
    PinnedWords mapped(8'000, CU_MEMHOSTALLOC_DEVICEMAP);
    Registered registered(60);
    auto* data = whole_pages ? mapped.data : registered.data;
    const auto address = whole_pages ? reinterpret_cast<CUdeviceptr>(mapped.data) : registered.address;
    const Module module;
    const auto add = module.function("add");
    run_once(add, address, 0, 0);

    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    size_t bytes = 0;
    CU_OK(cu.cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUdeviceptr range = 0;
    CUmemGenericAllocationHandle allocation = 0;
    CU_OK(cu.cuMemAddressReserve(&range, bytes, 0, 0, 0));
    CU_OK(cu.cuMemCreate(&allocation, bytes, &properties, 0));
    CU_OK(cu.cuMemMap(range, bytes, 0, allocation, 0));

    const auto before = data[0];
    unsigned seen = 0;
    std::promise<void> reached;
    std::function<void()> function = [&] {
        reached.set_value();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // by then the other thread waits, as a rule
        seen = data[0]++;
    };
    CU_OK(launch(add, stream, address, 1, 5));
    CU_OK(cu.cuLaunchHostFunc(stream, call_function, &function));
    CU_OK(launch(add, stream, address, 1, 7));
    reached.get_future().wait();
    std::thread other([&] { cu.cuMemUnmap(range, bytes); });
    CU_OK(cu.cuStreamSynchronize(stream));
    other.join();
    CHECK(seen == before + 5);
    CHECK(data[0] == before + 13);
    CU_OK(cu.cuMemRelease(allocation));
    CU_OK(cu.cuMemAddressFree(range, bytes));
}

// The copy's stream has nothing to do, but waits for the null stream, which waits for the function's.
TEST_CASE("a function gets memory that the GPU had while a copy waits for the null stream", "[pinned]") {
    Gpu gpu;
    Stream stream, idle;
    PinnedWords mapped(8'000, CU_MEMHOSTALLOC_DEVICEMAP);
    const auto address = reinterpret_cast<CUdeviceptr>(mapped.data);
    Memory memory(Words{1, 2, 3});
    const Module module;
    const auto add = module.function("add");
    run_once(add, address, 0, 0);
    const bool up = GENERATE(true, false);
    unsigned seen = 0;
    std::promise<void> reached;
    std::function<void()> function = [&] {
        reached.set_value();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // by then the copy waits, as a rule
        seen = mapped.data[0];
    };
    CU_OK(launch(add, stream, address, 1, 5));
    CU_OK(cu.cuLaunchHostFunc(stream, call_function, &function));
    CU_OK(cu.cuMemsetD32Async(memory.address, 7, 1, nullptr));
    reached.get_future().wait();
    Words there{4, 5, 6};
    if (up)
        CU_OK(cu.cuMemcpyHtoDAsync(memory.address + word, there.data(), 2 * word, idle));
    else
        CU_OK(cu.cuMemcpyDtoHAsync(there.data(), memory.address, 3 * word, idle));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(seen == 5);
    if (up)
        CHECK((memory.read<unsigned>(3) == Words{7, 4, 5}));
    else
        CHECK((there == Words{7, 2, 3}));
}

// The graph was made when the memory was the program's alone: its copy reads it there, behind the function.
TEST_CASE("what a kernel leaves in memory that a graph's copy before it has read is seen", "[graph][pinned]") {
    Gpu gpu;
    Stream stream;
    PinnedWords host(8'000);
    host.fill(1);
    Memory memory(host.bytes());
    const Module module;
    const auto store = module.function("store");
    const auto address = reinterpret_cast<CUdeviceptr>(host.data);
    std::function<void()> function = [] {};
    Graph graph;
    auto called = add_function(graph, {}, function);
    add_copy(graph, {called}, to_device(memory.address, host.data, host.bytes()));
    GraphExec exec(graph);
    run_once(store, address, 2);
    {
        Gate gate(stream);
        CU_OK(cu.cuGraphLaunch(exec, stream));
        CU_OK(launch(store, stream, address, 3));
    }
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(host.data[0] == 3);
    CHECK(memory.first<unsigned>() == 2);
}
