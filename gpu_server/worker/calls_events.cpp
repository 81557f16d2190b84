// Events.
#include "cuda_calls.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static Answer create_event(Session& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto flags = call.in.get<uint32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    CUevent event = nullptr;
    auto result = driver().cuEventCreate(&event, flags);
    if (result != CUDA_SUCCESS) return result;
    return session.handles.events.add(number, event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static Answer destroy_event(Session& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto* event = session.handles.events.find(number);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    auto handle = *event;
    session.forget_event(handle);
    session.handles.events.remove(number);
    return driver().cuEventDestroy_v2(handle);
}

static Answer record_event(Session&, Call& call) {
    auto event = call.in.event();
    auto stream = call.in.stream();
    auto flags = call.in.get<uint32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    return driver().cuEventRecordWithFlags ? driver().cuEventRecordWithFlags(event, stream, flags)
                                           : driver().cuEventRecord(event, stream);
}

static Answer query_event(Session& session, Call& call) {
    auto event = call.in.event();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    return settled(session, call, driver().cuEventQuery(event));
}

static Answer synchronize_event(Session& session, Call& call) {
    auto event = call.in.event();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    auto downloads = session.downloads_so_far();
    auto result = driver().cuEventQuery(event);
    if (result != CUDA_ERROR_NOT_READY) return settled(session, call, result);
    session.waiting.run([&session, downloads, context = session.current(), event, op = call.op, number = call.number] {
        driver().cuCtxSetCurrent(context);
        auto result = driver().cuEventSynchronize(event);
        session.settle(downloads);
        session.outbox.reply(op, number, result);
    });
    return std::nullopt;
}

static Answer watch_event(Session& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto generation = call.in.get<uint64_t>();
    auto* event = session.handles.events.find(number);
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    session.watch(0, number, generation, *event, /*own_event=*/false);
    return CUDA_SUCCESS;
}

void add_event_calls(std::vector<Handler>& table) {
    table[wire::op_cuEventCreate] = create_event;
    table[wire::op_cuEventDestroy_v2] = destroy_event;
    table[wire::op_cuEventRecordWithFlags] = record_event;
    table[wire::op_cuEventQuery] = query_event;
    table[wire::op_cuEventSynchronize] = synchronize_event;
    table[wire::op_watch_event] = watch_event;
}

}  // namespace tnr::worker
