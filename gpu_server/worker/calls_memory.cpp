// Device memory: backing parts of the session's address range, and the program's own use of the virtual memory API.
#include "cuda_calls.hpp"
#include "gpu_server/worker/driver.hpp"
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

static CUresult create(WorkerSession& session, uint32_t device, uint64_t bytes, CUmemGenericAllocationHandle& memory) {
    if (device >= session.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, session.devices[device].handle};
    return driver().cuMemCreate(&memory, bytes, &properties, 0);
}

static CUresult allow_access(WorkerSession& session, uint32_t device, uint64_t address, uint64_t bytes,
                             CUmemAccess_flags flags) {
    if (device >= session.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
    CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, session.devices[device].handle}, flags};
    return driver().cuMemSetAccess(address, bytes, &access, 1);
}

static Answer map_memory(WorkerSession& session, Call& call) {
    auto device = call.in.get<uint32_t>();
    auto address = call.in.get<uint64_t>();
    auto bytes = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!inside_range(session, device, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    CUmemGenericAllocationHandle memory{};
    auto result = create(session, device, bytes, memory);
    if (result != CUDA_SUCCESS) return result;
    result = driver().cuMemMap(address, bytes, 0, memory, 0);
    driver().cuMemRelease(memory);  // the mapping keeps it
    if (result == CUDA_SUCCESS)
        result = allow_access(session, device, address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return result;
}

static Answer unmap_memory(WorkerSession& session, Call& call) {
    auto device = call.in.get<uint32_t>();
    auto address = call.in.get<uint64_t>();
    auto bytes = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!inside_range(session, device, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return session.run_aside(call, [address, bytes] { return driver().cuMemUnmap(address, bytes); });
}

static Answer grant(WorkerSession& session, Call& call) {
    auto device = call.in.get<uint32_t>();
    auto bytes = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    session.supervisor.ask_for_memory(device, bytes, [&session, op = call.op, number = call.number](uint64_t granted) {
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

static Answer create_allocation(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto device = call.in.get<uint32_t>();
    auto bytes = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    CUmemGenericAllocationHandle memory{};
    auto result = create(session, device, bytes, memory);
    if (result != CUDA_SUCCESS) return result;
    return session.handles.allocations.add(number, memory) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static Answer release_allocation(WorkerSession& session, Call& call) {
    auto number = call.in.get<uint64_t>();
    auto* memory = session.handles.allocations.find(number);
    if (!memory) return CUDA_ERROR_INVALID_VALUE;
    auto handle = *memory;
    session.handles.allocations.remove(number);
    return driver().cuMemRelease(handle);
}

static Answer map_allocation(WorkerSession& session, Call& call) {
    auto address = call.in.get<uint64_t>();
    auto bytes = call.in.get<uint64_t>();
    auto offset = call.in.get<uint64_t>();
    auto* memory = session.handles.allocations.find(call.in.get<uint64_t>());
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!memory || !inside_any_range(session, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return driver().cuMemMap(address, bytes, offset, *memory, 0);
}

static Answer unmap_allocation(WorkerSession& session, Call& call) {
    auto address = call.in.get<uint64_t>();
    auto bytes = call.in.get<uint64_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!inside_any_range(session, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return session.run_aside(call, [address, bytes] { return driver().cuMemUnmap(address, bytes); });
}

static Answer set_access(WorkerSession& session, Call& call) {
    auto address = call.in.get<uint64_t>();
    auto bytes = call.in.get<uint64_t>();
    auto device = call.in.get<uint32_t>();
    auto flags = call.in.get<uint32_t>();
    if (auto status = call.in.status(); status != CUDA_SUCCESS) return status;
    if (!inside_any_range(session, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return allow_access(session, device, address, bytes, static_cast<CUmemAccess_flags>(flags));
}

void add_memory_calls(std::vector<Handler>& table) {
    table[wire::op_memory_grant] = grant;
    table[wire::op_memory_map] = map_memory;
    table[wire::op_memory_unmap] = unmap_memory;
    table[wire::op_cuMemGetInfo_v2] = memory_info;
    table[wire::op_cuMemCreate] = create_allocation;
    table[wire::op_cuMemRelease] = release_allocation;
    table[wire::op_cuMemMap] = map_allocation;
    table[wire::op_cuMemUnmap] = unmap_allocation;
    table[wire::op_cuMemSetAccess] = set_access;
}

}  // namespace tnr::worker
