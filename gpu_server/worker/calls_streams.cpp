// Streams and host functions.
#include "cuda_calls.hpp"
#include "gpu_client/protocol/custom_calls.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static Answer create_stream(Session& session, Call& call) {
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

static Answer destroy_stream(Session& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto* stream = session.handles.streams.find(number);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    auto handle = stream->handle;
    session.queues.close(session.queue_key(number));
    session.stream_ends(*stream);
    session.handles.streams.remove(number);
    return session.run_aside(call, [handle] { return driver().cuStreamDestroy_v2(handle); });
}

// A stream as a record names it: both the driver's handle and the number.
struct NamedStream {
    uint64_t number;
    CUstream handle;
};
static NamedStream read_stream(Session& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    return {number, session.stream(number, call.in)};
}

static Answer synchronize_stream(Session& session, Call& call) {
    auto stream = read_stream(session, call);
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    auto downloads = session.downloads_so_far();
    if (session.idle(stream.handle, stream.number)) {
        auto result = driver().cuStreamSynchronize(stream.handle);
        session.settle(downloads);
        return result;
    }
    auto wait = [&session, downloads, context = session.current(), stream, op = call.op, number = call.number] {
        driver().cuCtxSetCurrent(context);
        auto result = driver().cuStreamSynchronize(stream.handle);
        session.settle(downloads);
        session.outbox.reply(op, number, result);
    };
    session.waiting.run(wait);
    return std::nullopt;
}

static Answer query_stream(Session& session, Call& call) {
    auto stream = read_stream(session, call);
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    return settled(session, call, driver().cuStreamQuery(stream.handle));
}

static Answer watch_stream(Session& session, Call& call) {
    auto stream = read_stream(session, call);
    auto generation = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    CUevent reached = nullptr;
    auto result = driver().cuEventCreate(&reached, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = driver().cuEventRecord(reached, stream.handle);
    if (result == CUDA_SUCCESS) session.watch(1, stream.number, generation, reached, /*own_event=*/true);
    return result;
}

static Answer get_attribute(Session& session, Call& call) {
    auto stream = read_stream(session, call);
    auto id = call.in.get<uint32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!driver().cuStreamGetAttribute) return CUDA_ERROR_NOT_SUPPORTED;
    CUstreamAttrValue value{};
    auto result = driver().cuStreamGetAttribute(stream.handle, static_cast<CUstreamAttrID>(id), &value);
    wire::Writer(call.outputs).put(value);
    return result;
}

static Answer set_attribute(Session& session, Call& call) {
    auto stream = read_stream(session, call);
    auto id = call.in.get<uint32_t>();
    auto value = call.in.get<CUstreamAttrValue>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!driver().cuStreamSetAttribute) return CUDA_ERROR_NOT_SUPPORTED;
    return driver().cuStreamSetAttribute(stream.handle, static_cast<CUstreamAttrID>(id), &value);
}

// What the driver's own thread runs when the stream reaches the client's function.
struct HostFunction {
    HostFunction(Session& session, uint64_t ticket) : session(session), ticket(ticket) {}
    Session& session;
    uint64_t ticket;
};
static void run_in_client(void* data) {
    std::unique_ptr<HostFunction> function(static_cast<HostFunction*>(data));
    function->session.run_host_function(function->ticket);
}

static Answer launch_host_function(Session& session, Call& call) {
    auto stream = read_stream(session, call);
    auto ticket = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    auto function = std::make_unique<HostFunction>(session, ticket);
    auto result = driver().cuLaunchHostFunc(stream.handle, run_in_client, function.get());
    if (result == CUDA_SUCCESS) (void)function.release();  // run_in_client owns it now
    return result;
}

static Answer host_function_done(Session& session, Call& call) {
    auto ticket = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    session.host_function_done(ticket);
    return CUDA_SUCCESS;
}

void add_stream_calls(std::vector<Handler>& table) {
    table[wire::op_cuStreamCreateWithPriority] = create_stream;
    table[wire::op_cuStreamDestroy_v2] = destroy_stream;
    table[wire::op_cuStreamSynchronize] = synchronize_stream;
    table[wire::op_cuStreamQuery] = query_stream;
    table[wire::op_watch_stream] = watch_stream;
    table[wire::op_cuStreamGetAttribute] = get_attribute;
    table[wire::op_cuStreamSetAttribute] = set_attribute;
    table[wire::op_cuLaunchHostFunc] = launch_host_function;
    table[wire::op_host_function_done] = host_function_done;
}

}  // namespace tnr::worker
