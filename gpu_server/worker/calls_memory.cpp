// Device memory: backing parts of the session's address range, and the program's own use of the virtual memory API.
#include <future>
#include <utility>

#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/memory_access.hpp"
#include "gpu_server/worker/memory_grants.hpp"

namespace tnr::worker {

static bool inside_range(const Resolved::Device& device, uint64_t address, uint64_t bytes) {
    if (bytes == 0) return false;
    auto& range = device.object->description;
    return address >= range.range_address && bytes <= range.range_bytes &&
           address - range.range_address <= range.range_bytes - bytes;
}

static bool inside_any_range(WorkerSession& session, uint64_t address, uint64_t bytes) {
    for (uint32_t index = 0; index < session.devices.size(); ++index)
        if (inside_range({index, &session.devices[index]}, address, bytes)) return true;
    return false;
}

static CUresult create(WorkerSession& session, uint32_t device, uint64_t bytes, CUmemGenericAllocationHandle& memory,
                       unsigned short usage = 0) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, session.devices[device].handle};
    properties.allocFlags.usage = usage;
    // Any of it may be given to another process of the claim later, and a driver wants to know that now.
    auto& attributes = session.devices[device].description.attributes;
    auto shareable = attributes.find(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    if (shareable != attributes.end() && shareable->second != 0)
        properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return driver().cuMemCreate(&memory, bytes, &properties, 0);
}

static CUmemAccessDesc access_of(WorkerSession& session, uint32_t device, CUmemAccess_flags flags) {
    return {{CU_MEM_LOCATION_TYPE_DEVICE, session.devices[device].handle}, flags};
}

