// Nodes that are more than work: memory that is allocated and freed in a graph, and graphs that run on a condition.
#include "gpu_server/emulated_gpu/driver/current.hpp"
#include "gpu_server/emulated_gpu/driver/graph.hpp"
#include "gpu_server/emulated_gpu/driver/graph_node_params.hpp"

namespace tnr::emulated {
namespace {

// One bit per device that may use the memory besides its own.
CUresult access_bits(const CUmemAccessDesc* list, size_t count, uint64_t& bits) {
    if ((count && !list) || count > driver().devices.size()) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
        const CUmemLocation& location = list[i].location;
        if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_of(location.id)) return CUDA_ERROR_INVALID_VALUE;
        if (list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) bits |= uint64_t{1} << location.id;
    }
    return CUDA_SUCCESS;
}

// A condition is for nodes of the graph that it was made for, and of graphs that it holds. Null: it is of another.
std::shared_ptr<GraphCondition> condition_of(const Graph& graph, CUgraphConditionalHandle handle) {
    for (const Graph* outer = &graph; outer; outer = outer->holder)
        for (const auto& own : outer->conditions)
            if (own->handle() == handle) return own;
    return nullptr;
}

// Kernels find the condition as long as a graph, an instance or a launch has what this returns.
std::shared_ptr<GraphCondition> make_condition(Context& context, unsigned initial, unsigned flags) {
    auto named = driver().registry.add(std::make_shared<GraphCondition>(context, initial, flags));
    return {named.get(), [named](GraphCondition*) { driver().registry.remove(named->handle()); }};
}

bool right_size(CUgraphConditionalNodeType type, unsigned size) {
    switch (type) {
        case CU_GRAPH_COND_TYPE_IF:
            return size == 1 || size == 2;
        case CU_GRAPH_COND_TYPE_WHILE:
            return size == 1;
        case CU_GRAPH_COND_TYPE_SWITCH:
            return size > 0;
        default:
            return false;
    }
}

}  // namespace

CUresult alloc_work(const Graph& graph, CUDA_MEM_ALLOC_NODE_PARAMS_v2& given, Work& work) {
    const CUmemPoolProps& pool = given.poolProps;
    if (pool.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || pool.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
    if (graph.moved) return CUDA_ERROR_INVALID_VALUE;
    Device* device = device_of(pool.location.id);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    uint64_t bits = 0;
    if (CUresult error = access_bits(given.accessDescs, given.accessDescCount, bits)) return error;
    AllocWork fresh;
    if (CUresult error = allocate_for_graph(*device, given.bytesize, bits, fresh.allocation)) return error;
    fresh.allocation->graph = graph.weak_from_this();
    given.dptr = fresh.allocation->address;
    fresh.given = {pool, nullptr, given.accessDescCount, given.bytesize, given.dptr};
    if (given.accessDescCount) fresh.access.assign(given.accessDescs, given.accessDescs + given.accessDescCount);
    work = std::make_shared<NodeWork>(std::move(fresh));
    return CUDA_SUCCESS;
}

CUresult free_work(const Graph& graph, CUdeviceptr address, Work& work) {
    auto allocation = graph_allocation(address);
    if (!allocation || graph.moved) return CUDA_ERROR_INVALID_VALUE;
    bool inside = allocation->graph.lock().get() == &graph;
    if (allocation->freed_inside || (inside && allocation->freed_elsewhere)) return CUDA_ERROR_INVALID_VALUE;
    (inside ? allocation->freed_inside : allocation->freed_elsewhere) = true;
    work = std::make_shared<NodeWork>(FreeWork{std::move(allocation)});
    return CUDA_SUCCESS;
}

CUresult conditional_work(Graph& graph, CUDA_CONDITIONAL_NODE_PARAMS& given, Work& work) {
    constexpr unsigned bodies_max = 1 << 16;  // each is a graph: more are a mistake
    auto condition = condition_of(graph, given.handle);
    if (!condition || !condition->node.expired() || !right_size(given.type, given.size) || given.size > bodies_max)
        return CUDA_ERROR_INVALID_VALUE;
    if (given.ctx && find<Context>(given.ctx).get() != &condition->context) return CUDA_ERROR_INVALID_VALUE;
    if (!graph.may_hold(Graph(false))) return CUDA_ERROR_INVALID_VALUE;
    ConditionalWork fresh{condition, given.type, {}, {}};
    for (unsigned i = 0; i < given.size; ++i) {
        auto body = make_graph(true);
        graph.take(*body);
        fresh.shown.push_back(body->as<CUgraph>());
        fresh.bodies.push_back(std::move(body));
    }
    auto made = std::make_shared<NodeWork>(std::move(fresh));
    condition->node = made;
    given.phGraph_out = std::get<ConditionalWork>(*made).shown.data();
    work = std::move(made);
    return CUDA_SUCCESS;
}

void set_condition(uint64_t handle, uint32_t value) {
    if (auto condition = find<GraphCondition>(handle)) condition->value = value;
}

}  // namespace tnr::emulated

using namespace tnr::emulated;

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* out, CUgraph handle, CUcontext context_handle,
                                        unsigned initial, unsigned flags) {
    return on_graph(handle, [&](Graph& graph) -> CUresult {
        if (!out || (flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT})) return CUDA_ERROR_INVALID_VALUE;
        Context* context = context_handle ? find<Context>(context_handle).get() : current_context();
        if (!context) return CUDA_ERROR_INVALID_CONTEXT;
        auto condition = make_condition(*context, initial, flags);
        *out = condition->as<CUgraphConditionalHandle>();
        graph.conditions.push_back(std::move(condition));
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* given) {
    if (!given) return CUDA_ERROR_INVALID_VALUE;
    auto all = parameters_of(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    all.alloc = {given->poolProps, given->accessDescs, given->accessDescCount, given->bytesize, 0};
    CUresult result = cuGraphAddNode_v2(node, graph, dependencies, nullptr, count, &all);
    if (result == CUDA_SUCCESS) given->dptr = all.alloc.dptr;
    return result;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
    return on_node(handle, [&](GraphNode& node) -> CUresult {
        auto* work = node.work_as<AllocWork>();
        if (!work || !out) return CUDA_ERROR_INVALID_VALUE;
        *out = work->given;
        out->accessDescs = work->access.data();
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                               CUdeviceptr address) {
    auto all = parameters_of(CU_GRAPH_NODE_TYPE_MEM_FREE);
    all.free.dptr = address;
    return cuGraphAddNode_v2(node, graph, dependencies, nullptr, count, &all);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* address) {
    return on_node(handle, [&](GraphNode& node) -> CUresult {
        auto* work = node.work_as<FreeWork>();
        if (!work || !address) return CUDA_ERROR_INVALID_VALUE;
        *address = work->allocation->address;
        return CUDA_SUCCESS;
    });
}
