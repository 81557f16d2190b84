// Streams and host functions.
#include "cuda_calls.hpp"
#include "gpu_client/protocol/custom_calls.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static Answer create_stream(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto flags = call.in.get<uint32_t>();
    auto priority = call.in.get<int32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (number < wire::first_minted_stream) return CUDA_ERROR_INVALID_VALUE;
    Stream stream{nullptr, session.current_number()};
    auto result = driver().cuStreamCreateWithPriority(&stream.handle, flags, priority);
    if (result != CUDA_SUCCESS) return result;
    return session.handles.streams.add(number, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// What the stream still holds is waited for by waits for its context.
static void remember_work_of(WorkerSession& session, const Stream& stream) {
    auto* context = session.handles.contexts.find(stream.context);
    if (!context || driver().cuStreamQuery(stream.handle) != CUDA_ERROR_NOT_READY) return;
    driver().cuCtxSetCurrent(*context);
    SharedEvent last;
    if (mark(last, stream.handle) == CUDA_SUCCESS) session.ended_streams.add(stream.context, last);
    driver().cuCtxSetCurrent(session.current());
}

static Answer destroy_stream(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto* stream = session.handles.streams.find(number);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    auto handle = stream->handle;
    session.queues.close(session.queue_key(number));
    remember_work_of(session, *stream);
    session.handles.streams.remove(number);
    return session.run_aside(call, [handle] { return driver().cuStreamDestroy_v2(handle); });
}

// A stream as a record names it: both the driver's handle and the number.
struct NamedStream {
    uint64_t number;
    CUstream handle;
};
static NamedStream read_stream(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    return {number, session.stream(number, call.in)};
}

static Answer synchronize_stream(WorkerSession& session, Call& call) {
    auto stream = read_stream(session, call).handle;
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    auto before = session.downloads.next();
    auto wait = [stream] { return driver().cuStreamSynchronize(stream); };
    auto result = session.query_briefly([stream] { return driver().cuStreamQuery(stream); });
    return result == CUDA_ERROR_NOT_READY ? session.wait_aside(call, before, wait)
                                          : session.answer_wait(call, wait(), before);
}

static Answer query_stream(WorkerSession& session, Call& call) {
    auto stream = read_stream(session, call).handle;
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    auto before = session.downloads.next();
    auto result = session.query_briefly([stream] { return driver().cuStreamQuery(stream); });
    return result == CUDA_ERROR_NOT_READY ? result : session.answer_wait(call, result, before);
}

static Answer watch_stream(WorkerSession& session, Call& call) {
    auto stream = read_stream(session, call);
    auto position = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    SharedEvent reached;
    auto result = mark(reached, stream.handle);
    if (result == CUDA_SUCCESS) session.watch(wire::Completed::stream, stream.number, position, reached);
    return result;
}

static Answer query_and_watch_stream(WorkerSession& session, Call& call) {
    auto stream = read_stream(session, call);
    auto position = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    auto before = session.downloads.next();
    auto result = session.query_briefly([&] { return driver().cuStreamQuery(stream.handle); });
    if (result != CUDA_ERROR_NOT_READY) return session.answer_wait(call, result, before);
    SharedEvent reached;
    if (auto marked = mark(reached, stream.handle); marked != CUDA_SUCCESS) return marked;
    session.outbox.reply(call.op, call.number, result);  // first: the watch wakes another thread
    session.watch(wire::Completed::stream, stream.number, position, reached);
    return std::nullopt;
}

static Answer get_attribute(WorkerSession& session, Call& call) {
    auto stream = read_stream(session, call);
    auto id = call.in.get<uint32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!driver().cuStreamGetAttribute) return CUDA_ERROR_NOT_SUPPORTED;
    CUstreamAttrValue value{};
    auto result = driver().cuStreamGetAttribute(stream.handle, static_cast<CUstreamAttrID>(id), &value);
    wire::Writer(call.outputs).put(value);
    return result;
}

static Answer set_attribute(WorkerSession& session, Call& call) {
    auto stream = read_stream(session, call);
    auto id = call.in.get<uint32_t>();
    auto value = call.in.get<CUstreamAttrValue>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!driver().cuStreamSetAttribute) return CUDA_ERROR_NOT_SUPPORTED;
    return driver().cuStreamSetAttribute(stream.handle, static_cast<CUstreamAttrID>(id), &value);
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

static Answer launch_host_function(WorkerSession& session, Call& call) {
    auto stream = read_stream(session, call);
    auto ticket = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    auto function = std::make_unique<HostFunction>(HostFunction{session.host_functions, ticket});
    auto result = driver().cuLaunchHostFunc(stream.handle, run_in_client, function.get());
    if (result == CUDA_SUCCESS) (void)function.release();  // run_in_client owns it now
    return result;
}

static Answer host_function_done(WorkerSession& session, Call& call) {
    auto ticket = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    session.host_functions.done(ticket);
    return CUDA_SUCCESS;
}

void add_stream_calls(std::vector<Handler>& table) {
    table[wire::op_cuStreamCreateWithPriority] = create_stream;
    table[wire::op_cuStreamDestroy_v2] = destroy_stream;
    table[wire::op_cuStreamSynchronize] = synchronize_stream;
    table[wire::op_cuStreamQuery] = query_stream;
    table[wire::op_watch_stream] = watch_stream;
    table[wire::op_query_stream] = query_and_watch_stream;
    table[wire::op_cuStreamGetAttribute] = get_attribute;
    table[wire::op_cuStreamSetAttribute] = set_attribute;
    table[wire::op_cuLaunchHostFunc] = launch_host_function;
    table[wire::op_host_function_done] = host_function_done;
}

}  // namespace tnr::worker