static CUresult create_and_map(WorkerSession& session, uint64_t address, uint64_t bytes,
                               std::shared_ptr<Physical> physical) {
    const uint32_t device = physical->device;
    CUmemGenericAllocationHandle memory{};
    auto result = create(session, device, bytes, memory);
    if (result != CUDA_SUCCESS) return result;
    result = driver().cuMemMap(address, bytes, 0, memory, 0);
    driver().cuMemRelease(memory);  // the mapping keeps it
    if (result != CUDA_SUCCESS) return result;
    session.memory.mapped(address, {bytes, std::move(physical), true});
    std::vector<CUmemAccessDesc> access;
    for (auto other : session.memory.who_may_use(device))
        access.push_back(access_of(session, other, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    return driver().cuMemSetAccess(address, bytes, access.data(), access.size());
}

static Answer map_memory(WorkerSession& session, Call& call, const wire::MapMemory<Resolved>& part) {
    auto [device, address, bytes] = part;
    if (!inside_range(device, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return with_memory(session, call, device, bytes,
                       [&session, address = address, bytes = bytes](std::shared_ptr<Physical> physical) {
                           return create_and_map(session, address, bytes, std::move(physical));
                       });
}

static Answer unmap(WorkerSession& session, const Call& call, uint64_t address, uint64_t bytes) {
    return session.run_aside(call, [&session, address, bytes] {
        auto result = driver().cuMemUnmap(address, bytes);
        if (result != CUDA_SUCCESS) return result;
        session.memory.unmapped(address, bytes);
        session.exchange.withdraw_unused();
        return result;
    });
}

static Answer unmap_memory(WorkerSession& session, Call& call, const wire::UnmapMemory<Resolved>& part) {
    if (!inside_range(part.device, part.address, part.bytes)) return CUDA_ERROR_INVALID_VALUE;
    return unmap(session, call, part.address, part.bytes);
}

static Answer change_range(WorkerSession& session, Call&, const wire::MoveRange<Resolved>& wanted) {
    auto& device = *wanted.device.object;
    auto& range = device.description;
    if (session.memory.any_mapping(range.range_address, range.range_bytes)) return CUDA_ERROR_ALREADY_MAPPED;
    return move_range(device, wanted.address, wanted.bytes);
}

// ---- other devices' access ----

static CUresult set_access_everywhere(WorkerSession& session, uint32_t device, uint32_t to, CUmemAccess_flags flags) {
    auto access = access_of(session, to, flags);
    CUresult result = CUDA_SUCCESS;
    for (auto [address, bytes] : session.memory.all_for_client(device)) {
        auto set = driver().cuMemSetAccess(address, bytes, &access, 1);
        if (result == CUDA_SUCCESS) result = set;
    }
    return result;
}

CUresult open_memory(WorkerSession& session, uint32_t device, uint32_t to) {
    if (device == to || !session.memory.open(device, to)) return CUDA_SUCCESS;
    return set_access_everywhere(session, device, to, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

CUresult close_memory(WorkerSession& session, uint32_t device, uint32_t to) {
    if (device == to || !session.memory.close(device, to)) return CUDA_SUCCESS;
    return set_access_everywhere(session, device, to, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

static Answer change_access(WorkerSession& session, Call& call, const wire::MemoryAccess<Resolved>& wanted) {
    auto device = wanted.device.number, to = wanted.other.number;
    if (wanted.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) return open_memory(session, device, to);
    return session.run_aside(call, [&session, device, to] {
        driver().cuCtxSetCurrent(session.devices[to].primary);
        (void)driver().cuCtxSynchronize();  // what it still runs may use the memory
        return close_memory(session, device, to);
    });
}

// What graphs have reserved and given back is the client's before anybody is asked, and what they keep when there is no
// other memory.
static uint64_t grant_beside_graphs(WorkerSession& session, uint32_t device, uint64_t bytes) {
    auto& graphs = session.graph_memory;
    graphs.settle();
    if (auto spare = graphs.hand_out(device)) return spare;
    auto granted = ask_and_wait(session.supervisor, device, bytes);
    session.memory.accounts.grant(device, granted);
    if (granted != 0) return granted;
    graphs.trim();
    return graphs.hand_out(device);
}

static Answer grant(WorkerSession& session, Call& call, const wire::MemoryGrant<Resolved>& wanted) {
    using Reply = wire::MemoryGrant<>::Reply;
    if (session.graph_memory.concern(wanted.device.number))
        return session.run_aside(call,
                                 [&session, device = wanted.device.number, bytes = wanted.bytes](wire::Bytes& outputs) {
                                     outputs = wire::payload_of(Reply{grant_beside_graphs(session, device, bytes)});
                                     return CUDA_SUCCESS;
                                 });
    session.supervisor.ask_for_memory(
        wanted.device.number, wanted.bytes, SupervisorLink::Exactly::no,
        [&session, device = wanted.device.number, op = call.op, number = call.number](uint64_t granted) {
            session.memory.accounts.grant(device, granted);
            session.outbox.answer(op, number, CUDA_SUCCESS, wire::payload_of(Reply{granted}));
        });
    return std::nullopt;
}

// From now on the client is told what others want.
static Answer memory_returned(WorkerSession& session, Call&, const wire::MemoryReturned<Resolved>& back) {
    session.supervisor.watch_wishes([&session](uint32_t device, uint64_t bytes) {
        if (device < session.devices.size()) session.outbox.tell(wire::MemoryWanted{device, bytes});
    });
    session.unmapped_tiles.sweep();
    session.supervisor.give_back_memory(back.device.number,
                                        session.memory.accounts.shrink(back.device.number, back.bytes));
    return CUDA_SUCCESS;
}

// What the driver has in use, or what this session has been charged for, whichever is more: the driver takes what code and
// limits need when that is first used, and counts it only then. Of what the claim may use, the rest is free.
static CUresult ask_driver(WorkerSession& session, uint64_t& free, uint64_t& total) {
    size_t free_bytes = 0, all_bytes = 0;
    CUdevice here = 0;
    auto result = driver().cuMemGetInfo_v2(&free_bytes, &all_bytes);
    if (result == CUDA_SUCCESS) result = driver().cuCtxGetDevice(&here);
    if (result != CUDA_SUCCESS) return result;
    session.unmapped_tiles.sweep();
    session.graph_memory.settle();  // what the program has trimmed is not charged any more
    uint64_t used = all_bytes - std::min(all_bytes, free_bytes);
    total = all_bytes;
    for (uint32_t device = 0; device < session.devices.size(); ++device)
        if (session.devices[device].handle == here) {
            used = std::max(used, session.memory.accounts.used(device) + session.limit_memory.charged(device) +
                                      session.code_memory.charged(device));
            total = std::min(total, session.devices[device].description.memory_bytes);
        }
    free = total - std::min(total, used);
    return result;
}

static Answer memory_info(WorkerSession& session, Call& call, const wire::GetMemoryInfo&) {
    wire::GetMemoryInfo::Reply reply;
    auto result = ask_driver(session, reply.free, reply.total);
    call.reply(reply);
    return result;
}

// As long as the client hears of no other process on the GPU, it works out later answers for itself.
static Answer memory_info_and_sharing(WorkerSession& session, Call& call, const wire::MemoryInfo&) {
    session.supervisor.watch_sharing([&session](bool shared) { session.outbox.tell(wire::MemoryShared{shared}); });
    wire::MemoryInfo::Reply reply;
    reply.shared = session.supervisor.shared();
    auto result = ask_driver(session, reply.free, reply.total);
    call.reply(reply);
    return result;
}

template <class Record>
static Answer create_for_program(WorkerSession& session, Call& call, const Record& wanted, unsigned short usage) {
    return with_memory(
        session, call, wanted.device, wanted.bytes,
        [&session, number = wanted.allocation, bytes = wanted.bytes, usage](std::shared_ptr<Physical> physical) {
            CUmemGenericAllocationHandle memory{};
            auto result = create(session, physical->device, bytes, memory, usage);
            if (result != CUDA_SUCCESS) return result;
            if (session.handles.allocations.add(number, {memory, std::move(physical), bytes})) return CUDA_SUCCESS;
            driver().cuMemRelease(memory);
            return CUDA_ERROR_INVALID_VALUE;
        });
}

static Answer create_allocation(WorkerSession& session, Call& call, const wire::CreateAllocation<Resolved>& wanted) {
    return create_for_program(session, call, wanted, 0);
}

static Answer create_tile_pool(WorkerSession& session, Call& call, const wire::CreateTilePool<Resolved>& wanted) {
    return create_for_program(session, call, wanted, CU_MEM_CREATE_USAGE_TILE_POOL);
}

static Answer release_allocation(WorkerSession& session, Call&, const wire::ReleaseAllocation<Resolved>& allocation) {
    auto result = driver().cuMemRelease(allocation.named.object->handle);
    session.handles.allocations.remove(allocation.named.number);
    session.exchange.withdraw_unused();
    return result;
}

static Answer map_allocation(WorkerSession& session, Call& call, const wire::MapAllocation<Resolved>& wanted) {
    if (!inside_any_range(session, wanted.address, wanted.bytes)) return CUDA_ERROR_INVALID_VALUE;
    auto& memory = *wanted.allocation.object;
    if (memory.multicast) return map_multicast(session, call, wanted);
    auto result = driver().cuMemMap(wanted.address, wanted.bytes, wanted.offset, memory.handle, 0);
    if (result == CUDA_SUCCESS) session.memory.mapped(wanted.address, {wanted.bytes, memory.physical, false});
    return result;
}

static Answer unmap_allocation(WorkerSession& session, Call& call, const wire::UnmapAllocation& wanted) {
    if (!inside_any_range(session, wanted.address, wanted.bytes)) return CUDA_ERROR_INVALID_VALUE;
    return unmap(session, call, wanted.address, wanted.bytes);
}

static Answer set_access(WorkerSession& session, Call&, const wire::SetAccess<Resolved>& wanted) {
    if (!inside_any_range(session, wanted.address, wanted.bytes)) return CUDA_ERROR_INVALID_VALUE;
    auto access = access_of(session, wanted.device.number, static_cast<CUmemAccess_flags>(wanted.flags));
    return driver().cuMemSetAccess(wanted.address, wanted.bytes, &access, 1);
}

void add_memory_calls(HandlerTable& table) {
    table.add<grant>();
    table.add<memory_returned>();
    table.add<map_memory>();
    table.add<unmap_memory>();
    table.add<change_range>();
    table.add<change_access>();
    table.add<memory_info_and_sharing>();
    table.add<memory_info>();
    table.add<create_allocation>();
    table.add<create_tile_pool>();
    table.add<release_allocation>();
    table.add<map_allocation>();
    table.add<unmap_allocation>();
    table.add<set_access>();
}

}  // namespace tnr::worker
