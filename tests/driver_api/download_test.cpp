// Long copies to the host while other threads go on: no call waits for a copy that is none of its business, and none for
// ever.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>

#include "gpu.hpp"

using namespace driver_api;

// More than a connection may hold in flight (64 MiB), several times.
static constexpr size_t long_copy_bytes = size_t{192} << 20;

// Ends the process instead of a test that would hang.
struct Deadline {
    explicit Deadline(unsigned seconds) { ::alarm(seconds); }
    ~Deadline() { ::alarm(0); }
};

namespace {
struct PinnedMemory {
    explicit PinnedMemory(size_t bytes) { CU_OK(cu.cuMemHostAlloc(&address, bytes, 0)); }
    ~PinnedMemory() { cu.cuMemFreeHost(address); }
    void* address = nullptr;
};

// A thread that makes and destroys events, as fast as the worker takes them, while this lives.
class EventDestroyer {
public:
    explicit EventDestroyer(CUcontext context) : thread_([=, this] { run(context); }) {}
    ~EventDestroyer() { stop(); }
    CUresult stop() {
        over_ = true;
        if (thread_.joinable()) thread_.join();
        return result_;
    }

private:
    void run(CUcontext context) {
        size_t free = 0, total = 0;
        result_ = cu.cuCtxSetCurrent(context);
        while (!over_ && result_ == CUDA_SUCCESS) {
            CUevent event = nullptr;
            result_ = cu.cuEventCreate(&event, CU_EVENT_DEFAULT);
            if (result_ == CUDA_SUCCESS) result_ = cu.cuEventDestroy(event);
            if (result_ == CUDA_SUCCESS) result_ = cu.cuMemGetInfo(&free, &total);  // is answered when it is destroyed
        }
    }
    std::atomic<bool> over_{false};
    CUresult result_ = CUDA_SUCCESS;
    std::thread thread_;
};
}  // namespace

FRESH_PROCESS_TEST_CASE("a watched event completes and others are destroyed during a long copy", "[download]") {
    Deadline deadline(120);
    Gpu gpu;
    Memory source(long_copy_bytes);
    PinnedMemory target(long_copy_bytes);
    std::vector<std::byte> pageable(long_copy_bytes);
    Stream copying(CU_STREAM_NON_BLOCKING), watched(CU_STREAM_NON_BLOCKING);
    CU_OK(cu.cuCtxSynchronize());  // what Memory fills itself with does not hold up such streams
    for (bool wait : {false, true, false, true}) {
        Event event;
        Gate gate(watched);
        CU_OK(cu.cuEventRecord(event, watched));
        CU_CHECK(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);  // from now on its completion is news
        EventDestroyer destroyer(gpu.context);
        if (wait) {
            std::thread opener([&] { gate.open(); });
            CU_OK(cu.cuMemcpyDtoH(pageable.data(), source.address, long_copy_bytes));
            opener.join();
        } else {
            CU_OK(cu.cuMemcpyDtoHAsync(target.address, source.address, long_copy_bytes, copying));
            gate.open();
        }
        while (cu.cuEventQuery(event) == CUDA_ERROR_NOT_READY) continue;
        CU_CHECK(cu.cuEventQuery(event), CUDA_SUCCESS);
        CU_OK(cu.cuStreamSynchronize(copying));
        CU_CHECK(destroyer.stop(), CUDA_SUCCESS);
    }
}

