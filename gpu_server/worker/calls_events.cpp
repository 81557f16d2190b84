// Events.
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static Answer create_event(WorkerSession& session, Call&, const wire::CreateEvent<Resolved>& wanted) {
    if (auto room = session.handles.events.room_for(wanted.event); room != CUDA_SUCCESS) return room;
    SharedEvent event;
    auto result = make_event(event, wanted.flags & ~unsigned{CU_EVENT_INTERPROCESS});
    if (result != CUDA_SUCCESS) return result;
    session.handles.events.add(wanted.event, event);
    if (!(wanted.flags & CU_EVENT_INTERPROCESS)) return CUDA_SUCCESS;
    auto interprocess = InterprocessEvent::create(result);
    if (interprocess) session.interprocess_events.add(wanted.event, std::move(interprocess));
    return result;
}

// Null for an ordinary event; and in a stream that is captured, where the driver's event stands for it.
static std::shared_ptr<InterprocessEvent> interprocess(WorkerSession& session, uint64_t number, CUstream stream) {
    auto* found = session.interprocess_events.find(number);
    if (!found) return nullptr;
    return is_captured(stream) ? nullptr : *found;
}

// Keeps the event's page until the stream is done with it.
static void keep_until_done(WorkerSession& session, const std::shared_ptr<InterprocessEvent>& event,
                            const Resolved::Stream& stream) {
    session.after(stream.handle, session.queue_key(stream.number), [event](CUresult) {});
}

static Answer destroy_event(WorkerSession& session, Call&, const wire::DestroyEvent<Resolved>& event) {
    session.interprocess_events.remove(event.named.number);
    session.handles.events.remove(event.named.number);  // the last thread that still waits for it destroys it
    return CUDA_SUCCESS;
}

static Answer record_event(WorkerSession& session, Call&, const wire::RecordEvent<Resolved>& record) {
    if (auto shared = interprocess(session, record.event.number, record.stream.handle)) {
        auto result = shared->record(record.stream.handle);
        if (result == CUDA_SUCCESS) keep_until_done(session, shared, record.stream);
        return result;
    }
    auto event = record.event.handle;
    return driver().cuEventRecordWithFlags ? driver().cuEventRecordWithFlags(event, record.stream.handle, record.flags)
                                           : driver().cuEventRecord(event, record.stream.handle);
}

static Answer wait_for_event(WorkerSession& session, Call&, const wire::WaitEvent<Resolved>& wait) {
    if (auto shared = interprocess(session, wait.event.number, wait.stream.handle)) {
        auto result = shared->wait(wait.stream.handle);
        if (result == CUDA_SUCCESS) keep_until_done(session, shared, wait.stream);
        return result;
    }
    return driver().cuStreamWaitEvent(wait.stream.handle, wait.event.handle, wait.flags);
}

static Answer query_event(WorkerSession& session, Call& call, const wire::QueryEvent<Resolved>& event) {
    auto before = session.downloads.next();
    if (auto* shared = session.interprocess_events.find(event.named.number))
        return (*shared)->reached() ? session.answer_wait(call, CUDA_SUCCESS, before) : CUDA_ERROR_NOT_READY;
    auto result = session.query_briefly([&] { return driver().cuEventQuery(event.named.handle); });
    return result == CUDA_ERROR_NOT_READY ? result : session.answer_wait(call, result, before);
}

// The answer goes first: the watch wakes another thread.
static Answer query_and_watch_event(WorkerSession& session, Call& call,
                                    const wire::QueryAndWatchEvent<Resolved>& event) {
    auto before = session.downloads.next();
    auto result = session.query_briefly([&] { return driver().cuEventQuery(event.named.handle); });
    if (result != CUDA_ERROR_NOT_READY) return session.answer_wait(call, result, before);
    session.outbox.answer(call.op, call.number, result);
    session.watch(wire::Completable::event, event.named.number, event.position, event.named.shared);
    return std::nullopt;
}

static Answer synchronize_event(WorkerSession& session, Call& call, const wire::SynchronizeEvent<Resolved>& event) {
    auto before = session.downloads.next();
    if (auto* shared = session.interprocess_events.find(event.named.number)) {
        if ((*shared)->reached()) return session.answer_wait(call, CUDA_SUCCESS, before);
        // The driver's event, which nobody has recorded, tells of faults.
        return session.wait_aside(call, before, [shared = *shared, event = event.named.shared] {
            return shared->synchronize([&] { return driver().cuEventQuery(event.get()); });
        });
    }
    auto result = session.query_briefly([&] { return driver().cuEventQuery(event.named.handle); });
    if (result != CUDA_ERROR_NOT_READY) return session.answer_wait(call, result, before);
    return session.wait_aside(call, before,
                              [event = event.named.shared] { return driver().cuEventSynchronize(event.get()); });
}

static Answer record_context(WorkerSession&, Call&, const wire::RecordContextEvent<Resolved>& wanted) {
    if (!driver().cuCtxRecordEvent) return CUDA_ERROR_NOT_SUPPORTED;
    return driver().cuCtxRecordEvent(wanted.context.handle, wanted.event.handle);
}

static Answer hold_context(WorkerSession&, Call&, const wire::WaitContextEvent<Resolved>& wanted) {
    if (!driver().cuCtxWaitEvent) return CUDA_ERROR_NOT_SUPPORTED;
    return driver().cuCtxWaitEvent(wanted.context.handle, wanted.event.handle);
}

static Answer watch_event(WorkerSession& session, Call&, const wire::WatchEvent<Resolved>& watch) {
    session.watch(wire::Completable::event, watch.named.number, watch.position, watch.named.shared);
    return CUDA_SUCCESS;
}

void add_event_calls(HandlerTable& table) {
    table.add<create_event>();
    table.add<destroy_event>();
    table.add<record_event>();
    table.add<wait_for_event>();
    table.add<record_context>();
    table.add<hold_context>();
    table.add<query_event>();
    table.add<synchronize_event>();
    table.add<watch_event>();
    table.add<query_and_watch_event>();
}

}  // namespace tnr::worker
