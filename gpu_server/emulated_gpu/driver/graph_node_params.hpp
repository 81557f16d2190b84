// The typed functions on nodes (cuGraphAddKernelNode and so on) in terms of the general structure of cuda.h, which holds
// each type's parameters.
#pragma once

#include "gpu_server/emulated_gpu/driver/abi.hpp"

namespace tnr::emulated {

inline CUgraphNodeParams parameters_of(CUgraphNodeType type) {
    CUgraphNodeParams all{};
    all.type = type;
    return all;
}

inline CUgraphNodeParams parameters_of(const CUDA_KERNEL_NODE_PARAMS& given) {
    auto all = parameters_of(CU_GRAPH_NODE_TYPE_KERNEL);
    all.kernel = {given.func,         given.gridDimX,  given.gridDimY,  given.gridDimZ,
                  given.blockDimX,    given.blockDimY, given.blockDimZ, given.sharedMemBytes,
                  given.kernelParams, given.extra,     given.kern,      given.ctx};
    return all;
}

inline CUgraphNodeParams parameters_of(const CUDA_KERNEL_NODE_PARAMS_v1& given) {
    auto all = parameters_of(CU_GRAPH_NODE_TYPE_KERNEL);
    all.kernel = {given.func,         given.gridDimX,  given.gridDimY,  given.gridDimZ,
                  given.blockDimX,    given.blockDimY, given.blockDimZ, given.sharedMemBytes,
                  given.kernelParams, given.extra,     nullptr,         nullptr};
    return all;
}

inline CUgraphNodeParams parameters_of(const CUDA_MEMCPY3D& given, CUcontext context) {
    auto all = parameters_of(CU_GRAPH_NODE_TYPE_MEMCPY);
    all.memcpy.copyParams = given;
    all.memcpy.copyCtx = context;
    return all;
}

inline CUgraphNodeParams parameters_of(const CUDA_MEMSET_NODE_PARAMS& given, CUcontext context) {
    auto all = parameters_of(CU_GRAPH_NODE_TYPE_MEMSET);
    all.memset = {given.dst, given.pitch, given.value, given.elementSize, given.width, given.height, context};
    return all;
}

inline CUgraphNodeParams parameters_of(const CUDA_HOST_NODE_PARAMS& given) {
    auto all = parameters_of(CU_GRAPH_NODE_TYPE_HOST);
    all.host = {given.fn, given.userData};
    return all;
}

inline CUgraphNodeParams parameters_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS& given) {
    auto all = parameters_of(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
    all.memOp = {given.ctx, given.count, given.paramArray, given.flags};
    return all;
}

inline CUgraphNodeParams parameters_of(CUgraph child) {
    auto all = parameters_of(CU_GRAPH_NODE_TYPE_GRAPH);
    all.graph.graph = child;
    return all;
}

inline CUgraphNodeParams record_parameters(CUevent event) {
    auto all = parameters_of(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    all.eventRecord.event = event;
    return all;
}

inline CUgraphNodeParams wait_parameters(CUevent event) {
    auto all = parameters_of(CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    all.eventWait.event = event;
    return all;
}

}  // namespace tnr::emulated
