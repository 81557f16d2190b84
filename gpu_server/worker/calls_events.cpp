// Events.
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static Answer create_event(WorkerSession& session, Call&, const wire::CreateEvent<Resolved>& wanted) {
    SharedEvent event;
    auto result = make_event(event, wanted.flags);
    if (result != CUDA_SUCCESS) return result;
    return session.handles.events.add(wanted.event, event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static Answer destroy_event(WorkerSession& session, Call&, const wire::DestroyEvent<Resolved>& event) {
    session.handles.events.remove(event.named.number);  // the last thread that still waits for it destroys it
    return CUDA_SUCCESS;
}

static Answer record_event(WorkerSession&, Call&, const wire::RecordEvent<Resolved>& record) {
    auto event = record.event.handle;
    return driver().cuEventRecordWithFlags ? driver().cuEventRecordWithFlags(event, record.stream.handle, record.flags)
                                           : driver().cuEventRecord(event, record.stream.handle);
}

static Answer query_event(WorkerSession& session, Call& call, const wire::QueryEvent<Resolved>& event) {
    auto before = session.downloads.next();
    auto result = session.query_briefly([&] { return driver().cuEventQuery(event.named.handle); });
    return result == CUDA_ERROR_NOT_READY ? result : session.answer_wait(call, result, before);
}

// The answer goes first: the watch wakes another thread.
static Answer query_and_watch_event(WorkerSession& session, Call& call,
                                    const wire::QueryAndWatchEvent<Resolved>& event) {
    auto before = session.downloads.next();
    auto result = session.query_briefly([&] { return driver().cuEventQuery(event.named.handle); });
    if (result != CUDA_ERROR_NOT_READY) return session.answer_wait(call, result, before);
    session.outbox.reply(call.op, call.number, result);
    session.watch(wire::Completable::event, event.named.number, event.position, event.named.shared);
    return std::nullopt;
}

static Answer synchronize_event(WorkerSession& session, Call& call, const wire::SynchronizeEvent<Resolved>& event) {
    auto before = session.downloads.next();
    auto result = session.query_briefly([&] { return driver().cuEventQuery(event.named.handle); });
    if (result != CUDA_ERROR_NOT_READY) return session.answer_wait(call, result, before);
    return session.wait_aside(call, before,
                              [event = event.named.shared] { return driver().cuEventSynchronize(event.get()); });
}

static Answer watch_event(WorkerSession& session, Call&, const wire::WatchEvent<Resolved>& watch) {
    session.watch(wire::Completable::event, watch.named.number, watch.position, watch.named.shared);
    return CUDA_SUCCESS;
}

void add_event_calls(HandlerTable& table) {
    table.add<create_event>();
    table.add<destroy_event>();
    table.add<record_event>();
    table.add<query_event>();
    table.add<synchronize_event>();
    table.add<watch_event>();
    table.add<query_and_watch_event>();
}

}  // namespace tnr::worker
