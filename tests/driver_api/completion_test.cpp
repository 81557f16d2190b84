// What a wait tells of the work before it: a question asked after it must not be answered from before it.
#include <dlfcn.h>

#include <atomic>
#include <optional>

#include "gpu.hpp"

using namespace driver_api;

namespace {

constexpr int tries = 400;

// How often our client library has waited for the network; always 0 with a driver that does not know one.
unsigned long long round_trips() {
    auto* count = reinterpret_cast<unsigned long long (*)()>(dlsym(cu.library, "cuTnrRoundTrips"));
    return count ? count() : 0;
}

// A little work of another length each time, an event behind each part, and a question or two while it runs.
class Race {
public:
    void begin(int length, CUstream stream) {
        std::optional<Gate> gate;
        if (length % 2 == 0) gate.emplace(stream);  // then every question is answered "not ready"
        CU_OK(launch_shaped(spin_, 1, 32, 0, stream, out_.address, length * 37 % 200));
        CU_OK(cu.cuEventRecord(first, stream));
        CU_OK(launch_shaped(spin_, 1, 32, 0, stream, out_.address, length * 61 % 200));
        CU_OK(cu.cuEventRecord(last, stream));
        for (int asked = 0; asked < length % 4; ++asked) {
            (void)cu.cuEventQuery(first);
            (void)cu.cuStreamQuery(stream);
            (void)cu.cuEventQuery(last);
        }
    }
    // Of what is complete, called one of them incomplete.
    void end(CUstream stream) {
        stale += cu.cuEventQuery(first) != CUDA_SUCCESS;
        stale += cu.cuEventQuery(last) != CUDA_SUCCESS;
        stale += cu.cuStreamQuery(stream) != CUDA_SUCCESS;
    }

    Event first, last;
    int stale = 0;

private:
    Module module_;
    CUfunction spin_ = module_.function("spin");
    Memory out_{32 * sizeof(unsigned)};
};

}  // namespace

TEST_CASE("events before a wait for their stream are complete", "[completion]") {
    Gpu gpu;
    Stream stream;
    Race race;
    for (int i = 0; i < tries; ++i) {
        race.begin(i, stream);
        CU_OK(cu.cuStreamSynchronize(stream));
        race.end(stream);
    }
    CHECK(race.stale == 0);
}

TEST_CASE("events before one that was waited for are complete", "[completion]") {
    Gpu gpu;
    Stream stream;
    Race race;
    for (int i = 0; i < tries; ++i) {
        race.begin(i, stream);
        CU_OK(cu.cuEventSynchronize(race.last));
        race.end(stream);
    }
    CHECK(race.stale == 0);
}

TEST_CASE("events before one that has been seen to be complete are complete", "[completion]") {
    Gpu gpu;
    Stream stream;
    Race race;
    for (int i = 0; i < tries; ++i) {
        race.begin(i, stream);
        while (cu.cuEventQuery(race.last) == CUDA_ERROR_NOT_READY) continue;
        race.end(stream);
    }
    CHECK(race.stale == 0);
}

TEST_CASE("a stream that is done tells of the streams it has waited for", "[completion]") {
    Gpu gpu;
    Stream stream, between(CU_STREAM_NON_BLOCKING), other(CU_STREAM_NON_BLOCKING);
    Event reached;
    Race race;
    for (int i = 0; i < tries; ++i) {
        race.begin(i, stream);
        CU_OK(cu.cuStreamWaitEvent(between, race.last, 0));
        CU_OK(cu.cuEventRecord(reached, between));
        CU_OK(cu.cuStreamWaitEvent(other, reached, 0));
        CU_OK(cu.cuStreamSynchronize(other));
        race.end(stream);
    }
    CHECK(race.stale == 0);
}

TEST_CASE("the null stream tells of the streams it waits for, and they of it", "[completion]") {
    Gpu gpu;
    Stream stream;
    Event behind;
    Module module;
    Memory value(std::vector<int>{0});
    Race race;
    for (int i = 0; i < tries; ++i) {
        bool null_first = i % 2 == 0;
        CUstream waited = null_first ? stream.handle : nullptr;
        race.begin(i, null_first ? nullptr : stream.handle);
        CU_OK(launch(module.function("store"), waited, value.address, i));
        CU_OK(cu.cuStreamSynchronize(waited));
        race.end(null_first ? nullptr : stream.handle);
    }
    CHECK(race.stale == 0);
}

TEST_CASE("the time between two events tells that they are complete", "[completion]") {
    Gpu gpu;
    Stream stream;
    Race race;
    for (int i = 0; i < tries; ++i) {
        race.begin(i, stream);
        float time_ms = 0;
        CUresult result = CUDA_ERROR_NOT_READY;
        while (result == CUDA_ERROR_NOT_READY) result = cu.cuEventElapsedTime(&time_ms, race.first, race.last);
        CU_OK(result);
        race.end(stream);
    }
    CHECK(race.stale == 0);
}

