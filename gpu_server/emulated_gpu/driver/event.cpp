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
    last_ = std::move(fresh);
    capture = nullptr;
    captured.clear();
}

CUresult record_event(CUevent handle, Stream& stream) {
    auto event = find<Event>(handle);
    if (!event || &event->context != &stream.context) return CUDA_ERROR_INVALID_HANDLE;
    if (auto capture = capture_of(stream)) return capture->record(stream, *event);
    event->record(stream);
    return CUDA_SUCCESS;
}

}  // namespace tnr::emulated

using namespace tnr::emulated;

namespace {

constexpr unsigned event_flags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

// Calls on events go by the event's context, current or not.
template <class Call>
CUresult on_event(CUevent handle, Call&& call) {
    return initialized([&]() -> CUresult {
        auto event = find<Event>(handle);
        if (!event) return CUDA_ERROR_INVALID_HANDLE;
        if (CUresult error = event->context.status()) return error;
        {
            tnr::LockGuard lock(event->mutex);
            if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
        }
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

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
    return on_event(start, [&](Event& from) {
        return on_event(end, [&](Event& to) -> CUresult {
            if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
            if ((from.flags | to.flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
            auto first = from.last(), second = to.last();
            if (!first || !second) return CUDA_ERROR_INVALID_HANDLE;
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
