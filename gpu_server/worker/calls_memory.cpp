// Device memory: backing parts of the session's address range, and the program's own use of the virtual memory API.
#include <future>
#include <utility>

#include "cuda_calls.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/memory_access.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static bool inside_range(WorkerSession& session, uint32_t device, uint64_t address, uint64_t bytes) {
    if (device >= session.devices.size() || bytes == 0) return false;
    auto& range = session.devices[device].description;
    return address >= range.range_address && bytes <= range.range_bytes &&
           address - range.range_address <= range.range_bytes - bytes;
}

static bool inside_any_range(WorkerSession& session, uint64_t address, uint64_t bytes) {
    for (uint32_t device = 0; device < session.devices.size(); ++device)
        if (inside_range(session, device, address, bytes)) return true;
    return false;
}

// How long the supervisor may take to answer about a grant. It does nothing but count.
static constexpr std::chrono::seconds grant_timeout{10};

static CUresult create(WorkerSession& session, uint32_t device, uint64_t bytes, CUmemGenericAllocationHandle& memory) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, session.devices[device].handle};
    return driver().cuMemCreate(&memory, bytes, &properties, 0);
}

static CUmemAccessDesc access_of(WorkerSession& session, uint32_t device, CUmemAccess_flags flags) {
    return {{CU_MEM_LOCATION_TYPE_DEVICE, session.devices[device].handle}, flags};
}

// Blocks until the supervisor has answered: how much more it grants.
static uint64_t ask_and_wait(SupervisorLink& supervisor, uint32_t device, uint64_t bytes) {
    auto answer = std::make_shared<std::promise<uint64_t>>();
    auto granted = answer->get_future();
    supervisor.ask_for_memory(device, bytes, [answer](uint64_t more) { answer->set_value(more); });
    return granted.wait_for(grant_timeout) == std::future_status::ready ? granted.get() : 0;
}

