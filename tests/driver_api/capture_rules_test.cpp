// What a capture forbids, and the code that says so. A violation spoils the capture, which ends with 901.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "graph.hpp"

using namespace driver_api;

namespace {

constexpr auto global = CU_STREAM_CAPTURE_MODE_GLOBAL, thread_local_mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
               relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

void check_spoilt(CUstream stream) {
    CUgraph graph = reinterpret_cast<CUgraph>(8);
    CU_CHECK(cu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(graph == nullptr);
    CHECK(capture_status(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
    CU_CHECK(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);  // an ordinary stream again
}

CUresult elsewhere(const std::function<CUresult()>& call) {
    CUcontext context = nullptr;
    CU_OK(cu.cuCtxGetCurrent(&context));
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
        cu.cuCtxSetCurrent(context);
        result = call();
    }).join();
    return result;
}

CUresult allocate() {
    CUdeviceptr address = 0;
    CUresult result = cu.cuMemAlloc(&address, 64);
    if (result == CUDA_SUCCESS) cu.cuMemFree(address);
    return result;
}

CUresult pin() {
    void* memory = nullptr;
    if (CUresult error = cu.cuMemHostAlloc(&memory, 4096, 0)) return error;
    return cu.cuMemFreeHost(memory);
}

}  // namespace

TEST_CASE("a stream that is captured cannot be waited for or uploaded to", "[graph][capture]") {
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING);
    begin_capture(stream);
    SECTION("by synchronizing") {
        CU_CHECK(cu.cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    SECTION("by asking") {
        CU_CHECK(cu.cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    SECTION("by uploading a graph") {
        Graph graph;
        GraphExec exec(graph);
        CU_CHECK(cu.cuGraphUpload(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    SECTION("by synchronizing its context") {
        CU_CHECK(cu.cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    CHECK(capture_status(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    Memory* none = nullptr;
    CU_CHECK(cu.cuLaunchHostFunc(
                 stream, [](void*) {}, none),
             CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    check_spoilt(stream);
}

TEST_CASE("captures begin and end where they may", "[graph][capture]") {
    Gpu gpu;
    Stream stream;
    CUgraph graph = nullptr;
    CU_CHECK(cu.cuStreamBeginCapture(nullptr, relaxed), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CU_CHECK(cu.cuStreamBeginCapture(CU_STREAM_LEGACY, relaxed), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CU_CHECK(cu.cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(3)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    begin_capture(stream);
    CU_CHECK(cu.cuStreamBeginCapture(stream, relaxed), CUDA_ERROR_ILLEGAL_STATE);
    CU_OK(cu.cuStreamEndCapture(stream, nullptr));  // and nobody has the graph
    CHECK(capture_status(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
    CU_CHECK(cu.cuStreamIsCapturing(stream, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a capture ends in the stream that it began in", "[graph][capture]") {
    Gpu gpu;
    Stream stream, other;
    Event event;
    Memory memory(std::vector<int>{0});
    begin_capture(stream);
    CUgraph graph = nullptr;
    CU_CHECK(cu.cuStreamEndCapture(other, &graph), CUDA_ERROR_ILLEGAL_STATE);
    CU_OK(cu.cuEventRecord(event, stream));
    CU_OK(cu.cuStreamWaitEvent(other, event, 0));
    CU_OK(cu.cuMemsetD8Async(memory.address, 1, 4, other));  // never joined, which the end does not blame
    CU_CHECK(cu.cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    check_spoilt(stream);
    CHECK(capture_status(other) == CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_CASE("a capture that another thread ends is lost, unless it is relaxed", "[graph][capture]") {
    Gpu gpu;
    Stream stream;
    CUgraph graph = nullptr;
    for (auto mode : {global, thread_local_mode}) {
        begin_capture(stream, mode);
        CU_CHECK(elsewhere([&] { return cu.cuStreamEndCapture(stream, &graph); }),
                 CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        CHECK(capture_status(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
        CU_CHECK(cu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    }
    begin_capture(stream, relaxed);
    CU_CHECK(elsewhere([&] { return cu.cuStreamEndCapture(stream, &graph); }), CUDA_SUCCESS);
    Graph owned(graph);
}

TEST_CASE("a fork that does not come back is an error", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream, other;
    Event event;
    Memory value(sizeof(int));
    begin_capture(stream);
    CU_OK(cu.cuEventRecord(event, stream));
    SECTION("of a stream") {
        CU_OK(cu.cuStreamWaitEvent(other, event, 0));
        CU_OK(launch(module.function("store"), other, value.address, 1));
    }
    SECTION("of a stream that is gone") {
        Stream third;
        CU_OK(cu.cuStreamWaitEvent(third, event, 0));
        CU_OK(launch(module.function("store"), third, value.address, 1));
    }
    CUgraph graph = reinterpret_cast<CUgraph>(8);
    CU_CHECK(cu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    CHECK(graph == nullptr);
    CHECK(capture_status(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(capture_status(other) == CU_STREAM_CAPTURE_STATUS_NONE);
    CU_OK(launch(module.function("store"), other, value.address, 2));
    CU_OK(cu.cuStreamSynchronize(other));
    CHECK(value.first<int>() == 2);
}

TEST_CASE("two captures cannot become one", "[graph][capture]") {
    Gpu gpu;
    Stream first, second;
    Event event;
    begin_capture(first);
    begin_capture(second);
    CU_OK(cu.cuEventRecord(event, first));
    CU_CHECK(cu.cuStreamWaitEvent(second, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    check_spoilt(first);
    check_spoilt(second);
}

TEST_CASE("a capture cannot depend on what is outside of it", "[graph][capture]") {
    Gpu gpu;
    Stream stream, other;
    Event event;
    CU_OK(cu.cuEventRecord(event, other));
    begin_capture(stream);
    CU_CHECK(cu.cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    check_spoilt(stream);
}

TEST_CASE("a captured event cannot be asked or waited for", "[graph][capture]") {
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING), other(CU_STREAM_NON_BLOCKING);
    Event event;
    begin_capture(stream);
    CU_OK(cu.cuEventRecord(event, stream));
    SECTION("by query") {
        CU_CHECK(cu.cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
        check_spoilt(stream);
    }
    SECTION("by synchronizing") {
        CU_CHECK(cu.cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
        check_spoilt(stream);
    }
    SECTION("by a stream once the capture has ended") {
        end_capture(stream);
        CU_CHECK(cu.cuStreamWaitEvent(other, event, 0), CUDA_ERROR_INVALID_VALUE);
    }
}

TEST_CASE("the legacy stream cannot be used while a blocking stream is captured", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream blocking, other(CU_STREAM_NON_BLOCKING);
    Event event;
    Memory value(sizeof(int));
    begin_capture(blocking);
    CUstreamCaptureStatus status{};
    CU_CHECK(cu.cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK(capture_status(blocking) == CU_STREAM_CAPTURE_STATUS_ACTIVE);  // asking does no harm
    CHECK(capture_status(other) == CU_STREAM_CAPTURE_STATUS_NONE);
    SECTION("for kernels") {
        CU_CHECK(launch(module.function("store"), nullptr, value.address, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    SECTION("for copies") {
        int number = 0;
        CU_CHECK(cu.cuMemcpyHtoD(value.address, &number, sizeof number), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    SECTION("for events") {
        CU_CHECK(cu.cuEventRecord(event, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    SECTION("for graphs") {
        Graph graph;
        GraphExec exec(graph);
        CU_CHECK(cu.cuGraphLaunch(exec, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    SECTION("for waiting") {
        CU_CHECK(cu.cuStreamSynchronize(nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    check_spoilt(blocking);
}

TEST_CASE("the legacy stream is free while a stream is captured that does not block it", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream(CU_STREAM_NON_BLOCKING);
    Memory value(sizeof(int));
    begin_capture(stream);
    CHECK(capture_status(nullptr) == CU_STREAM_CAPTURE_STATUS_NONE);
    CU_OK(launch(module.function("store"), nullptr, value.address, 5));
    CHECK(value.first<int>() == 5);
    Graph graph = end_capture(stream);
    CHECK(graph.nodes().empty());
}

TEST_CASE("a capture forbids unsafe calls to its thread and, if global, to all", "[graph][capture]") {
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING);
    Event event;
    SECTION("global") {
        begin_capture(stream, global);
        CU_CHECK(allocate(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        check_spoilt(stream);
        begin_capture(stream, global);
        CU_CHECK(elsewhere(allocate), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        check_spoilt(stream);
        begin_capture(stream, global);
        CU_CHECK(elsewhere([&] { return cu.cuEventQuery(event); }), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        check_spoilt(stream);
    }
    SECTION("of the thread") {
        begin_capture(stream, thread_local_mode);
        CU_CHECK(elsewhere(allocate), CUDA_SUCCESS);
        CU_CHECK(elsewhere([&] { return cu.cuEventQuery(event); }), CUDA_SUCCESS);
        CU_CHECK(allocate(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        check_spoilt(stream);
    }
    SECTION("relaxed") {
        begin_capture(stream, relaxed);
        CU_CHECK(allocate(), CUDA_SUCCESS);
        CU_CHECK(elsewhere(allocate), CUDA_SUCCESS);
        CU_CHECK(pin(), CUDA_SUCCESS);
        end_capture(stream);
    }
    SECTION("a thread may take it upon itself") {
        begin_capture(stream, global);
        CUstreamCaptureMode mode = relaxed;
        CU_OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
        CHECK(mode == global);
        CU_CHECK(allocate(), CUDA_SUCCESS);
        CU_OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
        CHECK(mode == relaxed);
        CU_CHECK(elsewhere([] {
                     CUstreamCaptureMode careless = thread_local_mode;
                     if (CUresult error = cu.cuThreadExchangeStreamCaptureMode(&careless)) return error;
                     return allocate();
                 }),
                 CUDA_SUCCESS);
        end_capture(stream);
    }
}

TEST_CASE("a global capture forbids making, freeing and registering host memory", "[graph][capture]") {
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING);
    void *pinned = nullptr, *more = nullptr;
    std::vector<char> ours(4096), registered(4096);
    CU_OK(cu.cuMemAllocHost(&pinned, 64));
    CU_OK(cu.cuMemHostRegister(registered.data(), registered.size(), 0));
    const std::function<CUresult()> calls[] = {
        [&] { return cu.cuMemAllocHost(&more, 64); },
        [&] { return cu.cuMemHostAlloc(&more, 64, CU_MEMHOSTALLOC_PORTABLE); },
        [&] { return cu.cuMemFreeHost(pinned); },
        [&] { return cu.cuMemHostRegister(ours.data(), ours.size(), 0); },
        [&] { return cu.cuMemHostUnregister(registered.data()); },
    };
    for (auto& call : calls) {
        begin_capture(stream, global);
        CU_CHECK(call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        check_spoilt(stream);
    }
    CU_OK(cu.cuMemHostUnregister(registered.data()));
    CU_OK(cu.cuMemFreeHost(pinned));
}

TEST_CASE("a captured stream may be destroyed", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Memory value(sizeof(int));
    for (auto mode : {global, relaxed}) {
        Stream stream(CU_STREAM_NON_BLOCKING);
        begin_capture(stream, mode);
        CU_OK(launch(module.function("store"), stream, value.address, 5));
    }
    CU_CHECK(allocate(), CUDA_SUCCESS);  // nothing is captured any more
    CU_CHECK(cu.cuCtxSynchronize(), CUDA_SUCCESS);
}

FRESH_PROCESS_TEST_CASE("a fork in the middle of a capture leaves the parent's alone", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream;
    Memory value(std::vector<int>{0});
    begin_capture(stream);
    CU_OK(launch(module.function("add"), stream, value.address, 1, 1));
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {  // the driver is of no use here, whatever it says, but it must not hang
        CUgraph graph = nullptr;
        (void)cu.cuStreamEndCapture(stream, &graph);
        _exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    CU_OK(launch(module.function("add"), stream, value.address, 1, 1));
    Graph graph = end_capture(stream);
    GraphExec(graph).run(stream);
    CHECK(value.first<int>() == 2);
}
