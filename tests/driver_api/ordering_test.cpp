// What waits for what: within a stream, across streams by events, and the default streams. Gates hold a stream, so
// that "does not wait" is seen as a call that completes while the gate is shut.
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <numeric>
#include <thread>

#include "gpu.hpp"

using namespace driver_api;

TEST_CASE("work in one stream runs in the order it was given", "[ordering]") {
    Gpu gpu;
    Module module;
    Stream stream;
    CUfunction advance = module.function("advance");
    Memory value(std::vector<int>{0});
    for (int i = 0; i < 300; ++i) CU_OK(launch(advance, stream, value.address, i, i + 1));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(value.first<int>() == 300);
}

TEST_CASE("copies, fills and kernels of one stream keep their order", "[ordering]") {
    Gpu gpu;
    Module module;
    Stream stream;
    CUfunction advance = module.function("advance");
    Memory value(std::vector<int>{0}), copy(std::vector<int>{0});
    int two = 2, last = 0;
    CU_OK(cu.cuMemsetD32Async(value.address, 1, 1, stream));
    CU_OK(launch(advance, stream, value.address, 1, 5));
    CU_OK(cu.cuMemcpyDtoDAsync(copy.address, value.address, sizeof(int), stream));
    CU_OK(cu.cuMemcpyHtoDAsync(value.address, &two, sizeof(int), stream));
    CU_OK(launch(advance, stream, copy.address, 5, 6));
    CU_OK(cu.cuMemcpyDtoHAsync(&last, copy.address, sizeof(int), stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(last == 6);
    CHECK(value.first<int>() == 2);
}

TEST_CASE("a launch returns before its work is done", "[ordering]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0});
    Gate gate(stream);
    CU_OK(launch(module.function("store"), stream, value.address, 1));
    CU_CHECK(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    gate.open();
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_CHECK(cu.cuStreamQuery(stream), CUDA_SUCCESS);
    CHECK(value.first<int>() == 1);
}

TEST_CASE("a stream waits for another one's event and for nothing recorded later", "[ordering]") {
    Gpu gpu;
    Module module;
    Stream producer(CU_STREAM_NON_BLOCKING), consumer(CU_STREAM_NON_BLOCKING);
    Event produced(CU_EVENT_DISABLE_TIMING);
    Memory value(std::vector<int>{0}), seen(std::vector<int>{0});
    {
        Gate gate(producer);
        CU_OK(launch(module.function("store"), producer, value.address, 9));
        CU_OK(cu.cuEventRecord(produced, producer));
        CU_OK(cu.cuStreamWaitEvent(consumer, produced, 0));
        CU_OK(launch(module.function("copy_ints"), consumer, value.address, seen.address, 1));
        CU_CHECK(cu.cuStreamQuery(consumer), CUDA_ERROR_NOT_READY);
        CU_CHECK(cu.cuEventQuery(produced), CUDA_ERROR_NOT_READY);
    }
    CU_OK(cu.cuStreamSynchronize(consumer));
    CHECK(seen.first<int>() == 9);

    // The event is recorded again after the wait was given: the wait is for the record before.
    CU_OK(cu.cuStreamSynchronize(producer));
    CU_OK(cu.cuStreamWaitEvent(consumer, produced, 0));
    Gate gate(producer);
    CU_OK(cu.cuEventRecord(produced, producer));
    CU_OK(cu.cuStreamSynchronize(consumer));
}

TEST_CASE("waiting for an event that was never recorded waits for nothing", "[ordering]") {
    Gpu gpu;
    Stream stream;
    Event event;
    CU_OK(cu.cuStreamWaitEvent(stream, event, 0));
    CU_OK(cu.cuStreamSynchronize(stream));
}

TEST_CASE("independent streams do not hold each other up", "[ordering]") {
    Gpu gpu;
    Module module;
    Stream held(CU_STREAM_NON_BLOCKING), free_stream(CU_STREAM_NON_BLOCKING), other(CU_STREAM_DEFAULT);
    Memory value(std::vector<int>{0, 0});
    CUfunction store = module.function("store");
    run_once(store, value.address, 0);
    Gate gate(held);
    CU_OK(launch(store, free_stream, value.address, 3));
    CU_OK(launch(store, other, value.address + 4, 4));
    CU_OK(cu.cuStreamSynchronize(free_stream));
    CU_OK(cu.cuStreamSynchronize(other));
    gate.open();
    CHECK(value.read<int>(2) == std::vector<int>{3, 4});
}

TEST_CASE("the legacy default stream waits for blocking streams, and they for it", "[ordering]") {
    Gpu gpu;
    Module module;
    Stream blocking, later;
    Memory value(std::vector<int>{0});
    CUfunction advance = module.function("advance");
    {
        Gate gate(blocking);
        CU_OK(launch(advance, blocking, value.address, 0, 1));
        CU_OK(launch(advance, nullptr, value.address, 1, 2));
        CU_OK(launch(advance, later, value.address, 2, 3));
        CU_CHECK(cu.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
        CU_CHECK(cu.cuStreamQuery(later), CUDA_ERROR_NOT_READY);
    }
    CU_OK(cu.cuStreamSynchronize(later));
    CHECK(value.first<int>() == 3);
}

TEST_CASE("the legacy default stream and non-blocking streams ignore each other", "[ordering]") {
    Gpu gpu;
    Module module;
    Stream held(CU_STREAM_NON_BLOCKING);
    Memory value(std::vector<int>{0});
    CUfunction store = module.function("store");
    run_once(store, value.address, 0);
    {
        Gate gate(held);
        CU_OK(launch(store, CU_STREAM_LEGACY, value.address, 5));
        CU_OK(cu.cuStreamSynchronize(nullptr));
        CHECK(value.first<int>() == 5);
    }
    CU_OK(cu.cuStreamSynchronize(held));  // else its function may begin after the next one, and wait for that
    Gate gate(nullptr);
    CU_OK(launch(store, held, value.address, 6));
    CU_OK(cu.cuStreamSynchronize(held));
}

TEST_CASE("a synchronous copy waits for work before it in the legacy default stream", "[ordering]") {
    Gpu gpu;
    Module module;
    Stream blocking;
    Memory out(32 * sizeof(unsigned)), value(std::vector<int>{0});
    CU_OK(launch_shaped(module.function("spin"), 1, 32, 0, blocking, out.address, 20'000));
    CU_OK(launch(module.function("store"), blocking, value.address, 1));
    CHECK(value.first<int>() == 1);  // no synchronisation but the copy's own
}

TEST_CASE("waiting for the context waits for every stream of it", "[ordering]") {
    Gpu gpu;
    Module module;
    Stream first(CU_STREAM_NON_BLOCKING), second(CU_STREAM_NON_BLOCKING);
    constexpr size_t bytes = 32 * sizeof(unsigned);
    Memory out(2 * bytes);
    CU_OK(cu.cuStreamSynchronize(nullptr));  // its fill, for which these streams do not wait
    Event done[2];
    CUstream streams[] = {first, second};
    for (size_t i = 0; i < 2; ++i) {
        CU_OK(launch_shaped(module.function("spin"), 1, 32, 0, streams[i], out.address + i * bytes, 5'000));
        CU_OK(cu.cuEventRecord(done[i], streams[i]));
    }
    CU_OK(cu.cuCtxSynchronize());
    CU_CHECK(cu.cuEventQuery(done[0]), CUDA_SUCCESS);
    CU_CHECK(cu.cuEventQuery(done[1]), CUDA_SUCCESS);
}

TEST_CASE("each thread has a default stream of its own, by handle and by entry point", "[ordering][per-thread]") {
    Gpu gpu;
    Module module;
    CUfunction store = module.function("store");
    Memory value(std::vector<int>{0, 0});
    run_once(store, value.address, 0);
    Gate gate(CU_STREAM_PER_THREAD);
    CU_CHECK(cu.stream_query_per_thread(nullptr), CUDA_ERROR_NOT_READY);  // the same stream by the other way
    CUresult results[4] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN};
    std::thread([&] {
        results[0] = cu.cuCtxSetCurrent(gpu.context);
        int number = 7;
        void* arguments[] = {&value.address, &number};
        results[1] = cu.launch_kernel_per_thread(store, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
        results[2] = cu.stream_synchronize_per_thread(nullptr);  // while the other thread's stream is held
        results[3] = cu.cuStreamQuery(CU_STREAM_PER_THREAD);
    }).join();
    for (CUresult result : results) CU_CHECK(result, CUDA_SUCCESS);
    gate.open();
    CU_OK(cu.stream_synchronize_per_thread(nullptr));
    CHECK(value.first<int>() == 7);
}

TEST_CASE("per-thread entry points use the thread's stream for copies, fills and events", "[ordering][per-thread]") {
    Gpu gpu;
    Stream blocking;
    Event event;
    Memory memory(4 * sizeof(int));
    std::vector<int> data{1, 2, 3, 4}, back(4, 0);
    Gate gate(blocking);  // would hold the legacy default stream
    CU_OK(cu.copy_to_device_async_per_thread(memory.address, data.data(), 16, nullptr));
    CU_OK(cu.memset_per_thread(memory.address, 9, 1, nullptr));
    CU_OK(cu.event_record_per_thread(event, nullptr));
    CU_OK(cu.cuEventSynchronize(event));
    CU_OK(cu.copy_to_host_per_thread(back.data(), memory.address, 16));
    CHECK(back == std::vector<int>{9, 2, 3, 4});
}

TEST_CASE("the legacy default stream waits for per-thread streams", "[ordering][per-thread]") {
    Gpu gpu;
    Gate gate(CU_STREAM_PER_THREAD);
    Event event;
    CU_OK(cu.cuEventRecord(event, CU_STREAM_LEGACY));
    CU_CHECK(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    gate.open();
    CU_OK(cu.cuEventSynchronize(event));
}

// What the kernel says of a thread of this process: whether it waits, and how often it has begun to.
static std::pair<bool, std::string> waits(pid_t thread) {
    std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
    bool sleeping = false;
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("State:")) sleeping = line.find("S (sleeping)") != std::string::npos;
        if (line.starts_with("voluntary_ctxt_switches:")) return {sleeping, line};
    }
    return {sleeping, ""};
}

// A host function that lasts until the program waits in the driver: seen waiting, for the same thing, a few times in a row.
// A driver that spins instead is given a moment.
static void until_program_waits(void* thread) {
    constexpr auto moment = std::chrono::milliseconds(300), between = std::chrono::milliseconds(2);
    constexpr int looks = 5;
    auto give_up = std::chrono::steady_clock::now() + moment;
    std::pair<bool, std::string> last;
    for (int same = 0; same < looks && std::chrono::steady_clock::now() < give_up;) {
        auto now = waits(static_cast<pid_t>(reinterpret_cast<intptr_t>(thread)));
        same = now.first && now == last ? same + 1 : 0;
        last = now;
        std::this_thread::sleep_for(between);
    }
}

static void* this_thread() {
    return reinterpret_cast<void*>(static_cast<intptr_t>(gettid()));
}

// More than a connection may hold is on its way when the host function ends: the news of it must get past.
TEST_CASE("a host function ends while the program sends more than is taken", "[ordering]") {
    Gpu gpu;
    Stream stream;
    std::vector<char> data(1 << 20, 7);
    Memory target(data.size());
    CU_OK(cu.cuLaunchHostFunc(stream, until_program_waits, this_thread()));
    for (int i = 0; i < 200; ++i) CU_OK(cu.cuMemcpyHtoDAsync(target.address, data.data(), data.size(), stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(target.read<char>(1, data.size() - 1)[0] == 7);
}

// Its stream is gone, but not its work.
TEST_CASE("a context is waited for while the host function of a destroyed stream runs", "[ordering]") {
    Gpu gpu;
    CUstream stream = nullptr;
    CU_OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    std::atomic<bool> ran{false};
    CU_OK(cu.cuLaunchHostFunc(stream, until_program_waits, this_thread()));
    CU_OK(cu.cuLaunchHostFunc(
        stream, [](void* ran) { *static_cast<std::atomic<bool>*>(ran) = true; }, &ran));
    CU_OK(cu.cuStreamDestroy(stream));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(ran);
}

// Between client and worker all of a round but the question travels without waiting, in one batch with it; the worker
// destroys the stream on another thread meanwhile. Nothing behind may get lost, whenever that thread is done.
TEST_CASE("a question behind a stream's destruction is answered every time", "[ordering]") {
    Gpu gpu;
    size_t free = 0, total = 0;
    for (int round = 0; round < 5'000; ++round) {
        CUstream stream = nullptr;
        CU_OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CU_OK(cu.cuStreamDestroy(stream));
        CU_OK(cu.cuMemGetInfo(&free, &total));
    }
}

// More than a GPU server's worker may have threads.
TEST_CASE("fifteen hundred streams wait for each other in turn, with a copy to the program in each", "[ordering]") {
    constexpr int count = 1500;
    Gpu gpu;
    Module module;
    auto add = module.function("add");
    Memory value(std::vector<int>{0});
    int* seen = nullptr;
    CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&seen), count * sizeof(int), 0));
    run_once(add, value.address, 1, 0);
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Event>> events;
    for (int i = 0; i < count; ++i) {
        streams.push_back(std::make_unique<Stream>(CU_STREAM_NON_BLOCKING));
        events.push_back(std::make_unique<Event>(CU_EVENT_DISABLE_TIMING));
    }
    Gate gate(*streams[0]);
    for (size_t i = 0; i < count; ++i) {
        if (i > 0) CU_OK(cu.cuStreamWaitEvent(*streams[i], *events[i - 1], 0));
        CU_OK(launch(add, *streams[i], value.address, 1, 1));
        CU_OK(cu.cuMemcpyDtoHAsync(seen + i, value.address, sizeof(int), *streams[i]));
        CU_OK(cu.cuEventRecord(*events[i], *streams[i]));
    }
    gate.open();
    CU_OK(cu.cuStreamSynchronize(*streams.back()));
    std::vector<int> expected(count);
    std::iota(expected.begin(), expected.end(), 1);
    CHECK(std::vector<int>(seen, seen + count) == expected);
    cu.cuMemFreeHost(seen);
}
