// cuGraphKernelNode...Attribute: of the attributes only whether a launch is cooperative, its cluster and whether kernels may
// change it change what happens here.
#include "gpu_server/emulated_gpu/driver/graph.hpp"
#include "gpu_server/emulated_gpu/driver/launch.hpp"
#include "gpu_server/emulated_gpu/driver/updatable_node.hpp"

using namespace tnr::emulated;

namespace {

template <class Call>
CUresult on_kernel_node(CUgraphNode handle, Call&& call) {
    return on_node(handle, [&](GraphNode& node) -> CUresult {
        auto* work = node.work_as<KernelWork>();
        return work ? call(node, *work) : CUDA_ERROR_INVALID_VALUE;
    });
}

// For good. The caller hears by what name kernels change the node.
CUresult make_updatable(GraphNode& node, const KernelWork& old, CUkernelNodeAttrValue& value) {
    if (value.deviceUpdatableKernelNode.deviceUpdatable != 1) return CUDA_ERROR_INVALID_VALUE;
    KernelWork fresh = old;
    if (!fresh.launch.updatable) fresh.launch.updatable = make_updatable_node();
    value.deviceUpdatableKernelNode.devNode = fresh.launch.updatable->as<CUgraphDeviceNode>();
    fresh.attributes[CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE] = value;
    node.work = std::make_shared<NodeWork>(std::move(fresh));
    for (auto* graph = node.graph; graph; graph = graph->holder) graph->has_updatable = true;
    return CUDA_SUCCESS;
}

CUresult set_attributes(GraphNode& node, const KernelWork& old, Attributes attributes) {
    auto cooperative = attributes.find(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
    KernelWork fresh = old;
    fresh.launch.cooperative = cooperative != attributes.end() && cooperative->second.cooperative;
    LaunchRequest request;
    request.grid = fresh.launch.grid;
    request.cluster = cluster_of(attributes);
    if (CUresult error = choose_cluster(request, *fresh.launch.function, fresh.launch.cluster)) return error;
    fresh.attributes = std::move(attributes);
    node.work = std::make_shared<NodeWork>(std::move(fresh));
    return CUDA_SUCCESS;
}

}  // namespace

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID id, CUkernelNodeAttrValue* value) {
    return on_kernel_node(handle, [&](GraphNode&, const KernelWork& work) -> CUresult {
        if (!value || !is_node_attribute(id)) return CUDA_ERROR_INVALID_VALUE;
        auto found = work.attributes.find(id);
        *value = found == work.attributes.end() ? CUkernelNodeAttrValue{} : found->second;
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID id, const CUkernelNodeAttrValue* value) {
    return on_kernel_node(handle, [&](GraphNode& node, const KernelWork& work) -> CUresult {
        if (!value) return CUDA_ERROR_INVALID_VALUE;
        if (!is_node_attribute(id)) return CUDA_ERROR_INVALID_VALUE;
        if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
            return make_updatable(node, work, const_cast<CUkernelNodeAttrValue&>(*value));
        if (id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW && !work.context().is_sound(value->accessPolicyWindow))
            return CUDA_ERROR_INVALID_VALUE;
        Attributes attributes = work.attributes;
        attributes[id] = *value;
        return set_attributes(node, work, std::move(attributes));
    });
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
    return on_kernel_node(to, [&](GraphNode& node, const KernelWork& work) -> CUresult {
        auto source = find<GraphNode>(from);
        auto* other = source && source->graph ? source->work_as<KernelWork>() : nullptr;
        if (!other || &other->context() != &work.context()) return CUDA_ERROR_INVALID_VALUE;
        if (other->launch.updatable || work.launch.updatable) return CUDA_ERROR_INVALID_VALUE;
        return set_attributes(node, work, other->attributes);
    });
}