// Makes something of physical memory that the session's account has paid for. Clients ask before they need it; for one
// that does not (older ones, in cuMemCreate) the supervisor is asked here. What it does not grant is not to be had.
template <class Make>
static Answer with_memory(WorkerSession& session, const Call& call, uint32_t device, uint64_t bytes, Make make) {
    if (device >= session.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
    auto& accounts = session.memory.accounts;
    uint64_t lacking = 0;
    if (accounts.take(device, bytes, lacking)) return make(std::make_shared<Physical>(accounts, device, bytes));
    return session.run_aside(call, [&session, &accounts, device, bytes, lacking, make]() -> CUresult {
        uint64_t still_lacking = 0;
        accounts.grant(device, ask_and_wait(session.supervisor, device, lacking));
        if (!accounts.take(device, bytes, still_lacking)) return CUDA_ERROR_OUT_OF_MEMORY;
        return make(std::make_shared<Physical>(accounts, device, bytes));
    });
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

static Answer map_memory(WorkerSession& session, Call& call) {
    auto device = call.in.get<uint32_t>();
    auto address = call.in.get<uint64_t>();
    auto bytes = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!inside_range(session, device, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return with_memory(session, call, device, bytes, [&session, address, bytes](std::shared_ptr<Physical> physical) {
        return create_and_map(session, address, bytes, std::move(physical));
    });
}

static Answer unmap(WorkerSession& session, const Call& call, uint64_t address, uint64_t bytes) {
    return session.run_aside(call, [&session, address, bytes] {
        auto result = driver().cuMemUnmap(address, bytes);
        if (result == CUDA_SUCCESS) session.memory.unmapped(address, bytes);
        return result;
    });
}

static Answer unmap_memory(WorkerSession& session, Call& call) {
    auto device = call.in.get<uint32_t>();
    auto address = call.in.get<uint64_t>();
    auto bytes = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!inside_range(session, device, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return unmap(session, call, address, bytes);
}

static Answer change_range(WorkerSession& session, Call& call) {
    auto device = call.in.get<uint32_t>();
    auto address = call.in.get<uint64_t>();
    auto bytes = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (device >= session.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
    auto& range = session.devices[device].description;
    if (session.memory.any_mapping(range.range_address, range.range_bytes)) return CUDA_ERROR_ALREADY_MAPPED;
    return move_range(session.devices[device], address, bytes);
}

// ---- other devices' access ----

static CUresult set_access_everywhere(WorkerSession& session, uint32_t device, uint32_t to, CUmemAccess_flags flags) {
    auto access = access_of(session, to, flags);
    CUresult result = CUDA_SUCCESS;
    session.memory.each_for_client(device, [&](uint64_t address, uint64_t bytes) {
        auto set = driver().cuMemSetAccess(address, bytes, &access, 1);
        if (result == CUDA_SUCCESS) result = set;
    });
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

static Answer change_access(WorkerSession& session, Call& call) {
    auto device = call.in.get<uint32_t>();
    auto to = call.in.get<uint32_t>();
    auto flags = call.in.get<uint32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (device >= session.devices.size() || to >= session.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) return open_memory(session, device, to);
    return session.run_aside(call, [&session, device, to] {
        driver().cuCtxSetCurrent(session.devices[to].primary);
        (void)driver().cuCtxSynchronize();  // what it still runs may use the memory
        return close_memory(session, device, to);
    });
}

static Answer grant(WorkerSession& session, Call& call) {
    auto device = call.in.get<uint32_t>();
    auto bytes = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (device >= session.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
    session.supervisor.ask_for_memory(device, bytes,
                                      [&session, device, op = call.op, number = call.number](uint64_t granted) {
                                          session.memory.accounts.grant(device, granted);
                                          if (number == 0) return;
                                          wire::Bytes outputs;
                                          wire::Writer(outputs).put(granted);
                                          session.outbox.reply(op, number, CUDA_SUCCESS, outputs);
                                      });
    return std::nullopt;
}

static Answer memory_info(WorkerSession&, Call& call) {
    size_t free = 0, total = 0;
    auto result = driver().cuMemGetInfo_v2(&free, &total);
    wire::Writer out(call.outputs);
    out.put(static_cast<uint64_t>(free));
    out.put(static_cast<uint64_t>(total));
    return result;
}

// What the client may conclude for itself as long as it hears of no other process.
static Answer memory_info_and_sharing(WorkerSession& session, Call& call) {
    session.supervisor.watch_sharing([&session](bool shared) {
        wire::Bytes payload;
        wire::Writer(payload).put(static_cast<uint32_t>(shared));
        session.outbox.tell(wire::op_memory_shared, payload);
    });
    bool shared = session.supervisor.shared();
    auto answer = memory_info(session, call);
    wire::Writer(call.outputs).put(static_cast<uint32_t>(shared));
    return answer;
}

static Answer create_allocation(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto device = call.in.get<uint32_t>();
    auto bytes = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    return with_memory(session, call, device, bytes, [&session, number, bytes](std::shared_ptr<Physical> physical) {
        CUmemGenericAllocationHandle memory{};
        auto result = create(session, physical->device, bytes, memory);
        if (result != CUDA_SUCCESS) return result;
        if (session.memory.created.add(number, {memory, std::move(physical)})) return CUDA_SUCCESS;
        driver().cuMemRelease(memory);
        return CUDA_ERROR_INVALID_VALUE;
    });
}

static Answer release_allocation(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    auto* memory = session.memory.created.find(number);
    if (!memory) return CUDA_ERROR_INVALID_VALUE;
    auto result = driver().cuMemRelease(memory->handle);
    session.memory.created.remove(number);
    return result;
}

static Answer map_allocation(WorkerSession& session, Call& call) {
    auto address = call.in.get<uint64_t>();
    auto bytes = call.in.get<uint64_t>();
    auto offset = call.in.get<uint64_t>();
    auto* memory = session.memory.created.find(call.in.get<uint64_t>());
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!memory || !inside_any_range(session, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    auto result = driver().cuMemMap(address, bytes, offset, memory->handle, 0);
    if (result == CUDA_SUCCESS) session.memory.mapped(address, {bytes, memory->physical, false});
    return result;
}

static Answer unmap_allocation(WorkerSession& session, Call& call) {
    auto address = call.in.get<uint64_t>();
    auto bytes = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!inside_any_range(session, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return unmap(session, call, address, bytes);
}

static Answer set_access(WorkerSession& session, Call& call) {
    auto address = call.in.get<uint64_t>();
    auto bytes = call.in.get<uint64_t>();
    auto device = call.in.get<uint32_t>();
    auto flags = call.in.get<uint32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!inside_any_range(session, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (device >= session.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
    auto access = access_of(session, device, static_cast<CUmemAccess_flags>(flags));
    return driver().cuMemSetAccess(address, bytes, &access, 1);
}

void add_memory_calls(std::vector<Handler>& table) {
    table[wire::op_memory_grant] = grant;
    table[wire::op_memory_map] = map_memory;
    table[wire::op_memory_unmap] = unmap_memory;
    table[wire::op_move_range] = change_range;
    table[wire::op_memory_access] = change_access;
    table[wire::op_memory_info] = memory_info_and_sharing;
    table[wire::op_cuMemGetInfo_v2] = memory_info;
    table[wire::op_cuMemCreate] = create_allocation;
    table[wire::op_cuMemRelease] = release_allocation;
    table[wire::op_cuMemMap] = map_allocation;
    table[wire::op_cuMemUnmap] = unmap_allocation;
    table[wire::op_cuMemSetAccess] = set_access;
}

}  // namespace tnr::worker
