// Multicast objects. Binding memory and mapping an object wait inside the driver until all devices are in the team, and
// the last may be added by a later record or by another process: so both wait on threads of their own while the session
// goes on.
#include "gpu_client/protocol/multicast_records.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/memory_access.hpp"

namespace tnr::worker {

static std::shared_ptr<Physical> physical_of(WorkerSession& session, uint32_t device,
                                             const std::shared_ptr<Multicast>& object) {
    auto physical = std::make_shared<Physical>(session.memory.accounts, device, 0);
    physical->keep(object);  // until nothing of it is mapped any more
    return physical;
}

static CUresult enter(WorkerSession& session, uint64_t number, const Created& created) {
    if (session.handles.allocations.add(number, created)) return CUDA_SUCCESS;
    driver().cuMemRelease(created.handle);
    return CUDA_ERROR_INVALID_VALUE;
}

// The object is no memory of any device, so no account is charged for it.
static Answer create_multicast(WorkerSession& session, Call&, const wire::CreateMulticast& wanted) {
    if (!driver().cuMulticastCreate) return CUDA_ERROR_NOT_SUPPORTED;
    auto place = session.multicast_places.objects.take();
    if (!place) return CUDA_ERROR_OUT_OF_MEMORY;
    CUmulticastObjectProp properties{};
    properties.numDevices = wanted.devices;
    properties.size = wanted.bytes;
    properties.handleTypes = wanted.handle_types;
    CUmemGenericAllocationHandle handle{};
    auto result = driver().cuMulticastCreate(&handle, &properties);
    if (result != CUDA_SUCCESS) return result;
    auto object = std::make_shared<Multicast>(std::move(place));
    return enter(session, wanted.allocation, {handle, physical_of(session, 0, object), wanted.bytes, object});
}

static Answer add_device(WorkerSession&, Call&, const wire::AddToMulticast<Resolved>& wanted) {
    auto& created = *wanted.object.object;
    if (!created.multicast) return CUDA_ERROR_INVALID_VALUE;
    return driver().cuMulticastAddDevice(created.handle, wanted.device.object->handle);
}

// Answers with what `wait` returns, from a thread that is let wait until all devices are in the team.
static Answer wait_for_team(WorkerSession& session, const Call& call, std::function<CUresult()> wait) {
    auto place = session.multicast_places.waits.take();
    if (!place) return CUDA_ERROR_OUT_OF_MEMORY;
    session.waiting.run([&session, place, context = session.handles.current, op = call.op, number = call.number,
                         wait = std::move(wait)]() mutable {
        driver().cuCtxSetCurrent(context);
        auto result = wait();
        place.reset();
        session.outbox.answer(op, number, result);
    });
    return std::nullopt;
}

static Answer bind_memory(WorkerSession& session, Call& call, const wire::BindMulticast<Resolved>& wanted) {
    auto object = *wanted.object.object, memory = *wanted.memory.object;
    if (!object.multicast || memory.multicast) return CUDA_ERROR_INVALID_VALUE;
    auto place = session.multicast_places.bindings.take();
    if (!place) return CUDA_ERROR_OUT_OF_MEMORY;
    return wait_for_team(session, call, [=, offset = wanted.offset, from = wanted.memory_offset, bytes = wanted.bytes] {
        auto result = driver().cuMulticastBindMem(object.handle, offset, memory.handle, from, bytes, 0);
        if (result == CUDA_SUCCESS) object.multicast->bound(offset, bytes, memory.physical, place);
        return result;
    });
}

Answer map_multicast(WorkerSession& session, const Call& call, const wire::MapAllocation<Resolved>& wanted) {
    return wait_for_team(session, call,
                         [&session, object = *wanted.allocation.object, address = wanted.address, bytes = wanted.bytes,
                          offset = wanted.offset] {
                             auto result = driver().cuMemMap(address, bytes, offset, object.handle, 0);
                             if (result == CUDA_SUCCESS)
                                 session.memory.mapped(address, {bytes, object.physical, false});
                             return result;
                         });
}

// A driver may wait for what still uses the memory.
static Answer unbind_memory(WorkerSession& session, Call& call, const wire::UnbindMulticast<Resolved>& wanted) {
    auto object = *wanted.object.object;
    if (!object.multicast) return CUDA_ERROR_INVALID_VALUE;
    return session.run_aside(call,
                             [&session, object, device = wanted.device.number, ordinal = wanted.device.object->handle,
                              offset = wanted.offset, bytes = wanted.bytes] {
                                 auto result = driver().cuMulticastUnbind(object.handle, ordinal, offset, bytes);
                                 if (result != CUDA_SUCCESS) return result;
                                 object.multicast->unbound(device, offset, bytes);
                                 session.exchange.withdraw_unused();
                                 return result;
                             });
}

static CUresult borrow(WorkerSession& session, const wire::BorrowMulticast& wanted) {
    auto place = session.multicast_places.objects.take();
    if (!place) return CUDA_ERROR_OUT_OF_MEMORY;
    BorrowedMemory borrowed;
    CUmemGenericAllocationHandle handle{};
    auto result = borrow_handle(session, wanted.name, Exchange::Kind::multicast, borrowed, handle);
    if (result != CUDA_SUCCESS) return result;
    auto object = std::make_shared<Multicast>(std::move(place), borrowed.borrowed);
    return enter(session, wanted.allocation, {handle, physical_of(session, borrowed.device, object), 0, object});
}

static Answer borrow_multicast(WorkerSession& session, Call& call, const wire::BorrowMulticast& wanted) {
    return session.run_aside(call, [&session, wanted]() -> CUresult { return borrow(session, wanted); });
}

void add_multicast_calls(HandlerTable& table) {
    table.add<create_multicast>();
    table.add<add_device>();
    table.add<bind_memory>();
    table.add<unbind_memory>();
    table.add<borrow_multicast>();
}

}  // namespace tnr::worker
