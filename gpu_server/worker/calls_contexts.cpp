// Contexts: creation, destruction, synchronisation, and which one the records run in.
#include "cuda_calls.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/memory_access.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static Device* device_of(WorkerSession& session, uint32_t ordinal) {
    return ordinal < session.devices.size() ? &session.devices[ordinal] : nullptr;
}

static Answer set_context(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    session.set_current(number);
    return CUDA_SUCCESS;
}

// The worker itself holds every primary context since it warmed up, so this only gives it a number.
static Answer retain_primary(WorkerSession& session, Call& call) {
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

// The context is gone, and with it the access that it had or gave.
static void forget_peers(WorkerSession& session, uint64_t number) {
    auto& all = session.memory.peers;
    for (auto next = all.begin(); next != all.end();) {
        auto entry = next++;
        if (entry->context != number && entry->peer != number) continue;
        (void)close_memory(session, entry->peer_device, entry->device);
        all.erase(entry);
    }
}

// Also what a release of the last reference does: the context's state goes.
static Answer reset_primary(WorkerSession& session, Call& call) {
    auto* device = device_of(session, call.in.get<uint32_t>());
    auto number = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    device->primary = nullptr;
    return session.end_context(call, number, [&session, number, device = device->handle] {
        auto result = driver().cuDevicePrimaryCtxReset_v2(device);
        forget_peers(session, number);
        return result;
    });
}

static Answer create_context(WorkerSession& session, Call& call) {
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

static Answer destroy_context(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto* context = session.handles.contexts.find(number);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    auto handle = *context;
    return session.end_context(call, number, [&session, number, handle] {
        auto result = driver().cuCtxDestroy_v2(handle);
        forget_peers(session, number);
        return result;
    });
}

static bool all_streams_idle(WorkerSession& session) {
    if (driver().cuStreamQuery(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY) return false;
    for (auto& [number, stream] : session.handles.streams)
        if (stream.context == session.current_number() && driver().cuStreamQuery(stream.handle) == CUDA_ERROR_NOT_READY)
            return false;
    return session.ended_streams.idle(session.current_number());
}

static Answer synchronize(WorkerSession& session, Call& call) {
    if (!session.current()) return CUDA_ERROR_INVALID_CONTEXT;
    auto before = session.downloads.next();
    auto idle = [&] { return all_streams_idle(session) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; };
    // Also where nothing is left to wait for: errors and what kernels printed come out here.
    auto wait = [] { return driver().cuCtxSynchronize(); };
    return session.query_briefly(idle) == CUDA_SUCCESS ? session.answer_wait(call, wait(), before)
                                                       : session.wait_aside(call, before, wait);
}

static CUresult find_peers(WorkerSession& session, uint64_t peer_number, CUcontext& peer, MemoryBook::Peers& peers) {
    auto* found = session.handles.contexts.find(peer_number);
    if (!found || !session.current()) return CUDA_ERROR_INVALID_CONTEXT;
    peer = *found;
    CUdevice here = 0, there = 0;
    auto result = driver().cuCtxGetDevice(&here);
    if (result == CUDA_SUCCESS) result = driver().cuCtxSetCurrent(peer);
    if (result == CUDA_SUCCESS) result = driver().cuCtxGetDevice(&there);
    driver().cuCtxSetCurrent(session.current());
    for (uint32_t i = 0; i < session.devices.size(); ++i) {
        if (session.devices[i].handle == here) peers.device = i;
        if (session.devices[i].handle == there) peers.peer_device = i;
    }
    peers.context = session.current_number();
    peers.peer = peer_number;
    return result;
}

static Answer enable_peer_access(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto flags = call.in.get<uint32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    CUcontext peer = nullptr;
    MemoryBook::Peers peers{};
    if (auto result = find_peers(session, number, peer, peers); result != CUDA_SUCCESS) return result;
    if (auto result = driver().cuCtxEnablePeerAccess(peer, flags); result != CUDA_SUCCESS) return result;
    session.memory.peers.insert(peers);
    return open_memory(session, peers.peer_device, peers.device);
}

static Answer disable_peer_access(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    CUcontext peer = nullptr;
    MemoryBook::Peers peers{};
    if (auto result = find_peers(session, number, peer, peers); result != CUDA_SUCCESS) return result;
    return session.run_aside(call, [&session, peer, peers]() -> CUresult {
        (void)driver().cuCtxSynchronize();  // what it still runs may use the peer's memory
        if (auto result = driver().cuCtxDisablePeerAccess(peer); result != CUDA_SUCCESS) return result;
        if (session.memory.peers.erase(peers) == 0) return CUDA_SUCCESS;
        return close_memory(session, peers.peer_device, peers.device);
    });
}

static Answer goodbye(WorkerSession& session, Call&) {
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
