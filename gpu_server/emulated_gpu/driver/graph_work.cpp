#include "gpu_server/emulated_gpu/driver/graph_work.hpp"

#include "gpu_server/emulated_gpu/driver/array.hpp"
#include "gpu_server/emulated_gpu/driver/current.hpp"
#include "gpu_server/emulated_gpu/driver/graph.hpp"
#include "gpu_server/emulated_gpu/driver/module.hpp"

namespace tnr::emulated {
namespace {

// Null handle: the current one. Null if there is none.
Context* context_for(CUcontext handle) {
    if (!handle) return current_context();
    return find<Context>(handle).get();  // never freed
}

Side side_of_memory(uint64_t address) {
    return known(address) ? Side::device : Side::host;
}

void show_side(uint64_t address, size_t pitch, size_t slice, CUmemorytype& type, CUdeviceptr& device, const void*& host,
               size_t& shown_pitch, size_t& height) {
    auto found = driver().addresses.find(address);
    type = found && !found->is_host() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    if (type == CU_MEMORYTYPE_DEVICE)
        device = address;
    else
        host = pointer(address);
    shown_pitch = pitch;
    height = pitch ? slice / pitch : 0;
}

void show_array(const ArrayPlace& place, CUmemorytype& type, CUarray& array, size_t& x, size_t& y, size_t& z) {
    type = CU_MEMORYTYPE_ARRAY;
    array = place.array->as<CUarray>();
    x = place.x_bytes;
    y = place.y;
    z = place.z;
}

Side side_of_copy(const ArrayPlace& place, uint64_t address) {
    return place.array ? Side::array : side_of_memory(address);
}

// A copy of a stream in the words of the structure that nodes are made from.
CUDA_MEMCPY3D shown(const Copy& copy) {
    CUDA_MEMCPY3D box{};
    const void* host = nullptr;
    if (copy.source_array.array)
        show_array(copy.source_array, box.srcMemoryType, box.srcArray, box.srcXInBytes, box.srcY, box.srcZ);
    else
        show_side(copy.source, copy.source_pitch, copy.source_slice, box.srcMemoryType, box.srcDevice, box.srcHost,
                  box.srcPitch, box.srcHeight);
    if (copy.destination_array.array)
        show_array(copy.destination_array, box.dstMemoryType, box.dstArray, box.dstXInBytes, box.dstY, box.dstZ);
    else
        show_side(copy.destination, copy.destination_pitch, copy.destination_slice, box.dstMemoryType, box.dstDevice,
                  host, box.dstPitch, box.dstHeight);
    box.dstHost = const_cast<void*>(host);
    box.WidthInBytes = copy.width;
    box.Height = copy.height;
    box.Depth = copy.depth;
    return box;
}

Work captured(Stream& stream, const Copy& copy) {
    return std::make_shared<NodeWork>(CopyWork{&stream.context, shown(copy), copy,
                                               side_of_copy(copy.destination_array, copy.destination),
                                               side_of_copy(copy.source_array, copy.source)});
}

Work captured(Stream& stream, const Fill& fill) {
    CUDA_MEMSET_NODE_PARAMS shown{fill.destination, fill.pitch, fill.value, fill.element, fill.width, fill.height};
    return std::make_shared<NodeWork>(FillWork{&stream.context, shown, fill});
}

Work captured(Stream& stream, const KernelLaunch& launch) {
    KernelWork work;
    work.launch = launch;
    work.attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = stream.priority;
    for (const CUlaunchAttribute& attribute : launch.attributes)
        if (is_node_attribute(attribute.id)) work.attributes[attribute.id] = attribute.value;
    if (launch.cooperative) work.attributes[CU_LAUNCH_ATTRIBUTE_COOPERATIVE].cooperative = 1;
    return std::make_shared<NodeWork>(std::move(work));
}

Work captured(Stream& stream, const HostCall& call) {
    return std::make_shared<NodeWork>(HostWork{&stream.context, call});
}

Work captured(Stream& stream, const ValueOperations& operations) {
    return std::make_shared<NodeWork>(ValueWork{&stream.context, 0, operations});
}

}  // namespace

bool is_node_attribute(int id) {
    switch (id) {
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
            return true;
        default:
            return false;
    }
}

ptx::Dim3 cluster_of(const Attributes& attributes) {
    auto found = attributes.find(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    if (found == attributes.end()) return {0, 0, 0};
    auto& size = found->second.clusterDim;
    return {size.x, size.y, size.z};
}

Context& KernelWork::context() const {
    return launch.function->module()->context;
}

CUgraphNodeType type_of(const NodeWork& work) {
    struct Types {
        CUgraphNodeType operator()(const EmptyWork&) { return CU_GRAPH_NODE_TYPE_EMPTY; }
        CUgraphNodeType operator()(const KernelWork&) { return CU_GRAPH_NODE_TYPE_KERNEL; }
        CUgraphNodeType operator()(const CopyWork&) { return CU_GRAPH_NODE_TYPE_MEMCPY; }
        CUgraphNodeType operator()(const FillWork&) { return CU_GRAPH_NODE_TYPE_MEMSET; }
        CUgraphNodeType operator()(const HostWork&) { return CU_GRAPH_NODE_TYPE_HOST; }
        CUgraphNodeType operator()(const ChildWork&) { return CU_GRAPH_NODE_TYPE_GRAPH; }
        CUgraphNodeType operator()(const WaitWork&) { return CU_GRAPH_NODE_TYPE_WAIT_EVENT; }
        CUgraphNodeType operator()(const RecordWork&) { return CU_GRAPH_NODE_TYPE_EVENT_RECORD; }
        CUgraphNodeType operator()(const ValueWork&) { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
        CUgraphNodeType operator()(const AllocWork&) { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
        CUgraphNodeType operator()(const FreeWork&) { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
        CUgraphNodeType operator()(const ConditionalWork&) { return CU_GRAPH_NODE_TYPE_CONDITIONAL; }
    };
    return std::visit(Types{}, work);
}

CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS_v3& given, Attributes attributes, Work& work,
                     std::shared_ptr<UpdatableNode> updatable) {
    CUfunction handle = given.func ? given.func : reinterpret_cast<CUfunction>(given.kern);
    auto function = find<Function>(handle);
    Context* context = function ? &function->module()->context : context_for(given.ctx);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    auto cooperative = attributes.find(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
    LaunchRequest request{handle,
                          {given.gridDimX, given.gridDimY, given.gridDimZ},
                          {given.blockDimX, given.blockDimY, given.blockDimZ},
                          given.sharedMemBytes,
                          cooperative != attributes.end() && cooperative->second.cooperative,
                          given.kernelParams,
                          given.extra};
    request.cluster = cluster_of(attributes);
    request.updatable = std::move(updatable);
    if (request.cooperative && request.extra) return CUDA_ERROR_INVALID_VALUE;
    KernelWork fresh;
    fresh.as_buffer = request.extra != nullptr;
    fresh.attributes = std::move(attributes);
    CUresult error = prepare_launch(*context, request, fresh.launch);
    // A graph's functions name no bad handle but a bad value.
    if (error) return error == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : error;
    work = std::make_shared<NodeWork>(std::move(fresh));
    return CUDA_SUCCESS;
}

namespace {

CUresult copy_work(const CUDA_MEMCPY3D& given, CUcontext handle, Work& work) {
    Context* context = context_for(handle);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    CopyWork fresh;
    fresh.context = context;
    fresh.given = given;
    if (CUresult error = box_of(given, fresh.copy, fresh.destination, fresh.source)) return error;
    if (fresh.copy.empty()) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = check_copy(*context, fresh.copy, fresh.destination, fresh.source)) return error;
    fresh.destination = side_of_copy(fresh.copy.destination_array, fresh.copy.destination);
    fresh.source = side_of_copy(fresh.copy.source_array, fresh.copy.source);
    work = std::make_shared<NodeWork>(fresh);
    return CUDA_SUCCESS;
}

CUresult fill_work(const CUDA_MEMSET_NODE_PARAMS_v2& given, Work& work) {
    Context* context = context_for(given.ctx);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    unsigned element = given.elementSize;
    if ((element != 1 && element != 2 && element != 4) || !given.width || !given.height)
        return CUDA_ERROR_INVALID_VALUE;
    Fill fill{given.dst, given.height == 1 ? 0 : given.pitch, given.value, element, given.width, given.height};
    if (CUresult error = check_fill(*context, fill)) return error;
    CUDA_MEMSET_NODE_PARAMS shown{given.dst, given.pitch, given.value, element, given.width, given.height};
    work = std::make_shared<NodeWork>(FillWork{context, shown, fill});
    return CUDA_SUCCESS;
}

CUresult value_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& given, Work& work) {
    if (given.flags || given.count > value_operations_max || (given.count && !given.paramArray))
        return CUDA_ERROR_INVALID_VALUE;
    Context* context = context_for(given.ctx);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    ValueWork fresh{context, given.flags, {{given.paramArray, given.paramArray + given.count}}};
    if (CUresult error = check_values(*context, fresh.operations)) return error;
    work = std::make_shared<NodeWork>(std::move(fresh));
    return CUDA_SUCCESS;
}

template <class EventWork>
CUresult event_work(CUevent handle, Work& work) {
    auto event = find<Event>(handle);
    if (!event) return CUDA_ERROR_INVALID_VALUE;
    work = std::make_shared<NodeWork>(EventWork{std::move(event)});
    return CUDA_SUCCESS;
}

CUresult child_work(Graph& parent, const CUDA_CHILD_GRAPH_NODE_PARAMS& given, Work& work) {
    auto graph = find<Graph>(given.graph);
    if (!graph || graph->is_captured()) return CUDA_ERROR_INVALID_VALUE;
    if (graph->conditional_nodes) return CUDA_ERROR_NOT_SUPPORTED;
    if (given.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) {
        if (graph->has_memory) return CUDA_ERROR_NOT_SUPPORTED;
        if (graph->has_updatable || !parent.may_hold_copy_of(*graph)) return CUDA_ERROR_INVALID_VALUE;
        graph = clone(*graph, true);
    } else {
        bool may = given.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE && parent.may_hold(*graph);
        if (!may) return CUDA_ERROR_INVALID_VALUE;
        if (graph->held) return CUDA_ERROR_NOT_SUPPORTED;
        graph->moved = true;
    }
    parent.take(*graph);
    work = std::make_shared<NodeWork>(ChildWork{std::move(graph), given.ownership});
    return CUDA_SUCCESS;
}

}  // namespace

void KernelWork::show(CUDA_KERNEL_NODE_PARAMS& out) const {
    out = {};
    out.func = launch.handle;
    if (find<Kernel>(launch.handle)) {
        out.kern = reinterpret_cast<CUkernel>(launch.handle);
        out.ctx = context().as<CUcontext>();
    }
    out.gridDimX = launch.grid.x, out.gridDimY = launch.grid.y, out.gridDimZ = launch.grid.z;
    out.blockDimX = launch.block.x, out.blockDimY = launch.block.y, out.blockDimZ = launch.block.z;
    out.sharedMemBytes = launch.dynamic_shared_bytes;
    auto* bytes = const_cast<std::byte*>(launch.parameters.data());
    shown_bytes_ = launch.parameters.size();
    if (as_buffer) {
        shown_ = {CU_LAUNCH_PARAM_BUFFER_POINTER, bytes, CU_LAUNCH_PARAM_BUFFER_SIZE, &shown_bytes_,
                  CU_LAUNCH_PARAM_END};
        out.extra = shown_.data();
        return;
    }
    shown_.clear();
    for (const ptx::Parameter& parameter : launch.function->kernel().parameters)
        shown_.push_back(bytes + parameter.offset);
    out.kernelParams = shown_.data();
}

CUresult make_work(Graph& graph, CUgraphNodeParams& given, Work& work) {
    switch (given.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return kernel_work(given.kernel, {}, work);
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            if (given.memcpy.flags || given.memcpy.reserved) return CUDA_ERROR_INVALID_VALUE;
            return copy_work(given.memcpy.copyParams, given.memcpy.copyCtx, work);
        case CU_GRAPH_NODE_TYPE_MEMSET:
            return fill_work(given.memset, work);
        case CU_GRAPH_NODE_TYPE_HOST:
            if (!given.host.fn) return CUDA_ERROR_INVALID_VALUE;
            work = std::make_shared<NodeWork>(HostWork{nullptr, {given.host.fn, given.host.userData}});
            return CUDA_SUCCESS;
        case CU_GRAPH_NODE_TYPE_GRAPH:
            return child_work(graph, given.graph, work);
        case CU_GRAPH_NODE_TYPE_EMPTY:
            work = std::make_shared<NodeWork>(EmptyWork{});
            return CUDA_SUCCESS;
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return event_work<WaitWork>(given.eventWait.event, work);
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return event_work<RecordWork>(given.eventRecord.event, work);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
            return value_work(given.memOp, work);
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
            return alloc_work(graph, given.alloc, work);
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            return free_work(graph, given.free.dptr, work);
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            return conditional_work(graph, given.conditional, work);
        case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
        case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
            return CUDA_ERROR_NOT_SUPPORTED;  // there is nothing outside to share one with
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult changed_work(Graph& graph, const NodeWork& old, CUgraphNodeParams& given, Work& work) {
    if (given.type != type_of(old)) return CUDA_ERROR_INVALID_VALUE;
    if (auto* kernel = std::get_if<KernelWork>(&old))
        return kernel_work(given.kernel, kernel->attributes, work, kernel->launch.updatable);
    switch (given.type) {
        case CU_GRAPH_NODE_TYPE_GRAPH:
            if (given.graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) return CUDA_ERROR_INVALID_VALUE;
            return make_work(graph, given, work);
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:  // what a node holds is changed itself, by the functions for graphs
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            return make_work(graph, given, work);
    }
}

Work captured_work(Stream& stream, const Operation& operation) {
    return std::visit([&](const auto& does) { return captured(stream, does); }, operation);
}

}  // namespace tnr::emulated
