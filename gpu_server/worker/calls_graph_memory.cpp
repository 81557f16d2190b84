// Memory that graphs allocate when they run, and their launches: the memory is the driver's own, like the graphs, but
// charged to the session (graph_memory.hpp).
#include "gpu_client/protocol/graph_memory_records.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/graph_calls.hpp"
#include "gpu_server/worker/memory_grants.hpp"

namespace tnr::worker {

static Answer add_allocation(WorkerSession& session, Call& call, const wire::AddAllocationNode<Resolved>& wanted) {
    if (!driver().cuGraphAddMemAllocNode) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto room = call.in.room_for<CUgraphNode>(wanted.node); room != CUDA_SUCCESS) return room;
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
    session.handles.graphs.any_allocates = true;
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

static Answer capture_allocation(WorkerSession& session, Call& call, const wire::CaptureAllocation<Resolved>& wanted) {
    if (!driver().cuMemAllocAsync) return CUDA_ERROR_NOT_SUPPORTED;
    CUdeviceptr address = 0;
    // What is not captured would be the driver's to give.
    if (!graph_of_capture(wanted.stream.handle)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    session.handles.graphs.any_allocates = true;
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

// ---- launches

// Asks the supervisor for what lacks, then makes the driver give up what it can.
static bool make_room(WorkerSession& session, const AllocatingGraph& graph) {
    auto& memory = session.graph_memory;
    uint32_t device = 0;
    uint64_t lacking = 0;
    while (!memory.charge(graph, device, lacking)) {
        auto granted = ask_and_wait(session.supervisor, device, lacking);
        memory.granted(device, granted);
        if (granted >= lacking) continue;  // of each device once
        memory.trim();
        return memory.charge(graph, device, lacking);
    }
    return true;
}

static CUresult launch_charged(WorkerSession& session, const wire::LaunchGraph<Resolved>& launch,
                               AllocatingGraph& graph) {
    auto result = driver().cuGraphLaunch(launch.exec.handle, launch.stream.handle);
    if (result == CUDA_SUCCESS) session.graph_memory.launched(graph);
    return result;
}

static wire::Bytes news_for_client(WorkerSession& session, uint64_t call_number) {
    session.graph_memory.settle();
    wire::LaunchGraph<>::Reply reply;
    if (call_number != 0) reply.changes = session.graph_memory.changes();
    return wire::payload_of(reply);
}

static Answer launch_allocating(WorkerSession& session, Call& call, const wire::LaunchGraph<Resolved>& launch,
                                AllocatingGraph& graph) {
    uint32_t device = 0;
    uint64_t lacking = 0;
    if (session.graph_memory.charge(graph, device, lacking)) {
        auto result = launch_charged(session, launch, graph);
        call.outputs = news_for_client(session, call.number);
        return result;
    }
    return session.run_aside(call, [&session, launch, &graph, number = call.number](wire::Bytes& outputs) -> CUresult {
        auto result = make_room(session, graph) ? launch_charged(session, launch, graph) : CUDA_ERROR_OUT_OF_MEMORY;
        outputs = news_for_client(session, number);
        return result;
    });
}

static Answer launch_graph(WorkerSession& session, Call& call, const wire::LaunchGraph<Resolved>& launch) {
    if (auto* graph = session.handles.graphs.allocating.find(launch.exec.number))
        return launch_allocating(session, call, launch, *graph);
    return driver().cuGraphLaunch(launch.exec.handle, launch.stream.handle);
}

// What allocates is uploaded by its first launch, which is charged for it.
static Answer upload_graph(WorkerSession& session, Call&, const wire::UploadGraph<Resolved>& upload) {
    if (session.handles.graphs.allocating.find(upload.exec.number)) return CUDA_SUCCESS;
    if (!driver().cuGraphUpload) return CUDA_ERROR_NOT_SUPPORTED;
    return driver().cuGraphUpload(upload.exec.handle, upload.stream.handle);
}

void add_graph_memory_calls(HandlerTable& table) {
    table.add<launch_graph>();
    table.add<upload_graph>();
    table.add<add_allocation>();
    table.add<get_allocation>();
    table.add<capture_allocation>();
    table.add<free_in_stream>();
    table.add<free_now>();
    table.add<get_amount>();
    table.add<set_amount>();
}

}  // namespace tnr::worker
