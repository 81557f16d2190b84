// Contexts: creation, destruction, synchronisation, and which one the records run in.
#include "cuda_calls.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static Device* device_of(Session& session, uint32_t ordinal) {
    return ordinal < session.devices.size() ? &session.devices[ordinal] : nullptr;
}

static Answer set_context(Session& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    session.set_current(number);
    return CUDA_SUCCESS;
}

// The worker itself holds every primary context since it warmed up, so this only gives it a number.
static Answer retain_primary(Session& session, Call& call) {
    auto* device = device_of(session, call.in.get<uint32_t>());
    auto number = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    if (!device->primary) {
        auto result = driver().cuDevicePrimaryCtxRetain(&device->primary, device->handle);
        if (result != CUDA_SUCCESS) return result;
    }
    return session.handles.contexts.add(number, device->primary) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Also what a release of the last reference does: the context's state goes.
static Answer reset_primary(Session& session, Call& call) {
    auto* device = device_of(session, call.in.get<uint32_t>());
    auto number = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    session.context_ends(number);
    session.handles.contexts.remove(number);
    if (session.current_number() == number) session.set_current(0);
    device->primary = nullptr;
    session.staging.context_gone();
    return session.run_aside(call, [device = device->handle] { return driver().cuDevicePrimaryCtxReset_v2(device); });
}

static Answer create_context(Session& session, Call& call) {
    auto* device = device_of(session, call.in.get<uint32_t>());
    auto number = call.in.get<uint64_t>();
    auto flags = call.in.get<uint32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    CUcontext context = nullptr;
    auto result = driver().cuCtxCreate_v2(&context, flags, device->handle);
    session.set_current(session.current_number());  // creating makes it current; the client says when it wants that
    if (result != CUDA_SUCCESS) return result;
    return session.handles.contexts.add(number, context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static Answer destroy_context(Session& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto* context = session.handles.contexts.find(number);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    auto handle = *context;
    session.context_ends(number);
    session.handles.contexts.remove(number);
    session.staging.context_gone();
    if (session.current_number() == number) session.set_current(0);
    return session.run_aside(call, [handle] { return driver().cuCtxDestroy_v2(handle); });
}

static bool all_streams_idle(Session& session) {
    if (session.downloads_pending() || !session.queues.all_idle()) return false;
    if (driver().cuStreamQuery(CU_STREAM_LEGACY) != CUDA_SUCCESS) return false;
    for (auto& [number, stream] : session.handles.streams)
        if (stream.context == session.current_number() && driver().cuStreamQuery(stream.handle) != CUDA_SUCCESS)
            return false;
    return session.ended_streams_idle();
}

static Answer synchronize(Session& session, Call& call) {
    if (!session.current()) return CUDA_ERROR_INVALID_CONTEXT;
    auto downloads = session.downloads_so_far();
    if (all_streams_idle(session)) {
        auto result = driver().cuCtxSynchronize();  // nothing to wait for, but errors and printf come out here
        session.settle(downloads);
        return result;
    }
    session.waiting.run([&session, downloads, context = session.current(), op = call.op, number = call.number] {
        driver().cuCtxSetCurrent(context);
        auto result = driver().cuCtxSynchronize();
        session.settle(downloads);
        session.outbox.reply(op, number, result);
    });
    return std::nullopt;
}

static Answer enable_peer_access(Session&, Call& call) {
    auto peer = call.in.context();
    auto flags = call.in.get<uint32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    return driver().cuCtxEnablePeerAccess ? driver().cuCtxEnablePeerAccess(peer, flags) : CUDA_ERROR_NOT_SUPPORTED;
}

static Answer disable_peer_access(Session&, Call& call) {
    auto peer = call.in.context();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    return driver().cuCtxDisablePeerAccess ? driver().cuCtxDisablePeerAccess(peer) : CUDA_ERROR_NOT_SUPPORTED;
}

static Answer goodbye(Session& session, Call&) {
    session.end("the program has ended");
    return std::nullopt;
}

void add_context_calls(std::vector<Handler>& table) {
    table[wire::op_set_context] = set_context;
    table[wire::op_cuDevicePrimaryCtxRetain] = retain_primary;
    table[wire::op_cuDevicePrimaryCtxRelease_v2] = reset_primary;
    table[wire::op_cuDevicePrimaryCtxReset_v2] = reset_primary;
    table[wire::op_cuCtxCreate_v4] = create_context;
    table[wire::op_cuCtxDestroy_v2] = destroy_context;
    table[wire::op_cuCtxSynchronize] = synchronize;
    table[wire::op_cuCtxEnablePeerAccess] = enable_peer_access;
    table[wire::op_cuCtxDisablePeerAccess] = disable_peer_access;
    table[wire::op_goodbye] = goodbye;
}

}  // namespace tnr::worker
