// Every call on a stream or an event, with handles of all kinds.
#include <algorithm>

#include "tests/differential/cases.hpp"

namespace differential {
namespace {

struct OnStream {
    const char* name;
    CUresult (*call)(CUstream s);
};
struct OnEvent {
    const char* name;
    CUresult (*call)(CUevent e);
};

void nothing_to_run(void*) {}
void nothing_to_call(CUstream, CUresult, void*) {}

#define ON_STREAM(name, ...)                                    \
    {                                                           \
#name, [](CUstream s) { return DO(name, __VA_ARGS__); } \
    }
#define ON_STREAM_OUT(name, Type, ...)                              \
    {                                                               \
#name, [](CUstream s) { Type out{}; return DO(name, __VA_ARGS__); } \
    }
#define ON_EVENT(name, ...)                                    \
    {                                                          \
#name, [](CUevent e) { return DO(name, __VA_ARGS__); } \
    }

const OnStream on_stream[] = {
    ON_STREAM(cuStreamSynchronize, s),
    ON_STREAM(cuStreamQuery, s),
    ON_STREAM(cuStreamWaitEvent, s, event(), 0),
    ON_STREAM(cuEventRecord, event(), s),
    ON_STREAM(cuEventRecordWithFlags, event(), s, 0),
    ON_STREAM_OUT(cuStreamGetFlags, unsigned, s, &out),
    ON_STREAM_OUT(cuStreamGetPriority, int, s, &out),
    ON_STREAM_OUT(cuStreamGetId, unsigned long long, s, &out),
    ON_STREAM_OUT(cuStreamGetCtx, CUcontext, s, &out),
    ON_STREAM_OUT(cuStreamIsCapturing, CUstreamCaptureStatus, s, &out),
    ON_STREAM_OUT(cuStreamGetAttribute, CUstreamAttrValue, s, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &out),
    ON_STREAM(cuStreamCopyAttributes, s, stream()),
    ON_STREAM(cuStreamCopyAttributes, stream(), s),
    ON_STREAM(cuStreamAddCallback, s, nothing_to_call, nullptr, 0),
    ON_STREAM(cuLaunchHostFunc, s, nothing_to_run, nullptr),
    ON_STREAM(cuLaunchKernel, function("nothing"), 1, 1, 1, 1, 1, 1, 0, s, nullptr, nullptr),
    ON_STREAM(cuMemcpyHtoDAsync, memory(64), pinned(64), 64, s),
    ON_STREAM(cuMemcpyDtoHAsync, pinned(64), memory(64), 64, s),
    ON_STREAM(cuMemcpyDtoDAsync, memory(64), memory(64), 64, s),
    ON_STREAM(cuMemsetD32Async, memory(64), 0, 16, s),
    ON_STREAM_OUT(cuMemAllocAsync, CUdeviceptr, &out, 64, s),
    ON_STREAM(cuMemFreeAsync, memory(64), s),
};

const OnEvent on_event[] = {
    ON_EVENT(cuEventQuery, e),
    ON_EVENT(cuEventSynchronize, e),
    ON_EVENT(cuEventRecord, e, nullptr),
    ON_EVENT(cuEventRecordWithFlags, e, nullptr, 0),
    ON_EVENT(cuStreamWaitEvent, nullptr, e, 0),
    ON_EVENT(cuEventDestroy, e),
    {"cuEventElapsedTime from",
     [](CUevent e) {
         float milliseconds = 0;
         auto end = event();
         NEED(cuEventRecord, end, nullptr);
         NEED(cuEventSynchronize, end);
         return DO(cuEventElapsedTime, &milliseconds, e, end);
     }},
};

void add(std::vector<Case>& cases, const OnStream& one, const std::string& kind, std::function<CUstream()> make,
         bool unsafe = false) {
    // Two calls have the same name, with the handle in another place.
    std::string name = one.name;
    if (!cases.empty() && std::any_of(cases.begin(), cases.end(), [&](auto& c) { return c.name == name + "/" + kind; }))
        name += " as the second";
    cases.push_back(
        {name + "/" + kind, [call = one.call, make](Outcome& o) { o.add(call(make())); }, Setting::context, unsafe});
}

}  // namespace

void add_stream_cases(std::vector<Case>& cases) {
    for (auto& one : on_stream) {
        add(cases, one, "stream null", [] { return CUstream(nullptr); });
        add(cases, one, "stream legacy", [] { return CU_STREAM_LEGACY; });
        add(cases, one, "stream per thread", [] { return CU_STREAM_PER_THREAD; });
        add(cases, one, "stream non-blocking", [] { return stream(CU_STREAM_NON_BLOCKING); });
        add(
            cases, one, "stream destroyed", [] { return destroyed_stream(); }, true);
        add(
            cases, one, "stream invented", [] { return invented<CUstream>(); }, true);
    }
    for (auto& one : on_event) {
        auto with = [&](const std::string& kind, std::function<CUevent()> make, bool unsafe = false) {
            cases.push_back({std::string(one.name) + "/event " + kind,
                             [call = one.call, make](Outcome& o) { o.add(call(make())); }, Setting::context, unsafe});
        };
        with("null", [] { return CUevent(nullptr); });
        with("never recorded", [] { return event(); });
        with("without timing", [] { return event(CU_EVENT_DISABLE_TIMING); });
        with(
            "destroyed", [] { return destroyed_event(); }, true);
        with(
            "invented", [] { return invented<CUevent>(); }, true);
    }
    auto add_one = [&](const char* name, std::function<void(Outcome&)> run, bool unsafe = false) {
        cases.push_back({name, std::move(run), Setting::context, unsafe});
    };
    add_one("cuStreamCreate/unknown flags", [](Outcome& o) {
        CUstream s;
        TELL(cuStreamCreate, &s, 0x10);
    });
    add_one("cuStreamCreateWithPriority/unknown flags", [](Outcome& o) {
        CUstream s;
        TELL(cuStreamCreateWithPriority, &s, 0x10, 0);
    });
    add_one("cuStreamCreateWithPriority/far below", [](Outcome& o) {
        CUstream s;
        int priority = 99;
        TELL(cuStreamCreateWithPriority, &s, 0, -100);
        TELL(cuStreamGetPriority, s, &priority);
        int least = 0, greatest = 0;
        NEED(cuCtxGetStreamPriorityRange, &least, &greatest);
        o.add(priority == greatest ? "greatest" : "other");
    });
    add_one("cuStreamDestroy/null", [](Outcome& o) { TELL(cuStreamDestroy, nullptr); });
    add_one("cuStreamDestroy/legacy", [](Outcome& o) { TELL(cuStreamDestroy, CU_STREAM_LEGACY); });
    add_one("cuStreamDestroy/per thread", [](Outcome& o) { TELL(cuStreamDestroy, CU_STREAM_PER_THREAD); });
    add_one(
        "cuStreamDestroy/twice", [](Outcome& o) { TELL(cuStreamDestroy, destroyed_stream()); }, true);
    add_one("cuStreamWaitEvent/unknown flags", [](Outcome& o) { TELL(cuStreamWaitEvent, stream(), event(), 0x10); });
    add_one("cuEventCreate/unknown flags", [](Outcome& o) {
        CUevent e;
        TELL(cuEventCreate, &e, 0x10);
    });
    add_one("cuEventCreate/interprocess with timing", [](Outcome& o) {
        CUevent e;
        TELL(cuEventCreate, &e, CU_EVENT_INTERPROCESS);
    });
    add_one("cuEventRecordWithFlags/unknown flags",
            [](Outcome& o) { TELL(cuEventRecordWithFlags, event(), nullptr, 0x10); });
    add_one("cuEventElapsedTime/to never recorded", [](Outcome& o) {
        float milliseconds = 0;
        auto begin = event();
        NEED(cuEventRecord, begin, nullptr);
        TELL(cuEventElapsedTime, &milliseconds, begin, event());
    });
    add_one("cuLaunchHostFunc/null function", [](Outcome& o) { TELL(cuLaunchHostFunc, stream(), nullptr, nullptr); });
    add_one("cuStreamAddCallback/null function",
            [](Outcome& o) { TELL(cuStreamAddCallback, stream(), nullptr, nullptr, 0); });
    add_one("cuStreamAddCallback/flags",
            [](Outcome& o) { TELL(cuStreamAddCallback, stream(), nothing_to_call, nullptr, 1); });
    add_one("cuStreamEndCapture/not capturing", [](Outcome& o) {
        CUgraph graph;
        TELL(cuStreamEndCapture, stream(), &graph);
    });
    add_one("cuStreamBeginCapture/legacy stream",
            [](Outcome& o) { TELL(cuStreamBeginCapture, nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL); });
}

}  // namespace differential
