// Memory and events that the processes of a claim give each other.
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/memory_access.hpp"

namespace tnr::worker {

// ---- memory

static CUresult export_file(CUmemGenericAllocationHandle memory, UniqueFd& file) {
    auto& table = driver();
    if (!table.cuMemExportToShareableHandle) return CUDA_ERROR_NOT_SUPPORTED;
    int fd = -1;
    auto result = table.cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS) file.reset(fd);
    return result;
}

static CUresult lend(WorkerSession& session, const std::shared_ptr<Physical>& physical, uint64_t bytes,
                     CUmemGenericAllocationHandle memory, wire::ThingName& name,
                     Exchange::Kind kind = Exchange::Kind::memory) {
    UniqueFd file;
    if (auto result = export_file(memory, file); result != CUDA_SUCCESS) return result;
    return session.exchange.lend(physical, kind, bytes, file.get(), name);
}

static Answer lend_memory(WorkerSession& session, Call& call, const wire::LendMemory& wanted) {
    auto found = session.memory.find(wanted.address);
    if (!found || !found->second.for_client) return CUDA_ERROR_INVALID_VALUE;
    wire::LendMemory::Reply reply;
    reply.offset = wanted.address - found->first;
    if (session.exchange.is_lent(found->second.physical, reply.name)) {
        call.reply(reply);
        return CUDA_SUCCESS;
    }
    return session.run_aside(
        call, [&session, at = found->first, mapping = found->second, reply](wire::Bytes& outputs) mutable {
            CUmemGenericAllocationHandle memory{};
            auto result = driver().cuMemRetainAllocationHandle(&memory, reinterpret_cast<void*>(at));
            if (result != CUDA_SUCCESS) return result;
            result = lend(session, mapping.physical, mapping.bytes, memory, reply.name);
            driver().cuMemRelease(memory);
            outputs = wire::payload_of(reply);
            return result;
        });
}

static Answer lend_allocation(WorkerSession& session, Call& call, const wire::LendAllocation<Resolved>& wanted) {
    auto& created = *wanted.named.object;
    wire::LendAllocation<>::Reply reply;
    if (session.exchange.is_lent(created.physical, reply.name)) {
        call.reply(reply);
        return CUDA_SUCCESS;
    }
    if (created.bytes == 0) return CUDA_ERROR_INVALID_VALUE;  // borrowed: the owner's to lend
    return session.run_aside(call, [&session, created, reply](wire::Bytes& outputs) mutable {
        auto result = created.multicast
                          ? lend(session, created.physical, 0, created.handle, reply.name, Exchange::Kind::multicast)
                          : lend(session, created.physical, created.bytes, created.handle, reply.name);
        outputs = wire::payload_of(reply);
        return result;
    });
}

CUresult borrow_handle(WorkerSession& session, const wire::ThingName& name, Exchange::Kind kind,
                       BorrowedMemory& borrowed, CUmemGenericAllocationHandle& handle) {
    auto& table = driver();
    if (!table.cuMemImportFromShareableHandle) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto result = session.exchange.borrow(name, kind, borrowed); result != CUDA_SUCCESS) return result;
    if (borrowed.device >= session.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
    auto* os_handle = reinterpret_cast<void*>(static_cast<intptr_t>(borrowed.file.get()));
    return table.cuMemImportFromShareableHandle(&handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

// The memory is charged to the session that made it.
static CUresult borrow(WorkerSession& session, const wire::BorrowMemory& wanted, wire::Bytes& outputs) {
    BorrowedMemory memory;
    CUmemGenericAllocationHandle handle{};
    auto result = borrow_handle(session, wanted.name, Exchange::Kind::memory, memory, handle);
    if (result != CUDA_SUCCESS) return result;
    auto physical = std::make_shared<Physical>(session.memory.accounts, memory.device, 0);
    physical->keep(memory.borrowed);
    if (!session.handles.allocations.add(wanted.allocation, {handle, std::move(physical), 0})) {
        driver().cuMemRelease(handle);
        return CUDA_ERROR_INVALID_VALUE;
    }
    outputs = wire::payload_of(wire::BorrowMemory::Reply{memory.device, memory.bytes});
    return CUDA_SUCCESS;
}

static Answer borrow_memory(WorkerSession& session, Call& call, const wire::BorrowMemory& wanted) {
    return session.run_aside(call,
                             [&session, wanted](wire::Bytes& outputs) { return borrow(session, wanted, outputs); });
}

// ---- events

static Answer lend_event(WorkerSession& session, Call& call, const wire::LendEvent<Resolved>& wanted) {
    auto* event = session.interprocess_events.find(wanted.named.number);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    return session.run_aside(call, [&session, event = *event](wire::Bytes& outputs) {
        wire::LendEvent<>::Reply reply;
        auto result = event->lend(session.exchange, reply.name);
        outputs = wire::payload_of(reply);
        return result;
    });
}

static Answer borrow_event(WorkerSession& session, Call& call, const wire::BorrowEvent& wanted) {
    return session.run_aside(call, [&session, wanted]() -> CUresult {
        std::shared_ptr<Borrowed> borrowed;
        UniqueFd file;
        auto result = session.exchange.borrow_event(wanted.name, borrowed, file);
        if (result != CUDA_SUCCESS) return result;
        auto event = InterprocessEvent::open(std::move(file), std::move(borrowed), result);
        if (!event) return result;
        SharedEvent of_driver;
        result = make_event(of_driver, CU_EVENT_DISABLE_TIMING);
        if (result != CUDA_SUCCESS) return result;
        bool entered = session.handles.events.add(wanted.event, of_driver) &&
                       session.interprocess_events.add(wanted.event, std::move(event));
        return entered ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

void add_exchange_calls(HandlerTable& table) {
    table.add<lend_memory>();
    table.add<lend_allocation>();
    table.add<borrow_memory>();
    table.add<lend_event>();
    table.add<borrow_event>();
}

}  // namespace tnr::worker
