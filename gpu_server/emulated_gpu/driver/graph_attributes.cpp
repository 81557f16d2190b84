// cuGraphKernelNode...Attribute: of the attributes only whether a launch is cooperative changes what happens here.
#include "gpu_server/emulated_gpu/driver/graph.hpp"

using namespace tnr::emulated;

namespace {

template <class Call>
CUresult on_kernel_node(CUgraphNode handle, Call&& call) {
    return on_node(handle, [&](GraphNode& node) -> CUresult {
        auto* work = node.work_as<KernelWork>();
        return work ? call(node, *work) : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult check_attribute(int id, const CUlaunchAttributeValue& value) {
    if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_node_attribute(id)) return CUDA_ERROR_INVALID_VALUE;
    const auto& cluster = value.clusterDim;
    bool has_cluster = cluster.x > 1 || cluster.y > 1 || cluster.z > 1;
    // As for launches: there are no clusters.
    return id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && has_cluster ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult set_attributes(GraphNode& node, const KernelWork& old, Attributes attributes) {
    auto cooperative = attributes.find(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
    KernelWork fresh = old;
    fresh.launch.cooperative = cooperative != attributes.end() && cooperative->second.cooperative;
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
        if (CUresult error = check_attribute(id, *value)) return error;
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
        return set_attributes(node, work, other->attributes);
    });
}
