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
    session.handles.events.remove(event.named.number);  // who still waits for it destroys it
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

static Answer synchronize_event(WorkerSession& session, Call& call, const wire::SynchronizeEvent<Resolved>& event) {
    auto before = session.downloads.next();
    auto result = session.query_briefly([&] { return driver().cuEventQuery(event.named.handle); });
    if (result != CUDA_ERROR_NOT_READY) return session.answer_wait(call, result, before);
    return session.wait_aside(call, before,
                              [event = event.named.shared] { return driver().cuEventSynchronize(event.get()); });
}

static Answer watch_event(WorkerSession& session, Call&, const wire::WatchEvent<Resolved>& watch) {
    session.watch(wire::Completable::event, watch.event.number, watch.position, watch.event.shared);
    return CUDA_SUCCESS;
}

void add_event_calls(HandlerTable& table) {
    table.add<create_event>();
    table.add<destroy_event>();
    table.add<record_event>();
    table.add<query_event>();
    table.add<synchronize_event>();
    table.add<watch_event>();
}

}  // namespace tnr::worker
