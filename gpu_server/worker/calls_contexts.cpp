// Contexts: creation, destruction, synchronisation, limits, and which one the records run in.
#include <utility>

#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/memory_access.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static Answer set_context(WorkerSession& session, Call&, const wire::SetContext& record) {
    session.set_current(record.context);
    return CUDA_SUCCESS;
}

// Gives a context its number, and its copy of the variables of all code: of one that the driver has just `made` nothing
// stays when that fails.
static Answer enter_context(WorkerSession& session, Call& call, uint64_t number, CUcontext context, uint32_t device,
                            bool made) {
    auto enter = [&session, number, context, device, made]() -> CUresult {
        auto result = CUDA_ERROR_INVALID_VALUE;
        if (session.handles.contexts.add(number, context)) {
            if (session.code_memory.enter(context, device)) return CUDA_SUCCESS;
            session.handles.contexts.remove(number);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (made) (void)driver().cuCtxDestroy_v2(context);
        return result;
    };
    if (session.code_memory.has_room_to_enter(device)) return enter();
    return session.run_aside(call, enter);
}

// The worker itself holds every primary context since it warmed up, so this only gives it a number.
static Answer retain_primary(WorkerSession& session, Call& call, const wire::RetainPrimary<Resolved>& wanted) {
    auto& device = *wanted.device.object;
    if (!device.primary) {
        auto result = driver().cuDevicePrimaryCtxRetain(&device.primary, device.handle);
        if (result != CUDA_SUCCESS) return result;
    }
    return enter_context(session, call, wanted.context, device.primary, wanted.device.number, false);
}

// Once the context is gone: takes back the access that it had or gave.
static void forget_peers(WorkerSession& session, uint64_t number) {
    auto& all = session.memory.peers;
    for (auto next = all.begin(); next != all.end();) {
        auto entry = next++;
        if (entry->context != number && entry->peer != number) continue;
        (void)close_memory(session, entry->peer_device, entry->device);
        all.erase(entry);
    }
}

// A client ends them before; another one's must not outlive what they are part of.
static void end_green_contexts(WorkerSession& session, uint32_t device) {
    session.handles.green_contexts.remove_if([device](const GreenContext& green) {
        if (green.device != device) return false;
        (void)driver().cuGreenCtxDestroy(green.handle);
        return true;
    });
}

template <class Record>  // ReleasePrimary or ResetPrimary
static Answer reset_primary(WorkerSession& session, Call& call, const Record& record) {
    return session.end_context(
        call, record.context,
        [&session, number = record.context, device = record.device.object->handle, device_number = record.device.number,
         primary = std::exchange(record.device.object->primary, nullptr)] {
            end_green_contexts(session, device_number);
            auto result = driver().cuDevicePrimaryCtxReset_v2(device);
            if (result == CUDA_SUCCESS) session.limit_memory.forget(primary);
            session.code_memory.leave(primary);
            forget_peers(session, number);
            session.handles.forget_arrays_of(number);
            return result;
        });
}

static Answer create_context(WorkerSession& session, Call& call, const wire::CreateContext<Resolved>& wanted) {
    if (auto room = session.handles.contexts.room_for(wanted.context); room != CUDA_SUCCESS) return room;
    CUcontext context = nullptr;
    auto result = driver().cuCtxCreate_v2(&context, wanted.flags, wanted.device.object->handle);
    session.set_current(session.current_number());  // creating makes it current; the client says when it wants that
    if (result != CUDA_SUCCESS) return result;
    return enter_context(session, call, wanted.context, context, wanted.device.number, true);
}

static Answer destroy_context(WorkerSession& session, Call& call, const wire::DestroyContext<Resolved>& context) {
    return session.end_context(call, context.named.number, [&session, context = context.named] {
        auto result = driver().cuCtxDestroy_v2(context.handle);
        if (result == CUDA_SUCCESS) session.limit_memory.forget(context.handle);
        session.code_memory.leave(context.handle);
        forget_peers(session, context.number);
        session.handles.forget_arrays_of(context.number);
        return result;
    });
}

// False also where nobody can tell: a stream of a green context that has been destroyed tells nothing of its work any
// more, which may wait for a host function, and so for a dispatcher that does not wait.
static bool all_streams_idle(WorkerSession& session) {
    if (driver().cuStreamQuery(CU_STREAM_LEGACY) != CUDA_SUCCESS) return false;
    for (auto& [number, stream] : session.handles.streams)
        if (stream.context == session.current_number() && driver().cuStreamQuery(stream.handle) != CUDA_SUCCESS)
            return false;
    return session.ended_streams.idle(session.current_number());
}

static Answer synchronize(WorkerSession& session, Call& call, const wire::SynchronizeContext&) {
    if (!session.current()) return CUDA_ERROR_INVALID_CONTEXT;
    auto before = session.downloads.next();
    auto idle = [&] { return all_streams_idle(session) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; };
    // Also called when nothing is left to wait for: errors and what kernels printed come out here.
    auto wait = [] { return driver().cuCtxSynchronize(); };
    return session.query_briefly(idle) == CUDA_SUCCESS ? session.answer_wait(call, wait(), before)
                                                       : session.wait_aside(call, before, wait);
}

static CUresult find_peers(WorkerSession& session, const Resolved::Context& peer, MemoryBook::Peers& peers) {
    if (!session.current()) return CUDA_ERROR_INVALID_CONTEXT;
    CUdevice here = 0, there = 0;
    auto result = driver().cuCtxGetDevice(&here);
    if (result == CUDA_SUCCESS) result = driver().cuCtxSetCurrent(peer.handle);
    if (result == CUDA_SUCCESS) result = driver().cuCtxGetDevice(&there);
    driver().cuCtxSetCurrent(session.current());
    for (uint32_t i = 0; i < session.devices.size(); ++i) {
        if (session.devices[i].handle == here) peers.device = i;
        if (session.devices[i].handle == there) peers.peer_device = i;
    }
    peers.context = session.current_number();
    peers.peer = peer.number;
    return result;
}

static Answer enable_peer_access(WorkerSession& session, Call&, const wire::EnablePeerAccess<Resolved>& wanted) {
    MemoryBook::Peers peers{};
    if (auto result = find_peers(session, wanted.peer, peers); result != CUDA_SUCCESS) return result;
    if (auto result = driver().cuCtxEnablePeerAccess(wanted.peer.handle, wanted.flags); result != CUDA_SUCCESS)
        return result;
    session.memory.peers.insert(peers);
    return open_memory(session, peers.peer_device, peers.device);
}

static Answer disable_peer_access(WorkerSession& session, Call& call, const wire::DisablePeerAccess<Resolved>& wanted) {
    MemoryBook::Peers peers{};
    if (auto result = find_peers(session, wanted.named, peers); result != CUDA_SUCCESS) return result;
    return session.run_aside(call, [&session, peer = wanted.named.handle, peers]() -> CUresult {
        (void)driver().cuCtxSynchronize();  // what it still runs may use the peer's memory
        if (auto result = driver().cuCtxDisablePeerAccess(peer); result != CUDA_SUCCESS) return result;
        if (session.memory.peers.erase(peers) == 0) return CUDA_SUCCESS;
        return close_memory(session, peers.peer_device, peers.device);
    });
}

// Of whatever context is current; a context that has been destroyed is not.
static Answer set_limit(WorkerSession& session, Call& call, const wire::SetLimit& wanted) {
    if (!driver().cuCtxSetLimit) return CUDA_ERROR_NOT_SUPPORTED;
    CUdevice here = 0;
    if (!session.current()) return CUDA_ERROR_INVALID_CONTEXT;
    if (auto result = driver().cuCtxGetDevice(&here); result != CUDA_SUCCESS) return result;
    uint32_t device = 0;
    while (device < session.devices.size() && session.devices[device].handle != here) ++device;
    if (device == session.devices.size()) return CUDA_ERROR_INVALID_CONTEXT;
    return session.run_aside(call, [&session, context = session.current(), device, wanted] {
        return session.limit_memory.set(context, device, static_cast<CUlimit>(wanted.limit), wanted.value);
    });
}

static Answer get_peer_atomics(WorkerSession&, Call& call, const wire::GetPeerAtomics<Resolved>& asked) {
    if (!driver().cuDeviceGetP2PAtomicCapabilities) return CUDA_ERROR_NOT_SUPPORTED;
    std::vector<CUatomicOperation> operations;
    for (int i = 0; i < CU_ATOMIC_OPERATION_MAX; ++i) operations.push_back(static_cast<CUatomicOperation>(i));
    wire::GetPeerAtomics<>::Reply reply;
    reply.capabilities.resize(operations.size());
    auto result = driver().cuDeviceGetP2PAtomicCapabilities(reply.capabilities.data(), operations.data(),
                                                            static_cast<unsigned>(operations.size()),
                                                            asked.from.object->handle, asked.to.object->handle);
    if (result == CUDA_SUCCESS) call.reply(reply);
    return result;
}

static Answer goodbye(WorkerSession& session, Call&, const wire::Goodbye&) {
    session.end("the program has ended");
    return std::nullopt;
}

void add_context_calls(HandlerTable& table) {
    table.add<set_context>();
    table.add<retain_primary>();
    table.add<reset_primary<wire::ReleasePrimary<Resolved>>>();
    table.add<reset_primary<wire::ResetPrimary<Resolved>>>();
    table.add<create_context>();
    table.add<destroy_context>();
    table.add<synchronize>();
    table.add<enable_peer_access>();
    table.add<disable_peer_access>();
    table.add<set_limit>();
    table.add<get_peer_atomics>();
    table.add<goodbye>();
}

}  // namespace tnr::worker