// An answer may stand in line behind as many pieces as a connection holds, which is a sixth of the copy. One that waited for the
// copy itself would come with its end; the first may be given before the copy has begun.
FRESH_PROCESS_TEST_CASE("another stream's state is known while a long copy is on its way", "[download]") {
    using Clock = std::chrono::steady_clock;
    Deadline deadline(120);
    static constexpr size_t bytes = 2 * long_copy_bytes;
    Gpu gpu;
    Memory source(bytes);
    PinnedMemory target(bytes);
    Stream copying(CU_STREAM_NON_BLOCKING), held(CU_STREAM_NON_BLOCKING);
    Event never[2];
    CU_OK(cu.cuCtxSynchronize());
    Gate gate(held);
    for (auto& event : never) CU_OK(cu.cuEventRecord(event, held));
    auto begun = Clock::now();
    CU_OK(cu.cuMemcpyDtoHAsync(target.address, source.address, bytes, copying));
    for (auto& event : never) CU_CHECK(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    auto answered = Clock::now() - begun;
    CU_OK(cu.cuStreamSynchronize(copying));
    auto copied = Clock::now() - begun;
    gate.open();
    CHECK(answered.count() * 4 < copied.count() * 3);
}

TEST_CASE("a wait that has seen a copy done finds its data there", "[download]") {
    Gpu gpu;
    for (size_t bytes : {size_t{4} << 10, size_t{5} << 20}) {  // in the answer, and in pieces
        std::vector<int> values(bytes / sizeof(int));
        Memory source(bytes);
        PinnedMemory target(bytes);
        auto* last = static_cast<int*>(target.address) + values.size() - 1;
        Stream copying(CU_STREAM_NON_BLOCKING), other(CU_STREAM_NON_BLOCKING);
        Event copied;
        CU_OK(cu.cuCtxSynchronize());  // what Memory fills itself with does not hold up such streams
        for (int round = 1; round <= 200; ++round) {
            CU_OK(cu.cuMemsetD32Async(source.address, static_cast<unsigned>(round), values.size(), copying));
            CU_OK(cu.cuMemcpyDtoHAsync(target.address, source.address, bytes, copying));
            CU_OK(cu.cuEventRecord(copied, copying));
            switch (round % 5) {
                case 0:
                    CU_OK(cu.cuStreamSynchronize(copying));
                    break;
                case 1:
                    CU_OK(cu.cuEventSynchronize(copied));
                    break;
                case 2:
                    CU_OK(cu.cuStreamWaitEvent(other, copied, 0));
                    CU_OK(cu.cuStreamSynchronize(other));
                    break;
                case 3:
                    CU_OK(cu.cuCtxSynchronize());
                    break;
                case 4:
                    while (cu.cuEventQuery(copied) == CUDA_ERROR_NOT_READY) continue;
                    CU_CHECK(cu.cuEventQuery(copied), CUDA_SUCCESS);
            }
            REQUIRE(*last == round);
        }
    }
}

// Whatever the worker does to hear of completions, events that never come must not use it up.
FRESH_PROCESS_TEST_CASE("an event completes while a hundred others do not", "[download]") {
    Deadline deadline(120);
    Gpu gpu;
    Module module;
    Memory out(32 * sizeof(unsigned));
    Stream stream(CU_STREAM_NON_BLOCKING);
    Event done;
    CUfunction spin = module.function("spin");
    run_once(spin, out.address, 1);
    Stream held(CU_STREAM_NON_BLOCKING);
    Gate gate(held);
    std::vector<std::unique_ptr<Event>> events;
    for (int i = 0; i < 100; ++i) {
        CU_OK(cu.cuEventRecord(*events.emplace_back(std::make_unique<Event>()), held));
        CU_CHECK(cu.cuEventQuery(*events.back()), CUDA_ERROR_NOT_READY);
    }
    // Not with another gate: host functions run one after the other.
    auto asked = CUDA_SUCCESS;
    for (unsigned rounds = 10'000; asked == CUDA_SUCCESS; rounds *= 4) {  // until the work outlasts the question
        CU_OK(launch_shaped(spin, 1, 32, 0, stream, out.address, rounds));
        CU_OK(cu.cuEventRecord(done, stream));
        asked = cu.cuEventQuery(done);
    }
    while (cu.cuEventQuery(done) == CUDA_ERROR_NOT_READY) continue;
    CU_CHECK(cu.cuEventQuery(done), CUDA_SUCCESS);
    for (auto& event : events) CU_CHECK(cu.cuEventQuery(*event), CUDA_ERROR_NOT_READY);
    gate.open();
    for (auto& event : events) {
        while (cu.cuEventQuery(*event) == CUDA_ERROR_NOT_READY) continue;
        CU_CHECK(cu.cuEventQuery(*event), CUDA_SUCCESS);
    }
}

// The order in which a program asks is its own: the later event's completion waits for the program to see the earlier's.
FRESH_PROCESS_TEST_CASE("a program that waits for events latest first sees the earliest in time", "[download]") {
    Deadline deadline(120);
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING);
    Event early, late;
    auto first = std::make_unique<Gate>(stream);
    CU_OK(cu.cuEventRecord(early, stream));
    auto second = std::make_unique<Gate>(stream);
    CU_OK(cu.cuEventRecord(late, stream));
    CU_CHECK(cu.cuEventQuery(late), CUDA_ERROR_NOT_READY);
    CU_CHECK(cu.cuEventQuery(early), CUDA_ERROR_NOT_READY);
    first->open();
    while (cu.cuEventQuery(early) == CUDA_ERROR_NOT_READY) continue;
    CU_CHECK(cu.cuEventQuery(late), CUDA_ERROR_NOT_READY);
    second->open();
    CU_OK(cu.cuEventSynchronize(late));
}

