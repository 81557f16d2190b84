// See graph_memory.hpp; and the nodes that allocate and free.
#include "gpu_client/cuda/graph_memory.hpp"

#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/graph_nodes.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/memory_info.hpp"
#include "gpu_client/protocol/graph_memory_records.hpp"

namespace tnr::cuda {

namespace {

// Launches may fail for what the graph's memory is: the program wants to hear of it at the launch.
GraphNeeds allocates() {
    GraphNeeds needs;
    needs.allocates = true;
    return needs;
}

uint64_t context_on(int ordinal) {
    auto* current = contexts().find(current_context_handle());
    return current && current->device == ordinal ? current->handle : find_device(ordinal)->primary_context;
}

CUresult read_allocation(const CUDA_MEM_ALLOC_NODE_PARAMS* given, wire::AllocationWork<>& work) {
    if (!given || given->bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
    auto& pool = given->poolProps;
    bool sound = pool.allocType == CU_MEM_ALLOCATION_TYPE_PINNED && pool.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                 (given->accessDescCount == 0 || given->accessDescs);
    auto* device = sound ? find_device(pool.location.id) : nullptr;
    if (!device || given->accessDescCount > devices().size()) return CUDA_ERROR_INVALID_VALUE;
    if (pool.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
    work.device = device->number;
    work.bytes = given->bytesize;
    for (size_t i = 0; i < given->accessDescCount; ++i) {
        auto* peer = find_device(given->accessDescs[i].location.id);
        bool readable = peer && given->accessDescs[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                        given->accessDescs[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (!readable) return CUDA_ERROR_INVALID_VALUE;
        work.peers.push_back(peer->number);
    }
    return CUDA_SUCCESS;
}

CUresult add_allocation(const NodePlace& place, CUDA_MEM_ALLOC_NODE_PARAMS* given) {
    wire::AllocationWork<> work;
    if (!place.out || (place.count != 0 && !place.dependencies)) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = read_allocation(given, work); result != CUDA_SUCCESS) return result;
    TableCall call(wire::AddAllocationNode<>::op, wire::AddAllocationNode<>::way);
    Minted<CUgraphNode> made;
    put_place(call, made, place);
    call.put(work);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::AddressReply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    note_graph_memory(reply.address, work.bytes, context_on(given->poolProps.location.id));
    add_needs(place.graph, allocates());
    *place.out = made.keep(call);
    given->dptr = reply.address;
    return CUDA_SUCCESS;
}

// The list of those who may use it lasts as long as the node's handle.
CUresult show_allocation(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TableCall call(wire::GetAllocationNode<>::op, wire::GetAllocationNode<>::way);
    call.handle(handle);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::ShownAllocation shown;
    if (auto result = call.take(shown); result != CUDA_SUCCESS) return result;
    auto ordinal_of = [&](uint32_t number) {
        for (auto* device : devices())
            if (device->number == number) return device->ordinal;
        return CU_DEVICE_INVALID;
    };
    auto access = std::make_shared<std::vector<CUmemAccessDesc>>();
    for (auto peer : shown.work.peers)
        access->push_back({{CU_MEM_LOCATION_TYPE_DEVICE, ordinal_of(peer)}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
    *out = {};
    out->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    out->poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal_of(shown.work.device)};
    out->bytesize = shown.work.bytes;
    out->dptr = shown.address;
    out->accessDescCount = access->size();
    out->accessDescs = access->empty() ? nullptr : access->data();
    if (auto* node = find_graph_node(handle)) node->access = std::move(access);
    return CUDA_SUCCESS;
}

CUresult check_attribute(CUdevice ordinal, const void* value, Device*& device) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    device = find_device(ordinal);
    return device ? open_session(*device) : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

CUresult capture_allocation(const StreamRef& stream, uint64_t bytes, CUdeviceptr& address) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    RemoteCall call(wire::CaptureAllocation<>{stream.number, bytes});
    call.use(stream);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::AddressReply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    note_graph_memory(reply.address, bytes, stream.object->context);
    add_needs(stream, allocates());
    address = reply.address;
    return CUDA_SUCCESS;
}

CUresult free_graph_memory(const StreamRef& stream, uint64_t address) {
    RemoteCall call(wire::FreeGraphMemory<>{stream.number, address});
    call.use(stream);
    driver_took_memory();
    auto result = call.send();
    if (result == CUDA_SUCCESS && is_captured(stream)) add_needs(stream, allocates());
    return result;
}

CUresult free_graph_memory_now(uint64_t address) {
    driver_took_memory();
    return RemoteCall(wire::FreeGraphMemoryNow{address}).send();
}

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                        CUDA_MEM_ALLOC_NODE_PARAMS* given) {
    return guarded("cuGraphAddMemAllocNode", [&] { return add_allocation({out, graph, dependencies, count}, given); });
}

CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
    return guarded("cuGraphMemAllocNodeGetParams", [&] { return show_allocation(node, out); });
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
    return guarded("cuDeviceGetGraphMemAttribute", [&]() -> CUresult {
        Device* device = nullptr;
        if (auto result = check_attribute(ordinal, value, device); result != CUDA_SUCCESS) return result;
        RemoteCall call(wire::GetGraphMemory<>{device->number, static_cast<uint32_t>(attribute)});
        call.on(*device);
        if (auto result = call.send(); result != CUDA_SUCCESS) return result;
        wire::GetGraphMemory<>::Reply reply;
        if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
        *static_cast<cuuint64_t*>(value) = reply.value;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
    return guarded("cuDeviceSetGraphMemAttribute", [&]() -> CUresult {
        Device* device = nullptr;
        if (auto result = check_attribute(ordinal, value, device); result != CUDA_SUCCESS) return result;
        // Programs pass what is no address for an attribute that cannot be set: it must not be read.
        const bool can_be_set =
            attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
        if (!can_be_set) return CUDA_ERROR_INVALID_VALUE;
        RemoteCall call(wire::SetGraphMemory<>{device->number, static_cast<uint32_t>(attribute),
                                               *static_cast<const cuuint64_t*>(value)});
        call.on(*device);
        return call.send();
    });
}

}  // extern "C"

namespace tnr::cuda {

// A graph that frees what another one allocates.
CUresult check_cuGraphAddMemFreeNode(CUgraphNode*, CUgraph graph, const CUgraphNode*, size_t, CUdeviceptr address) {
    if (!is_graph_memory(address)) return CUDA_ERROR_INVALID_VALUE;
    add_needs(graph, allocates());
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda
