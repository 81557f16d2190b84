// Streams and host functions.
#include <bit>

#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static Answer create_stream(WorkerSession& session, Call&, const wire::CreateStream<Resolved>& wanted) {
    if (wanted.stream < wire::first_minted_stream) return CUDA_ERROR_INVALID_VALUE;
    if (auto room = session.handles.streams.room_for(wanted.stream); room != CUDA_SUCCESS) return room;
    Stream stream{nullptr, session.current_number()};
    auto result = driver().cuStreamCreateWithPriority(&stream.handle, wanted.flags, wanted.priority);
    session.shared_copies.forget(wanted.stream);
    if (result == CUDA_SUCCESS) session.handles.streams.add(wanted.stream, stream);
    return result;
}

// So that a wait for the context still waits for the work of a stream that is destroyed.
static void remember_work_of(WorkerSession& session, const Stream& stream) {
    auto* context = session.handles.contexts.find(stream.context);
    auto capturing = CU_STREAM_CAPTURE_STATUS_NONE;  // whose capture a question would spoil
    if (driver().cuStreamIsCapturing) (void)driver().cuStreamIsCapturing(stream.handle, &capturing);
    if (capturing != CU_STREAM_CAPTURE_STATUS_NONE) return;
    if (!context || driver().cuStreamQuery(stream.handle) == CUDA_SUCCESS) return;
    driver().cuCtxSetCurrent(*context);
    SharedEvent last;
    if (mark(last, stream.handle) == CUDA_SUCCESS)
        session.ended_streams.add(stream.context, last);
    else
        session.ended_streams.add_untold(stream.context);
    driver().cuCtxSetCurrent(session.current());
}

static Answer destroy_stream(WorkerSession& session, Call& call, const wire::DestroyStream<Resolved>& stream) {
    auto [number, handle] = stream.named;
    auto* found = session.handles.streams.find(number);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;  // the driver's own
    session.queues.close(session.queue_key(number));
    remember_work_of(session, *found);
    session.handles.streams.remove(number);
    return session.run_aside(call, [handle = handle] { return driver().cuStreamDestroy_v2(handle); });
}

// A driver would spoil a capture by the wait. The client asks nothing of the kind for the program, but may for itself.
static Answer synchronize_stream(WorkerSession& session, Call& call, const wire::SynchronizeStream<Resolved>& stream) {
    if (is_captured(stream.named.handle)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    auto before = session.downloads.next();
    auto wait = [handle = stream.named.handle] {
        return is_captured(handle) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : driver().cuStreamSynchronize(handle);
    };
    auto result = session.query_briefly([&] { return driver().cuStreamQuery(stream.named.handle); });
    return result == CUDA_ERROR_NOT_READY ? session.wait_aside(call, before, wait)
                                          : session.answer_wait(call, wait(), before);
}

static Answer query_stream(WorkerSession& session, Call& call, const wire::QueryStream<Resolved>& stream) {
    auto before = session.downloads.next();
    auto result = session.query_briefly([&] { return driver().cuStreamQuery(stream.named.handle); });
    return result == CUDA_ERROR_NOT_READY ? result : session.answer_wait(call, result, before);
}

static Answer watch_stream(WorkerSession& session, Call&, const wire::WatchStream<Resolved>& watch) {
    SharedEvent reached;
    auto result = mark(reached, watch.named.handle);
    if (result == CUDA_SUCCESS) session.watch(wire::Completable::stream, watch.named.number, watch.position, reached);
    return result;
}

static Answer query_and_watch_stream(WorkerSession& session, Call& call,
                                     const wire::QueryAndWatchStream<Resolved>& stream) {
    auto before = session.downloads.next();
    auto result = session.query_briefly([&] { return driver().cuStreamQuery(stream.named.handle); });
    if (result != CUDA_ERROR_NOT_READY) return session.answer_wait(call, result, before);
    SharedEvent reached;
    if (auto marked = mark(reached, stream.named.handle); marked != CUDA_SUCCESS) return marked;
    session.outbox.answer(call.op, call.number, result);  // first: the watch wakes another thread
    session.watch(wire::Completable::stream, stream.named.number, stream.position, reached);
    return std::nullopt;
}

static_assert(sizeof(wire::StreamAttribute) == sizeof(CUstreamAttrValue));

static Answer get_attribute(WorkerSession&, Call& call, const wire::GetStreamAttribute<Resolved>& wanted) {
    if (!driver().cuStreamGetAttribute) return CUDA_ERROR_NOT_SUPPORTED;
    CUstreamAttrValue value{};
    auto result =
        driver().cuStreamGetAttribute(wanted.stream.handle, static_cast<CUstreamAttrID>(wanted.attribute), &value);
    call.reply(wire::GetStreamAttribute<>::Reply{std::bit_cast<wire::StreamAttribute>(value)});
    return result;
}

static Answer set_attribute(WorkerSession&, Call&, const wire::SetStreamAttribute<Resolved>& wanted) {
    if (!driver().cuStreamSetAttribute) return CUDA_ERROR_NOT_SUPPORTED;
    auto value = std::bit_cast<CUstreamAttrValue>(wanted.value);
    return driver().cuStreamSetAttribute(wanted.stream.handle, static_cast<CUstreamAttrID>(wanted.attribute), &value);
}

static Answer copy_attributes(WorkerSession&, Call&, const wire::CopyStreamAttributes<Resolved>& copy) {
    if (!driver().cuStreamCopyAttributes) return CUDA_ERROR_NOT_SUPPORTED;
    return driver().cuStreamCopyAttributes(copy.to.handle, copy.from.handle);
}

// What the driver's own thread runs when the stream reaches the client's function.
struct HostFunction {
    HostFunctions& all;
    uint64_t ticket;
};
static void run_in_client(void* data) {
    std::unique_ptr<HostFunction> function(static_cast<HostFunction*>(data));
    function->all.run(function->ticket);
}

static Answer launch_host_function(WorkerSession& session, Call&, const wire::LaunchHostFunction<Resolved>& launch) {
    session.understudy.stream_will_stand();
    auto function = std::make_unique<HostFunction>(HostFunction{session.host_functions, launch.ticket});
    auto result = driver().cuLaunchHostFunc(launch.stream.handle, run_in_client, function.get());
    if (result == CUDA_SUCCESS) (void)function.release();  // run_in_client owns it now
    return result;
}

static Answer host_function_done(WorkerSession& session, Call&, const wire::HostFunctionDone& done) {
    session.host_functions.done(done.ticket);
    return CUDA_SUCCESS;
}

void add_stream_calls(HandlerTable& table) {
    table.add<create_stream>();
    table.add<destroy_stream>();
    table.add<synchronize_stream>();
    table.add<query_stream>();
    table.add<watch_stream>();
    table.add<get_attribute>();
    table.add<set_attribute>();
    table.add<copy_attributes>();
    table.add<launch_host_function>();
    table.add<host_function_done>();
    table.add<query_and_watch_stream>();
}

}  // namespace tnr::worker
