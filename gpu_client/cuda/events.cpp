// See events.hpp.
#include "gpu_client/cuda/events.hpp"

#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/session.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/protocol/custom_calls.hpp"

namespace tnr::cuda {

void event_completed(uint64_t number, uint64_t position) {
    if (auto* event = events().at(number - 1)) raise_to(event->completed, position);
}

// The worker hears of each: its number will be used again.
void forget_events_of(const Context& context) {
    auto* open = session();
    events().each([&](Event& event, uint64_t handle) {
        if (event.context != context.handle) return;
        if (open) open->append(context.number, wire::op_cuEventDestroy_v2, std::as_bytes(std::span(&event.number, 1)));
        events().destroy(handle);
    });
}

static CUresult create_event(CUevent* out, unsigned flags) {
    constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    bool sound =
        out && (flags & ~known) == 0 && (!(flags & CU_EVENT_INTERPROCESS) || (flags & CU_EVENT_DISABLE_TIMING));
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_EVENT_INTERPROCESS) return CUDA_ERROR_NOT_SUPPORTED;
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    Event* made = nullptr;
    uint64_t handle = events().create([&](Event& event, uint64_t index, uint64_t value) {
        event.number = index + 1;
        event.handle = value;
        event.context = context->handle;
        event.flags = flags;
        event.stream = event.recorded = event.completed = event.watched = 0;
        made = &event;
    });
    RemoteCall call(wire::op_cuEventCreate, wire::CallWay::async_);
    call.put(made->number);
    call.put(uint32_t{flags});
    if (auto result = call.send(); result != CUDA_SUCCESS) {
        events().destroy(handle);
        return result;
    }
    *out = handle_of<CUevent>(handle);
    return CUDA_SUCCESS;
}

static CUresult destroy_event(CUevent handle) {
    auto* event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    RemoteCall call(wire::op_cuEventDestroy_v2, wire::CallWay::async_);
    call.in_context(contexts().find(event->context));
    call.put(event->number);
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
    RemoteCall call(wire::op_cuEventRecordWithFlags, wire::CallWay::async_);
    call.put(event->number);
    call.use(stream);
    call.put(uint32_t{flags});
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    event->stream = stream.number;
    event->recorded = call.position();
    return CUDA_SUCCESS;
}

// From what has been waited for or told already.
static bool known_complete(const Event& event, const Context& context) {
    uint64_t recorded = event.recorded;
    return recorded <= event.completed || recorded <= context.synced;
}

static CUresult ask(Event& event, Context& context, uint16_t op, uint64_t& position) {
    uint64_t recorded = event.recorded;
    RemoteCall call(op, wire::CallWay::sync);
    call.in_context(&context);
    call.put(event.number);
    auto result = call.send();
    position = recorded;
    if (result == CUDA_SUCCESS) raise_to(event.completed, recorded);
    return result;
}

static CUresult query_event(CUevent handle) {
    auto* event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    auto* context = contexts().find(event->context);
    if (auto result = usable(context); result != CUDA_SUCCESS) return result;
    if (known_complete(*event, *context)) return CUDA_SUCCESS;
    if (event->watched >= event->recorded) {
        session()->drain();
        if (session()->lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
        if (auto result = usable(context); result != CUDA_SUCCESS) return result;
        return known_complete(*event, *context) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    }
    uint64_t recorded = 0;
    auto result = ask(*event, *context, wire::op_cuEventQuery, recorded);
    if (result != CUDA_ERROR_NOT_READY) return result;
    RemoteCall watch(wire::op_watch_event, wire::CallWay::async_);
    watch.in_context(context);
    watch.put(event->number);
    watch.put(recorded);
    if (auto sent = watch.send(); sent != CUDA_SUCCESS) return sent;
    raise_to(event->watched, recorded);
    return CUDA_ERROR_NOT_READY;
}

static CUresult synchronize_event(CUevent handle) {
    auto* event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    auto* context = contexts().find(event->context);
    if (auto result = usable(context); result != CUDA_SUCCESS) return result;
    if (known_complete(*event, *context)) return CUDA_SUCCESS;
    uint64_t recorded = 0;
    return ask(*event, *context, wire::op_cuEventSynchronize, recorded);
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
CUresult CUDAAPI cuEventQuery(CUevent event) {
    return guarded("cuEventQuery", [&] { return query_event(event); });
}
CUresult CUDAAPI cuEventSynchronize(CUevent event) {
    return guarded("cuEventSynchronize", [&] { return synchronize_event(event); });
}

}  // extern "C"
