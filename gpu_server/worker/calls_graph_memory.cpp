// Memory that graphs allocate when they run: the driver's own, like the graphs.
#include "gpu_client/protocol/graph_memory_records.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/graph_calls.hpp"

namespace tnr::worker {

static Answer add_allocation(WorkerSession& session, Call& call, const wire::AddAllocationNode<Resolved>& wanted) {
    if (!driver().cuGraphAddMemAllocNode) return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, wanted.work.device.object->handle};
    params.bytesize = wanted.work.bytes;
    std::vector<CUmemAccessDesc> access;
    for (auto peer : wanted.work.peers) {
        if (peer >= session.devices.size()) return CUDA_ERROR_INVALID_VALUE;
        access.push_back(
            {{CU_MEM_LOCATION_TYPE_DEVICE, session.devices[peer].handle}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
    }
    params.accessDescs = access.empty() ? nullptr : access.data();
    params.accessDescCount = access.size();
    auto after = handles_of(wanted.spot.dependencies);
    CUgraphNode made = nullptr;
    auto result = driver().cuGraphAddMemAllocNode(&made, wanted.spot.graph.handle, after.data(), after.size(), &params);
    if (result != CUDA_SUCCESS) return result;
    call.reply(wire::AddressReply{params.dptr});
    return call.in.enter(wanted.node, made) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static Answer get_allocation(WorkerSession& session, Call& call, const wire::GetAllocationNode<Resolved>& wanted) {
    if (!driver().cuGraphMemAllocNodeGetParams) return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    auto result = driver().cuGraphMemAllocNodeGetParams(wanted.named.handle, &params);
    if (result != CUDA_SUCCESS) return result;
    auto number_of = [&](int device) {
        uint32_t number = 0;
        while (number < session.devices.size() && session.devices[number].handle != device) ++number;
        return number;
    };
    wire::ShownAllocation shown;
    shown.work.device = number_of(params.poolProps.location.id);
    shown.work.bytes = params.bytesize;
    shown.address = params.dptr;
    for (size_t i = 0; i < params.accessDescCount && i < wire::peers_max; ++i)
        shown.work.peers.push_back(number_of(params.accessDescs[i].location.id));
    call.reply(shown);
    return CUDA_SUCCESS;
}

static Answer capture_allocation(WorkerSession&, Call& call, const wire::CaptureAllocation<Resolved>& wanted) {
    if (!driver().cuMemAllocAsync) return CUDA_ERROR_NOT_SUPPORTED;
    CUdeviceptr address = 0;
    auto result = driver().cuMemAllocAsync(&address, wanted.bytes, wanted.stream.handle);
    call.reply(wire::AddressReply{address});
    return result;
}

static Answer free_in_stream(WorkerSession&, Call&, const wire::FreeGraphMemory<Resolved>& wanted) {
    if (!driver().cuMemFreeAsync) return CUDA_ERROR_NOT_SUPPORTED;
    return driver().cuMemFreeAsync(wanted.address, wanted.stream.handle);
}

static Answer free_now(WorkerSession& session, Call& call, const wire::FreeGraphMemoryNow& wanted) {
    return session.run_aside(call, [address = wanted.address] { return driver().cuMemFree_v2(address); });
}

static Answer get_amount(WorkerSession&, Call& call, const wire::GetGraphMemory<Resolved>& wanted) {
    if (!driver().cuDeviceGetGraphMemAttribute) return CUDA_ERROR_NOT_SUPPORTED;
    wire::GetGraphMemory<>::Reply reply;
    auto attribute = static_cast<CUgraphMem_attribute>(wanted.attribute);
    auto result = driver().cuDeviceGetGraphMemAttribute(wanted.device.object->handle, attribute, &reply.value);
    call.reply(reply);
    return result;
}

static Answer set_amount(WorkerSession&, Call&, const wire::SetGraphMemory<Resolved>& wanted) {
    if (!driver().cuDeviceSetGraphMemAttribute) return CUDA_ERROR_NOT_SUPPORTED;
    auto value = wanted.value;
    auto attribute = static_cast<CUgraphMem_attribute>(wanted.attribute);
    return driver().cuDeviceSetGraphMemAttribute(wanted.device.object->handle, attribute, &value);
}

void add_graph_memory_calls(HandlerTable& table) {
    table.add<add_allocation>();
    table.add<get_allocation>();
    table.add<capture_allocation>();
    table.add<free_in_stream>();
    table.add<free_now>();
    table.add<get_amount>();
    table.add<set_amount>();
}

}  // namespace tnr::worker
