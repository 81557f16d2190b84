// Events.
#include "cuda_calls.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static Answer create_event(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto flags = call.in.get<uint32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    SharedEvent event;
    auto result = make_event(event, flags);
    if (result != CUDA_SUCCESS) return result;
    return session.handles.events.add(number, event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static Answer destroy_event(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    if (!session.handles.events.find(number)) return CUDA_ERROR_INVALID_HANDLE;
    session.handles.events.remove(number);  // who still waits for it destroys it
    return CUDA_SUCCESS;
}

static Answer record_event(WorkerSession&, Call& call) {
    auto event = call.in.event();
    auto stream = call.in.stream();
    auto flags = call.in.get<uint32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    return driver().cuEventRecordWithFlags ? driver().cuEventRecordWithFlags(event, stream, flags)
                                           : driver().cuEventRecord(event, stream);
}

static Answer query_event(WorkerSession& session, Call& call) {
    auto event = call.in.event();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    auto before = session.downloads.next();
    auto result = session.query_briefly([event] { return driver().cuEventQuery(event); });
    return result == CUDA_ERROR_NOT_READY ? result : session.answer_wait(call, result, before);
}

// The answer goes first: the watch wakes another thread.
static Answer query_and_watch_event(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto position = call.in.get<uint64_t>();
    auto* event = session.handles.events.find(number);
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    auto before = session.downloads.next();
    auto result = session.query_briefly([event] { return driver().cuEventQuery(event->get()); });
    if (result != CUDA_ERROR_NOT_READY) return session.answer_wait(call, result, before);
    session.outbox.reply(call.op, call.number, result);
    session.watch(wire::Completed::event, number, position, *event);
    return std::nullopt;
}

static Answer synchronize_event(WorkerSession& session, Call& call) {
    auto event = call.in.shared_event();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    auto before = session.downloads.next();
    auto result = session.query_briefly([&] { return driver().cuEventQuery(event.get()); });
    if (result != CUDA_ERROR_NOT_READY) return session.answer_wait(call, result, before);
    return session.wait_aside(call, before, [event] { return driver().cuEventSynchronize(event.get()); });
}

static Answer watch_event(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto position = call.in.get<uint64_t>();
    auto* event = session.handles.events.find(number);
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    session.watch(wire::Completed::event, number, position, *event);
    return CUDA_SUCCESS;
}

void add_event_calls(std::vector<Handler>& table) {
    table[wire::op_cuEventCreate] = create_event;
    table[wire::op_cuEventDestroy_v2] = destroy_event;
    table[wire::op_cuEventRecordWithFlags] = record_event;
    table[wire::op_cuEventQuery] = query_event;
    table[wire::op_cuEventSynchronize] = synchronize_event;
    table[wire::op_watch_event] = watch_event;
    table[wire::op_query_event] = query_and_watch_event;
}

}  // namespace tnr::worker
