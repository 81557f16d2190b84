#include "gpu_server/emulated_gpu/driver/event.hpp"

#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/per_thread.hpp"
#include "gpu_server/emulated_gpu/driver/pool.hpp"
#include "gpu_server/emulated_gpu/driver/print.hpp"

namespace tnr::emulated {

std::shared_ptr<Event::Record> Event::last() {
    LockGuard lock(mutex);
    return last_;
}

void Event::record(Stream& stream) {
    auto fresh = std::make_shared<Record>();
    LockGuard lock(mutex);
    fresh->point = stream.context.submit(stream, [weak = std::weak_ptr(fresh)] {
        if (auto record = weak.lock()) record->reached = Clock::now().time_since_epoch().count();
    });
    set_last_locked(std::move(fresh));
}

void Event::record_all() {
    auto fresh = std::make_shared<Record>();
    auto gathering = std::make_shared<Queue>();
    LockGuard lock(mutex);
    fresh->point = gathering->submit(
        [weak = std::weak_ptr(fresh)] {
            if (auto record = weak.lock()) record->reached = Clock::now().time_since_epoch().count();
        },
        context.ends());
    set_last_locked(std::move(fresh));
}

void Event::set_last(std::shared_ptr<Record> record) {
    LockGuard lock(mutex);
    set_last_locked(std::move(record));
}

void Event::set_last_locked(std::shared_ptr<Record> record) {
    last_ = std::move(record);
    was_captured = false;
    capture.reset();
    captured.clear();
}

CUresult record_event(CUevent handle, Stream& stream, const CUgraphEdgeData& data) {
    auto event = find<Event>(handle);
    if (!event || &event->context != &stream.context) return CUDA_ERROR_INVALID_HANDLE;
    bool captured = false;
    if (CUresult error = capture_record(stream, *event, data, captured)) return error;
    if (!captured) event->record(stream);
    return CUDA_SUCCESS;
}

}  // namespace tnr::emulated

using namespace tnr::emulated;

namespace {

constexpr unsigned event_flags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

// Recorded each time that the graph runs, if the stream is captured.
CUresult record_from_graph(CUevent handle, Stream& stream) {
    auto event = find<Event>(handle);
    if (!event || &event->context != &stream.context) return CUDA_ERROR_INVALID_HANDLE;
    bool captured = false;
    auto work = std::make_shared<NodeWork>(RecordWork{event});
    if (CUresult error = capture(stream, Work(std::move(work)), captured)) return error;
    return captured ? CUDA_SUCCESS : record_event(handle, stream);
}

// Calls on events go by the event's context, current or not.
template <class Call>
CUresult on_event(CUevent handle, Call&& call) {
    return initialized([&]() -> CUresult {
        if (in_program_function) return CUDA_ERROR_NOT_PERMITTED;
        auto event = find<Event>(handle);
        if (!event) return CUDA_ERROR_INVALID_HANDLE;
        if (CUresult error = event->context.status()) return error;
        if (CUresult error = refuse_wait(*event)) return error;
        return call(*event);
    });
}

}  // namespace

CUresult cuEventCreate(CUevent* event, unsigned flags) {
    return in_context([&](Context& context) -> CUresult {
        if (!event || (flags & ~event_flags)) return CUDA_ERROR_INVALID_VALUE;
        if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
        auto fresh = driver().registry.add(std::make_shared<Event>(context, flags));
        context.own(fresh->handle());
        *event = fresh->as<CUevent>();
        return CUDA_SUCCESS;
    });
}

CUresult cuEventDestroy_v2(CUevent handle) {
    return initialized([&]() -> CUresult {
        if (in_program_function) return CUDA_ERROR_NOT_PERMITTED;
        auto event = find<Event>(handle);
        if (!event || !driver().registry.remove(event->handle())) return CUDA_ERROR_INVALID_HANDLE;
        event->context.disown(event->handle());
        return CUDA_SUCCESS;
    });
}

CUresult cuEventDestroy(CUevent event) {
    return cuEventDestroy_v2(event);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) return CUDA_ERROR_INVALID_VALUE;
        if (flags & CU_EVENT_RECORD_EXTERNAL) return record_from_graph(event, stream);
        return record_event(event, stream);
    });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    return cuEventRecordWithFlags(event, stream, 0);
}
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
    return cuEventRecord(event, per_thread(stream));
}
CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags) {
    return cuEventRecordWithFlags(event, per_thread(stream), flags);
}

CUresult cuEventQuery(CUevent handle) {
    return on_event(handle, [](Event& event) -> CUresult {
        auto record = event.last();
        if (record && !record->point.passed()) return CUDA_ERROR_NOT_READY;
        return event.context.status();
    });
}

CUresult cuEventSynchronize(CUevent handle) {
    return on_event(handle, [](Event& event) -> CUresult {
        if (auto record = event.last()) record->point.wait();
        flush_print();
        release_after_wait(event.context.device);
        return event.context.status();
    });
}

namespace {

template <class Call>
CUresult on_context_event(CUcontext handle, CUevent event_handle, Call&& call) {
    return initialized([&]() -> CUresult {
        auto context = find<Context>(handle);
        auto event = find<Event>(event_handle);
        if (!context) return CUDA_ERROR_INVALID_CONTEXT;
        if (!event) return CUDA_ERROR_INVALID_HANDLE;
        if (CUresult error = context->status()) return error;
        if (refuse_wait(*context) != CUDA_SUCCESS) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        return call(*context, *event);
    });
}

}  // namespace

CUresult cuCtxRecordEvent(CUcontext handle, CUevent event_handle) {
    return on_context_event(handle, event_handle, [](Context& context, Event& event) -> CUresult {
        if (&event.context != &context) return CUDA_ERROR_INVALID_HANDLE;
        event.record_all();
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxWaitEvent(CUcontext handle, CUevent event_handle) {
    return on_context_event(handle, event_handle, [](Context& context, Event& event) -> CUresult {
        if (auto record = event.last()) context.hold_until(record->point);
        return CUDA_SUCCESS;
    });
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
    return on_event(start, [&](Event& from) {
        return on_event(end, [&](Event& to) -> CUresult {
            bool two_contexts = &from.context != &to.context;
            if (((from.flags | to.flags) & CU_EVENT_DISABLE_TIMING) || two_contexts) return CUDA_ERROR_INVALID_HANDLE;
            auto first = from.last(), second = to.last();
            if (!first || !second) return CUDA_ERROR_INVALID_HANDLE;
            if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
            if (!first->point.passed() || !second->point.passed()) return CUDA_ERROR_NOT_READY;
            Event::Clock::duration between(second->reached - first->reached);
            *milliseconds = std::chrono::duration<float, std::milli>(between).count();
            return CUDA_SUCCESS;
        });
    });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}