// The worker holds events that are waited for; their context goes at last, and with everything in it.
FRESH_PROCESS_TEST_CASE("a context is destroyed while its events are watched", "[download]") {
    Deadline deadline(120);
    Gpu gpu;
    for (int round = 0; round < 20; ++round) {
        CUcontext context = nullptr;
        CU_OK(cu.context_create(&context, 0, gpu.device));
        CUstream stream = nullptr;
        CUevent event = nullptr;
        CU_OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CU_OK(cu.cuEventCreate(&event, CU_EVENT_DEFAULT));
        Gate gate(stream);
        CU_OK(cu.cuEventRecord(event, stream));
        CU_CHECK(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
        CU_CHECK(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
        gate.open();
        CU_OK(cu.cuCtxDestroy(context));
        CU_OK(cu.cuCtxSetCurrent(gpu.context));
        CU_OK(cu.cuCtxSynchronize());
    }
}

TEST_CASE("short copies to the program that stand in a stream are more than what is kept for them", "[download]") {
    constexpr int count = 3000;
    Deadline deadline(120);
    Gpu gpu;
    Module module;
    auto add = module.function("add");
    Memory value(std::vector<int>{0});
    PinnedMemory seen(count * sizeof(int));
    auto* words = static_cast<int*>(seen.address);
    Stream stream;
    run_once(add, value.address, 1, 0);
    Gate gate(stream);
    for (int i = 0; i < count; ++i) {
        if (i == count / 10) gate.open();  // from here on the first ones leave while others come
        CU_OK(launch(add, stream, value.address, 1, 1));
        CU_OK(cu.cuMemcpyDtoHAsync(words + i, value.address, sizeof(int), stream));
    }
    CU_OK(cu.cuStreamSynchronize(stream));
    std::vector<int> expected(count);
    std::iota(expected.begin(), expected.end(), 1);
    CHECK(std::vector<int>(words, words + count) == expected);
}

#if defined(__has_feature)
constexpr bool sanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool sanitized = false;
#endif

TEST_CASE("long copies to the program in many streams at once all arrive", "[download]") {
    // Two blocks for each stream would be more than there are. With a sanitizer these bytes would take a minute.
    constexpr size_t streams = sanitized ? 16 : 80, each = size_t{4} << 20;
    Deadline deadline(120);
    Gpu gpu;
    Memory source(each);
    PinnedMemory target(streams * each);
    auto* bytes = static_cast<char*>(target.address);
    std::memset(bytes, 0, streams * each);
    CU_OK(cu.cuMemsetD8(source.address, 7, each));
    std::vector<std::unique_ptr<Stream>> all;
    for (size_t i = 0; i < streams; ++i) all.push_back(std::make_unique<Stream>(CU_STREAM_NON_BLOCKING));
    Event opened;
    Stream first;
    Gate gate(first);
    CU_OK(cu.cuEventRecord(opened, first));
    for (size_t i = 0; i < streams; ++i) {
        CU_OK(cu.cuStreamWaitEvent(*all[i], opened, 0));
        CU_OK(cu.cuMemcpyDtoHAsync(bytes + i * each, source.address, each, *all[i]));
    }
    gate.open();
    CU_OK(cu.cuCtxSynchronize());
    CHECK(size_t(std::count(bytes, bytes + streams * each, 7)) == streams * each);
}
