// See events.hpp.
#include "gpu_client/cuda/events.hpp"

#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_functions.hpp"
#include "gpu_client/cuda/memory_pools.hpp"
#include "gpu_client/cuda/page_transfers.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/streams.hpp"

namespace tnr::cuda {

// In Event::stream while a recording is under way; no handle.
static constexpr uint64_t being_recorded = ~uint64_t{0};

// Where an event was last recorded.
struct Recording {
    uint64_t position = 0;  // 0: never recorded
    StreamRef stream;
    bool stream_known = false;
};
static Recording recording_of(const Event& event) {
    uint64_t handle = event.stream;
    Recording recording{event.recorded, {}, false};
    if (handle == being_recorded || handle != event.stream) return recording;
    if (handle == 0) {
        recording.stream_known = true;
    } else if (auto* stream = streams().find(handle)) {  // not the one that has its number now
        recording.stream = {stream->number, stream};
        recording.stream_known = true;
    }
    return recording;
}

// Notes that the stream has passed the event. Takes no locks.
static void note_complete(const Recording& recording, const Event& event) {
    if (!recording.stream_known) return;
    auto* context = contexts().find(event.context);
    if (auto* stream = recording.stream.object)
        raise_to(stream->synced, recording.position);
    else if (context)
        raise_to(context->default_synced, recording.position);
}

void event_completed(uint64_t number, uint64_t position) {
    note_completion_heard();
    auto* event = events().at(number - 1);
    if (!event) return;
    raise_to(event->completed, position);
    if (auto recording = recording_of(*event); recording.position == position) note_complete(recording, *event);
}

// Tells the worker of each, since its number will be reused.
void forget_events_of(const Context& context) {
    auto* open = context.session.load();
    events().each([&](Event& event, uint64_t handle) {
        if (event.context != context.handle) return;
        if (open) open->append(context.number, wire::DestroyEvent<>{event.number});
        events().destroy(handle);
    });
}

static Event* enter_event(const Context& context, unsigned flags) {
    Event* made = nullptr;
    events().create([&](Event& event, uint64_t index, uint64_t value) {
        event.number = index + 1;
        event.handle = value;
        event.context = context.handle;
        event.flags = flags;
        event.stream = event.recorded = event.completed = event.watched = event.asked = event.capture = 0;
        event.in_graphs = false;
        made = &event;
    });
    return made;
}

static bool is_interprocess(const Event& event) {
    return (event.flags & CU_EVENT_INTERPROCESS) != 0;
}

static CUresult create_event(CUevent* out, unsigned flags) {
    constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    bool sound =
        out && (flags & ~known) == 0 && (!(flags & CU_EVENT_INTERPROCESS) || (flags & CU_EVENT_DISABLE_TIMING));
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    auto* made = enter_event(*context, flags);
    using wire::CallWay;
    RemoteCall call(wire::CreateEvent<>{made->number, flags}, is_interprocess(*made) ? CallWay::sync : CallWay::async_);
    if (auto result = call.send(); result != CUDA_SUCCESS) {
        events().destroy(made->handle);
        return result;
    }
    *out = handle_of<CUevent>(made->handle);
    return CUDA_SUCCESS;
}

static CUresult destroy_event(CUevent handle) {
    auto* event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    RemoteCall call(wire::DestroyEvent<>{event->number});
    call.in_context(contexts().find(event->context));
    auto result = call.send();
    return events().destroy(value_of(handle)) ? result : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult record_event(CUevent handle, CUstream in, unsigned flags) {
    auto* event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    if (auto result = resolve_stream(in, stream); result != CUDA_SUCCESS) return result;
    Context* context = nullptr;
    if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
    if (event->context != context->handle) return CUDA_ERROR_INVALID_HANDLE;
    if (auto result = refuse_work(stream); result != CUDA_SUCCESS) return result;
    // Another process may be told that it is recorded, and then it is.
    RemoteCall call(wire::RecordEvent<>{event->number, stream.number, flags},
                    is_interprocess(*event) ? wire::CallWay::sync : wire::CallWay::async_);
    call.use(stream);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    if (is_captured(stream)) {
        if (flags & CU_EVENT_RECORD_EXTERNAL) {
            event->in_graphs = true;  // launches record it
            add_needs(stream, recording(event->handle));
        } else {
            event->capture = stream.object->capture.load();
        }
        return CUDA_SUCCESS;
    }
    event->capture = 0;
    event->stream = being_recorded;  // whoever asks meanwhile must not take one stream's position for another's
    event->recorded = call.position();
    event->stream = stream.object ? stream.object->handle : 0;
    return CUDA_SUCCESS;
}

static CUresult check_context_event(CUcontext handle, const Event* event, Context*& context) {
    context = find_context(handle);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (auto result = usable(context); result != CUDA_SUCCESS) return result;
    if (captures_in(*context)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return is_interprocess(*event) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUresult record_context(CUcontext handle, CUevent event_handle) {
    auto* event = find_event(event_handle);
    Context* context = nullptr;
    if (auto result = check_context_event(handle, event, context); result != CUDA_SUCCESS) return result;
    if (event->context != context->handle) return CUDA_ERROR_INVALID_HANDLE;
    RemoteCall call(wire::RecordContextEvent<>{context->number, event->number});
    call.in_context(context);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    event->capture = 0;
    event->stream = being_recorded;  // in no stream that could be waited for instead
    event->recorded = call.position();
    return CUDA_SUCCESS;
}

static CUresult hold_context(CUcontext handle, CUevent event_handle) {
    auto* event = find_event(event_handle);
    Context* context = nullptr;
    if (auto result = check_context_event(handle, event, context); result != CUDA_SUCCESS) return result;
    RemoteCall call(wire::WaitContextEvent<>{context->number, event->number});
    call.in_context(context);
    auto result = call.send();
    if (result == CUDA_SUCCESS) all_may_come_after_functions();
    return result;
}

// True if it follows from what has been waited for or reported already: the event, a later one of its stream, its
// stream or its context.
static bool known_complete(const Event& event, const Recording& recording, const Context& context) {
    if (recording.position <= event.completed || recording.position <= context.synced) return true;
    return recording.stream_known && recording.position <= synced_position(recording.stream, context);
}

template <class Question>
static CUresult ask(const Question& question, Event& event, const Recording& recording, Context& context) {
    RemoteCall call(question);
    call.in_context(&context);
    auto result = call.send();
    if (result != CUDA_SUCCESS) return result;
    raise_to(event.completed, recording.position);
    note_complete(recording, event);
    return result;
}

// An event that graphs record, too: where it was recorded last is known to the worker only.
template <class Question>
static CUresult ask_worker(const Event& event, Context& context) {
    RemoteCall call(Question{event.number});
    call.in_context(&context);
    return call.send();
}

// Until launches that hold it are done. The thread that launches is not one that asks meanwhile.
static void wait_until_let_go(const Event& event) {
    for (int launches; (launches = event.held) > 0;) event.held.wait(launches);
}

// As query_stream().
static CUresult query_event(CUevent handle) {
    auto* event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    auto* context = contexts().find(event->context);
    if (auto result = usable(context); result != CUDA_SUCCESS) return result;
    if (auto result = refuse_wait(*event); result != CUDA_SUCCESS) return result;
    if (event->held > 0) return CUDA_ERROR_NOT_READY;
    if (event->in_graphs || is_interprocess(*event)) return ask_worker<wire::QueryEvent<>>(*event, *context);
    auto recording = recording_of(*event);
    auto known = [&] {
        if (!known_complete(*event, recording, *context)) return CUDA_ERROR_NOT_READY;
        tell_complete();
        return CUDA_SUCCESS;
    };
    if (known() == CUDA_SUCCESS) return CUDA_SUCCESS;
    uint64_t heard_before = completions_heard();
    bool watched = event->watched >= recording.position;
    if (watched && event->asked == heard_before) {
        auto& session = *context->session.load();
        session.drain();
        if (session.lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
        if (auto result = usable(context); result != CUDA_SUCCESS) return result;
        return known();
    }
    auto result = watched
                      ? ask(wire::QueryEvent<>{event->number}, *event, recording, *context)
                      : ask(wire::QueryAndWatchEvent<>{event->number, recording.position}, *event, recording, *context);
    if (result != CUDA_ERROR_NOT_READY) return result;
    raise_to(event->asked, heard_before);
    raise_to(event->watched, recording.position);
    return result;
}

static CUresult synchronize_event(CUevent handle) {
    auto* event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    auto* context = contexts().find(event->context);
    if (auto result = usable(context); result != CUDA_SUCCESS) return result;
    if (auto result = refuse_wait(*event); result != CUDA_SUCCESS) return result;
    wait_until_let_go(*event);
    if (event->in_graphs || is_interprocess(*event)) return ask_worker<wire::SynchronizeEvent<>>(*event, *context);
    auto recording = recording_of(*event);
    if (!known_complete(*event, recording, *context))
        if (auto result = ask(wire::SynchronizeEvent<>{event->number}, *event, recording, *context);
            result != CUDA_SUCCESS)
            return result;
    pools_after_wait(context->device);
    tell_complete();
    return CUDA_SUCCESS;
}

CUresult check_cuStreamWaitEvent(CUstream in, CUevent handle, unsigned flags) {
    StreamRef stream;
    if (auto result = resolve_stream(in, stream); result != CUDA_SUCCESS) return result;
    auto* event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
    bool of_launches = (flags & CU_EVENT_WAIT_EXTERNAL) != 0 && is_captured(stream);
    if (of_launches) {
        add_needs(stream, meeting_others());
        return CUDA_SUCCESS;
    }
    if (event->capture != 0 && stream.object && stream.object->capture == 0) watch_before_capture(stream);
    return capture_wait(stream, *event);
}

// The wait is for the newest recording. Another process may record it anew once it hears that we have got so far.
void note_cuStreamWaitEvent(CUstream in, CUevent handle, unsigned) {
    StreamRef stream;
    if (resolve_stream(in, stream) == CUDA_SUCCESS) may_come_after_functions(stream);
    auto* event = find_event(handle);
    if (!event || !is_interprocess(*event)) return;
    if (auto* context = contexts().find(event->context)) (void)ask_worker<wire::QueryEvent<>>(*event, *context);
}

CUresult lend_event(CUevent handle, wire::ThingName& name) {
    auto* event = find_event(handle);
    if (!event || !is_interprocess(*event)) return CUDA_ERROR_INVALID_HANDLE;
    RemoteCall call(wire::LendEvent<>{event->number});
    call.in_context(contexts().find(event->context));
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::LendEvent<>::Reply reply;
    auto result = call.take(reply);
    name = reply.name;
    return result;
}

CUresult borrow_event(const wire::ThingName& name, CUevent& handle) {
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    auto* made = enter_event(*context, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    auto result = RemoteCall(wire::BorrowEvent{made->number, name}).send();
    if (result == CUDA_SUCCESS)
        handle = handle_of<CUevent>(made->handle);
    else
        events().destroy(made->handle);
    return result;
}

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuEventCreate(CUevent* out, unsigned int flags) {
    return guarded("cuEventCreate", [&] { return create_event(out, flags); });
}
CUresult CUDAAPI cuEventDestroy_v2(CUevent event) {
    return guarded("cuEventDestroy", [&] { return destroy_event(event); });
}
CUresult CUDAAPI cuEventDestroy(CUevent event) {
    return guarded("cuEventDestroy", [&] { return destroy_event(event); });
}
CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
    return guarded("cuEventRecord", [&] { return record_event(event, stream, 0); });
}
CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
    return guarded("cuEventRecordWithFlags", [&] { return record_event(event, stream, flags); });
}
CUresult CUDAAPI cuCtxRecordEvent(CUcontext context, CUevent event) {
    return guarded("cuCtxRecordEvent", [&] { return record_context(context, event); });
}
CUresult CUDAAPI cuCtxWaitEvent(CUcontext context, CUevent event) {
    return guarded("cuCtxWaitEvent", [&] { return hold_context(context, event); });
}
CUresult CUDAAPI cuEventQuery(CUevent event) {
    return guarded("cuEventQuery", [&] { return query_event(event); });
}
CUresult CUDAAPI cuEventSynchronize(CUevent event) {
    return guarded("cuEventSynchronize", [&] { return synchronize_event(event); });
}

}  // extern "C"
