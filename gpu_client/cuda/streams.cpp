// Streams: made here at once, made there in order; waiting; asking.
#include "gpu_client/cuda/streams.hpp"

#include <algorithm>
#include <bit>

#include "gpu_client/cuda/async_errors.hpp"
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/memory_pools.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/protocol/green_records.hpp"

namespace tnr::cuda {

static uint64_t next_stream_id() {
    static std::atomic<uint64_t> last{2};
    return ++last;
}

// A blocking stream and the null stream wait for each other. The null stream is the primary context's, green or not, so
// that blocking ones are, too, in the GPU's eyes.
static CUresult send_creation(Context& context, const Stream& stream, const GreenContext* green) {
    bool apart = green && (stream.flags & CU_STREAM_NON_BLOCKING) != 0;
    RemoteCall call = apart ? RemoteCall(wire::CreateGreenStream<>{stream.number, green->number, stream.priority})
                            : RemoteCall(wire::CreateStream<>{stream.number, stream.flags, stream.priority});
    call.in_context(&context);
    return call.send();
}

CUresult make_stream(Context& context, unsigned flags, int priority, uint64_t& handle, const GreenContext* green) {
    Stream* made = nullptr;
    handle = streams().create([&](Stream& stream, uint64_t index, uint64_t value) {
        stream.number = wire::first_minted_stream + index;
        stream.handle = value;
        stream.id = next_stream_id();
        stream.context = context.handle;
        stream.green = green ? green->handle : 0;
        stream.flags = flags;
        stream.priority = priority;
        stream.last_use = stream.watched = stream.synced = stream.waited = stream.asked = stream.capture = 0;
        stream.after_function = 0;
        made = &stream;
    });
    if (auto result = send_creation(context, *made, green); result != CUDA_SUCCESS) {
        streams().destroy(handle);
        return result;
    }
    if (flags & CU_STREAM_NON_BLOCKING) context.nonblocking_streams++;
    return CUDA_SUCCESS;
}

// The thread ends: its own default streams go with it.
static void release_default_streams(ThreadState& thread) {
    for (auto& [owner, handle] : thread.default_streams) {
        auto* stream = streams().find(handle);
        auto* context = contexts().find(owner);
        if (!stream || !context || !context->active) continue;
        context->session.load()->append(context->number, wire::DestroyStream<>{stream->number});
        capture_stream_gone(*stream);
        streams().destroy(handle);
    }
}

static CUresult default_stream_of_thread(Context& context, StreamRef& ref) {
    auto& mine = thread_state().default_streams;
    for (auto& [owner, handle] : mine) {
        if (owner != context.handle) continue;
        ref.object = streams().find(handle);
        if (ref.object) {
            ref.number = ref.object->number;
            return CUDA_SUCCESS;
        }
    }
    std::erase_if(mine, [&](auto& entry) { return entry.first == context.handle; });
    uint64_t handle = 0;
    if (auto result = make_stream(context, CU_STREAM_DEFAULT, 0, handle); result != CUDA_SUCCESS) return result;
    mine.emplace_back(context.handle, handle);
    when_threads_end(release_default_streams);
    ref.object = streams().find(handle);
    ref.number = ref.object->number;
    return CUDA_SUCCESS;
}

// True if it was made in a green context that is gone.
static bool is_orphan(const Stream& stream) {
    return stream.green != 0 && !green_contexts().find(stream.green);
}

CUresult resolve_stream(CUstream handle, StreamRef& ref) {
    ref = {};
    bool per_thread = handle == CU_STREAM_PER_THREAD || (!handle && thread_state().per_thread_default);
    if (per_thread) {
        Context* context = nullptr;
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        return default_stream_of_thread(*context, ref);
    }
    if (!handle || handle == CU_STREAM_LEGACY) {
        ref.number = value_of(handle);
        return CUDA_SUCCESS;
    }
    ref.object = streams().find(value_of(handle));
    if (!ref.object) return CUDA_ERROR_INVALID_HANDLE;
    if (is_orphan(*ref.object)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    ref.number = ref.object->number;
    return CUDA_SUCCESS;
}

CUresult context_of_stream(const StreamRef& stream, Context*& context) {
    if (!stream.object) return current_context(context);
    context = contexts().find(stream.object->context);
    return usable(context);
}

uint64_t synced_position(const StreamRef& stream, const Context& context) {
    auto& own = stream.object ? stream.object->synced : context.default_synced;
    return std::max(context.synced.load(std::memory_order_relaxed), own.load(std::memory_order_relaxed));
}

uint64_t last_use(const StreamRef& stream, const Context& context) {
    // A default stream waits for the other streams, so any of their work counts as its own.
    return stream.object ? stream.object->last_use.load() : context.last_use.load();
}

void note_synced(const StreamRef& stream, Context& context, uint64_t position) {
    auto& memory = *find_device(context.device)->memory;
    if (stream.object) {
        raise_to(stream.object->synced, position);
        memory.stream_synced(stream.number, position);
        return;
    }
    raise_to(context.default_synced, position);
    if (context.nonblocking_streams != 0) return;
    raise_to(context.synced, position);  // a default stream has waited for all others
    memory.context_synced(context.handle, position);
}

void note_waited(const StreamRef& stream, Context& context, uint64_t position) {
    note_synced(stream, context, position);
    raise_to(stream.object ? stream.object->waited : context.default_waited, position);
}

void stream_completed(uint64_t number, uint64_t position) {
    note_completion_heard();
    if (auto* stream = streams().at(number - wire::first_minted_stream)) raise_to(stream->synced, position);
}

// Tells the worker of each, since its number will be reused.
void forget_streams_of(const Context& context) {
    auto* open = context.session.load();
    streams().each([&](Stream& stream, uint64_t handle) {
        if (stream.context != context.handle) return;
        if (open && !is_orphan(stream)) open->append(context.number, wire::DestroyStream<>{stream.number});
        capture_stream_gone(stream);
        streams().destroy(handle);
    });
}

void end_streams_of(const GreenContext& green) {
    auto& context = *contexts().find(green.context);
    auto* open = context.session.load();
    streams().each([&](Stream& stream, uint64_t) {
        if (stream.green != green.handle) return;
        if (open) open->append(context.number, wire::DestroyStream<>{stream.number});
        capture_stream_gone(stream);
    });
}

// Priorities beyond the range mean its ends. The current context is asked for the range once.
static CUresult clamp_priority(int& priority) {
    int least = 0, greatest = 0;  // smaller numbers come first
    if (priority == 0) return CUDA_SUCCESS;
    if (auto result = cuCtxGetStreamPriorityRange(&least, &greatest); result != CUDA_SUCCESS) return result;
    priority = std::clamp(priority, greatest, least);
    return CUDA_SUCCESS;
}

static CUresult create_stream(CUstream* out, unsigned flags, int priority) {
    if (!out || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return CUDA_ERROR_INVALID_VALUE;
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    if (auto result = clamp_priority(priority); result != CUDA_SUCCESS) return result;
    uint64_t handle = 0;
    auto result = make_stream(*context, flags, priority, handle, current_green_context());
    if (result == CUDA_SUCCESS) *out = handle_of<CUstream>(handle);
    return result;
}

static CUresult create_green_stream(CUstream* out, CUgreenCtx in, unsigned flags, int priority) {
    auto* green = find_green_context(in);
    if (!green) return CUDA_ERROR_INVALID_CONTEXT;
    if (!out || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    auto& context = *contexts().find(green->context);
    if (auto result = usable(&context); result != CUDA_SUCCESS) return result;
    thread_state().contexts.push_back(green->context);
    auto clamped = clamp_priority(priority);
    thread_state().contexts.pop_back();
    if (clamped != CUDA_SUCCESS) return clamped;
    uint64_t handle = 0;
    auto result = make_stream(context, flags, priority, handle, green);
    if (result == CUDA_SUCCESS) *out = handle_of<CUstream>(handle);
    return result;
}

// Destroying returns at once; the worker lets the stream's work finish, as the driver does.
static CUresult destroy_stream(CUstream handle) {
    auto* stream = streams().find(value_of(handle));
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (is_orphan(*stream)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    RemoteCall call(wire::DestroyStream<>{stream->number});
    call.use({stream->number, stream});
    auto result = call.send();
    capture_stream_gone(*stream);
    return streams().destroy(value_of(handle)) ? result : CUDA_ERROR_INVALID_HANDLE;
}

// True if an earlier call has waited for everything in the stream, as a copy to pageable memory does. Knowing that the
// work is complete is not enough: a wait also brings what kernels printed and copies to pinned memory.
static bool waited_already(const StreamRef& stream, const Context& context) {
    auto& waited = stream.object ? stream.object->waited : context.default_waited;
    return waited >= last_use(stream, context) && context.downloads == 0 && !sync_mode();
}

// A wait that needs no round trip. What the program has freed in the stream meanwhile has nothing to wait for either.
static CUresult synchronized(const StreamRef& stream, Context& context) {
    auto& session = *context.session.load();
    session.drain();
    if (session.lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (auto result = usable(&context); result != CUDA_SUCCESS) return result;
    if (stream.object) find_device(context.device)->memory->stream_synced(stream.number, stream.object->waited);
    pools_after_wait(context.device);
    tell_complete();
    return with_async_errors(CUDA_SUCCESS, &context);
}

static CUresult synchronize_stream(CUstream handle) {
    StreamRef stream;
    if (auto result = resolve_stream(handle, stream); result != CUDA_SUCCESS) return result;
    Context* context = nullptr;
    if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
    if (auto result = refuse_wait(stream); result != CUDA_SUCCESS) return result;
    if (waited_already(stream, *context)) return synchronized(stream, *context);
    RemoteCall call(wire::SynchronizeStream<>{stream.number});
    call.in_context(context);  // not use(): a wait is no work
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    note_waited(stream, *context, call.position());
    pools_after_wait(context->device);
    return CUDA_SUCCESS;
}

// The first question goes to the worker. After a "not ready" the worker reports by itself when the work is done, so
// later questions are answered here, until something else completes: then only the worker knows whether that has told
// the program of this work as well.
static CUresult query_stream(CUstream handle) {
    StreamRef stream;
    if (auto result = resolve_stream(handle, stream); result != CUDA_SUCCESS) return result;
    Context* context = nullptr;
    if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
    if (auto result = refuse_wait(stream); result != CUDA_SUCCESS) return result;
    uint64_t needed = last_use(stream, *context);
    auto known = [&] {
        if (synced_position(stream, *context) < needed) return CUDA_ERROR_NOT_READY;
        tell_complete();
        return CUDA_SUCCESS;
    };
    if (known() == CUDA_SUCCESS) return CUDA_SUCCESS;
    uint64_t heard_before = completions_heard();
    bool watched = stream.object && stream.object->watched >= needed;
    if (watched && stream.object->asked == heard_before) {
        auto& session = *context->session.load();
        session.drain();
        if (session.lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
        if (auto result = usable(context); result != CUDA_SUCCESS) return result;
        return known();
    }
    bool watches = stream.object && !watched;
    RemoteCall call = watches ? RemoteCall(wire::QueryAndWatchStream<>{stream.number, needed})
                              : RemoteCall(wire::QueryStream<>{stream.number});
    call.in_context(context);
    auto result = call.send();
    if (result == CUDA_SUCCESS) note_synced(stream, *context, call.position());
    if (result != CUDA_ERROR_NOT_READY || !stream.object) return result;
    raise_to(stream.object->asked, heard_before);
    raise_to(stream.object->watched, needed);
    return result;
}

// The green context that the stream was made in, or for a special one the current one; null: none.
static CUresult green_context_of(CUstream handle, const StreamRef& stream, const GreenContext*& green) {
    bool special = !handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    green = special ? current_green_context() : green_contexts().find(stream.object->green);
    return green && handle == CU_STREAM_PER_THREAD ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult with_stream(CUstream handle, const void* out, StreamRef& stream) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    return resolve_stream(handle, stream);
}

// Both that the stream belongs to.
static CUresult contexts_of(CUstream handle, const void* out, Context*& context, const GreenContext*& green) {
    StreamRef stream;
    if (auto result = with_stream(handle, out, stream); result != CUDA_SUCCESS) return result;
    if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
    return green_context_of(handle, stream, green);
}

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* out, unsigned int flags) {
    return guarded("cuStreamCreate", [&] { return create_stream(out, flags, 0); });
}
CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
    return guarded("cuStreamCreateWithPriority", [&] { return create_stream(out, flags, priority); });
}
CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream) {
    return guarded("cuStreamDestroy", [&] { return destroy_stream(stream); });
}
CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
    return guarded("cuStreamDestroy", [&] { return destroy_stream(stream); });
}
CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
    return guarded("cuStreamSynchronize", [&] { return synchronize_stream(stream); });
}
CUresult CUDAAPI cuStreamQuery(CUstream stream) {
    return guarded("cuStreamQuery", [&] { return query_stream(stream); });
}

CUresult CUDAAPI cuStreamGetPriority(CUstream handle, int* priority) {
    return guarded("cuStreamGetPriority", [&]() -> CUresult {
        StreamRef stream;
        if (auto result = with_stream(handle, priority, stream); result != CUDA_SUCCESS) return result;
        *priority = stream.object ? stream.object->priority : 0;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuStreamGetFlags(CUstream handle, unsigned int* flags) {
    return guarded("cuStreamGetFlags", [&]() -> CUresult {
        StreamRef stream;
        if (auto result = with_stream(handle, flags, stream); result != CUDA_SUCCESS) return result;
        *flags = stream.object ? stream.object->flags : 0;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuStreamGetId(CUstream handle, unsigned long long* id) {
    return guarded("cuStreamGetId", [&]() -> CUresult {
        StreamRef stream;
        if (auto result = with_stream(handle, id, stream); result != CUDA_SUCCESS) return result;
        *id = stream.object ? stream.object->id : 1;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext* out) {
    return guarded("cuStreamGetCtx", [&]() -> CUresult {
        Context* context = nullptr;
        const GreenContext* green = nullptr;
        if (auto result = contexts_of(handle, out, context, green); result != CUDA_SUCCESS) return result;
        *out = handle_of<CUcontext>(green ? green->converted : context->handle);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuStreamGetCtx_v2(CUstream handle, CUcontext* out, CUgreenCtx* green_out) {
    return guarded("cuStreamGetCtx", [&]() -> CUresult {
        if (!green_out) return CUDA_ERROR_INVALID_VALUE;
        Context* context = nullptr;
        const GreenContext* green = nullptr;
        if (auto result = contexts_of(handle, out, context, green); result != CUDA_SUCCESS) return result;
        *out = handle_of<CUcontext>(context->handle);
        *green_out = handle_of<CUgreenCtx>(green ? green->handle : 0);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* out) {
    CUcontext context = nullptr;
    return cuStreamGetCtx_v2(handle, &context, out);
}

CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream* out, CUgreenCtx green, unsigned int flags, int priority) {
    return guarded("cuGreenCtxStreamCreate", [&] { return create_green_stream(out, green, flags, priority); });
}

CUresult CUDAAPI cuStreamGetDevice(CUstream handle, CUdevice* out) {
    return guarded("cuStreamGetDevice", [&]() -> CUresult {
        StreamRef stream;
        if (auto result = with_stream(handle, out, stream); result != CUDA_SUCCESS) return result;
        Context* context = nullptr;
        if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
        *out = context->device;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value) {
    return guarded("cuStreamGetAttribute", [&]() -> CUresult {
        StreamRef stream;
        if (auto result = with_stream(handle, value, stream); result != CUDA_SUCCESS) return result;
        RemoteCall call(wire::GetStreamAttribute<>{stream.number, static_cast<uint32_t>(attribute)});
        call.use(stream);
        if (auto result = call.send(); result != CUDA_SUCCESS) return result;
        wire::GetStreamAttribute<>::Reply reply;
        if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
        *value = std::bit_cast<CUstreamAttrValue>(reply.value);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue* value) {
    return guarded("cuStreamSetAttribute", [&]() -> CUresult {
        StreamRef stream;
        if (auto result = with_stream(handle, value, stream); result != CUDA_SUCCESS) return result;
        RemoteCall call(wire::SetStreamAttribute<>{stream.number, static_cast<uint32_t>(attribute),
                                                   std::bit_cast<wire::StreamAttribute>(*value)});
        call.use(stream);
        return call.send();
    });
}

// By the driver: NVIDIA's takes no value for a window of memory that was never set, as it tells it.
CUresult CUDAAPI cuStreamCopyAttributes(CUstream to, CUstream from) {
    return guarded("cuStreamCopyAttributes", [&]() -> CUresult {
        StreamRef target, source;
        if (auto result = resolve_stream(to, target); result != CUDA_SUCCESS) return result;
        if (auto result = resolve_stream(from, source); result != CUDA_SUCCESS) return result;
        RemoteCall call(wire::CopyStreamAttributes<>{target.number, source.number});
        call.use(target);
        call.use(source);
        return call.send();
    });
}

}  // extern "C"