TEST_CASE("a host function tells of the work before it", "[completion]") {
    Gpu gpu;
    Stream stream;
    Race race;
    for (int i = 0; i < tries; ++i) {
        race.begin(i, stream);
        std::promise<void> reached;
        CU_OK(cu.cuLaunchHostFunc(
            stream, [](void* promise) { static_cast<std::promise<void>*>(promise)->set_value(); }, &reached));
        reached.get_future().wait();
        race.stale += cu.cuEventQuery(race.first) != CUDA_SUCCESS;
        race.stale += cu.cuEventQuery(race.last) != CUDA_SUCCESS;
    }
    CHECK(race.stale == 0);
}

TEST_CASE("a stream that takes a destroyed one's place knows nothing of its work", "[completion]") {
    Gpu gpu;
    Stream held;
    Event event;
    Gate gate(held);
    {
        Stream ending(CU_STREAM_NON_BLOCKING);
        Event opened;
        CU_OK(cu.cuEventRecord(opened, held));
        CU_OK(cu.cuStreamWaitEvent(ending, opened, 0));
        CU_OK(cu.cuEventRecord(event, ending));
    }
    for (int i = 0; i < 4; ++i) {
        Stream next(CU_STREAM_NON_BLOCKING);
        CU_OK(cu.cuStreamSynchronize(next));
        CU_CHECK(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    }
    gate.open();
    CU_OK(cu.cuEventSynchronize(event));
}

TEST_CASE("what a wait has told is not asked for again", "[completion]") {
    Gpu gpu;
    Stream stream;
    Event null_first, null_last;
    Race race;
    race.begin(3, stream);
    CU_OK(cu.cuStreamSynchronize(stream));
    auto before = round_trips();
    race.end(stream);
    CU_OK(cu.cuEventSynchronize(race.first));
    CHECK(round_trips() == before);

    race.begin(3, stream);
    CU_OK(cu.cuEventSynchronize(race.last));
    before = round_trips();
    race.end(stream);
    CHECK(round_trips() == before);

    CU_OK(cu.cuEventRecord(null_first, nullptr));
    CU_OK(cu.cuEventRecord(null_last, nullptr));
    CU_OK(cu.cuEventSynchronize(null_last));
    before = round_trips();
    CU_OK(cu.cuEventQuery(null_first));
    CHECK(round_trips() == before);
    CHECK(race.stale == 0);
}

TEST_CASE("waiting by asking costs two round trips and no more", "[completion]") {
    Gpu gpu;
    Stream stream;
    Event event;
    Gate gate(stream);
    CU_OK(cu.cuEventRecord(event, stream));
    CU_CHECK(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    auto before = round_trips();
    for (int i = 0; i < 1000; ++i) CU_CHECK(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    CHECK(round_trips() <= before + 1);
    gate.open();
    while (cu.cuEventQuery(event) == CUDA_ERROR_NOT_READY) continue;
    CHECK(round_trips() <= before + 2);
}

TEST_CASE("waiting for a stream that a copy has waited for costs no round trip", "[completion]") {
    Gpu gpu;
    Stream stream;
    Module module;
    Memory value(std::vector<int>{0});
    for (CUstream one : {stream.handle, CUstream{}}) {
        int got = 0;
        CU_OK(launch(module.function("store"), one, value.address, 7));
        CU_OK(cu.cuMemcpyDtoHAsync(&got, value.address, sizeof got, one));
        CHECK(got == 7);
        auto before = round_trips();
        CU_OK(cu.cuStreamSynchronize(one));
        CU_OK(cu.cuStreamSynchronize(one));
        CHECK(round_trips() == before);
    }
}

TEST_CASE("a wait is one where anything is left to wait for", "[completion]") {
    Gpu gpu;
    Stream stream;
    Module module;
    Memory value(std::vector<int>{0});
    int got = 0;
    int* pinned = nullptr;
    CU_OK(cu.cuMemHostAlloc(reinterpret_cast<void**>(&pinned), sizeof *pinned, 0));
    for (int i = 1; i <= tries; ++i) {
        // A copy to pinned memory before the one that waits.
        CU_OK(launch(module.function("store"), stream, value.address, i));
        CU_OK(cu.cuMemcpyDtoHAsync(pinned, value.address, sizeof *pinned, stream));
        CU_OK(cu.cuMemcpyDtoHAsync(&got, value.address, sizeof got, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        REQUIRE(*pinned == i);
        // A host function and a set of pinned memory behind it.
        std::atomic<bool> reached{false};
        CU_OK(cu.cuLaunchHostFunc(
            stream, [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &reached));
        CU_OK(cu.cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(pinned), 0, 1, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        REQUIRE(reached);
        REQUIRE(*pinned == 0);
    }
    CU_OK(cu.cuMemFreeHost(pinned));
}
