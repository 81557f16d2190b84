// Events: their state and the time between them.
#include <thread>

#include "gpu.hpp"

using namespace driver_api;

TEST_CASE("an event that was never recorded counts as complete", "[event]") {
    Gpu gpu;
    Event event;
    CU_CHECK(cu.cuEventQuery(event), CUDA_SUCCESS);
    CU_CHECK(cu.cuEventSynchronize(event), CUDA_SUCCESS);
}

TEST_CASE("an event is complete once the work before it is", "[event]") {
    Gpu gpu;
    Stream stream;
    Event event;
    Gate gate(stream);
    CU_OK(cu.cuEventRecord(event, stream));
    CU_CHECK(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    gate.open();
    CU_OK(cu.cuEventSynchronize(event));
    CU_CHECK(cu.cuEventQuery(event), CUDA_SUCCESS);
}

TEST_CASE("an event means its latest record", "[event]") {
    Gpu gpu;
    Stream stream;
    Event event;
    CU_OK(cu.cuEventRecord(event, stream));
    CU_OK(cu.cuEventSynchronize(event));
    Gate gate(stream);
    CU_OK(cu.cuEventRecord(event, stream));
    CU_CHECK(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    gate.open();
    CU_OK(cu.cuEventSynchronize(event));
}

TEST_CASE("the time between two events is that of the work between them", "[event]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Event start, middle, end;
    Memory out(32 * sizeof(unsigned));
    static constexpr int at_least_ms = 50;  // however busy the machine is
    CU_OK(cu.cuEventRecord(start, stream));
    CU_OK(launch_shaped(module.function("spin"), 1, 32, 0, stream, out.address, 100));
    CU_OK(cu.cuEventRecord(middle, stream));
    CU_OK(cu.cuLaunchHostFunc(
        stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(at_least_ms)); }, nullptr));
    CU_OK(cu.cuEventRecord(end, stream));
    CU_OK(cu.cuEventSynchronize(end));
    float first = -1, second = -1, both = -1, backwards = 1;
    CU_OK(cu.cuEventElapsedTime(&first, start, middle));
    CU_OK(cu.cuEventElapsedTime(&second, middle, end));
    CU_OK(cu.cuEventElapsedTime(&both, start, end));
    CU_OK(cu.cuEventElapsedTime(&backwards, end, start));
    CHECK(first >= 0);
    CHECK(second >= at_least_ms - 1);                    // the two clocks are not one
    CHECK(both == Approx(first + second).margin(0.01));  // the resolution is about half a microsecond
    CHECK(backwards == Approx(-both).margin(0.01));
}

TEST_CASE("times of events that have none are refused", "[event]") {
    Gpu gpu;
    Stream stream;
    Event recorded, unrecorded, untimed(CU_EVENT_DISABLE_TIMING);
    float time_ms = 0;
    CU_OK(cu.cuEventRecord(recorded, stream));
    CU_OK(cu.cuEventRecord(untimed, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_CHECK(cu.cuEventElapsedTime(&time_ms, recorded, unrecorded), CUDA_ERROR_INVALID_HANDLE);
    CU_CHECK(cu.cuEventElapsedTime(&time_ms, recorded, untimed), CUDA_ERROR_INVALID_HANDLE);
    Gate gate(stream);
    Event pending;
    CU_OK(cu.cuEventRecord(pending, stream));
    CU_CHECK(cu.cuEventElapsedTime(&time_ms, recorded, pending), CUDA_ERROR_NOT_READY);
}

TEST_CASE("events with impossible flags are refused", "[event]") {
    Gpu gpu;
    CUevent event = nullptr;
    CU_CHECK(cu.cuEventCreate(&event, 0xff00), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);  // needs DISABLE_TIMING
    CU_CHECK(cu.cuEventCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an event waited for by blocking is an event like others", "[event]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Event event(CU_EVENT_BLOCKING_SYNC);
    Memory value(std::vector<int>{0});
    CU_OK(launch(module.function("store"), stream, value.address, 12));
    CU_OK(cu.cuEventRecord(event, stream));
    CU_OK(cu.cuEventSynchronize(event));
    CHECK(value.first<int>() == 12);
}

TEST_CASE("an event may be destroyed before it is complete", "[event]") {
    Gpu gpu;
    Stream stream;
    CUevent event = nullptr;
    CU_OK(cu.cuEventCreate(&event, CU_EVENT_DEFAULT));
    Gate gate(stream);
    CU_OK(cu.cuEventRecord(event, stream));
    CU_OK(cu.cuEventDestroy(event));
    gate.open();
    CU_OK(cu.cuStreamSynchronize(stream));
}

TEST_CASE("an event of a whole context comes behind all of its streams", "[event][context]") {
    Gpu gpu;
    Module module;
    Stream one(CU_STREAM_NON_BLOCKING), other(CU_STREAM_NON_BLOCKING);
    Event event;
    Memory out(std::vector<int>{0});
    {
        Gate gate(one);
        CU_OK(cu.cuCtxRecordEvent(gpu.context, event));
        CU_CHECK(cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
        CU_OK(cu.cuStreamSynchronize(other));
        CU_OK(cu.cuCtxWaitEvent(gpu.context, event));
        CU_OK(launch(module.function("store"), other, out.address, 5));
        Stream later(CU_STREAM_NON_BLOCKING);  // made behind the wait, and held up by it
        CU_CHECK(cu.cuStreamQuery(other), CUDA_ERROR_NOT_READY);
        CU_OK(launch(module.function("add"), later, out.address, 0, 0));
        CU_CHECK(cu.cuStreamQuery(later), CUDA_ERROR_NOT_READY);
        gate.open();
        CU_OK(cu.cuStreamSynchronize(later));
    }
    CU_OK(cu.cuEventSynchronize(event));
    CU_OK(cu.cuStreamSynchronize(other));
    CHECK(out.first<int>() == 5);
    CU_CHECK(cu.cuCtxRecordEvent(nullptr, event), CUDA_ERROR_INVALID_CONTEXT);
    CU_CHECK(cu.cuCtxRecordEvent(gpu.context, nullptr), CUDA_ERROR_INVALID_HANDLE);
    CU_CHECK(cu.cuCtxWaitEvent(gpu.context, nullptr), CUDA_ERROR_INVALID_HANDLE);
}
