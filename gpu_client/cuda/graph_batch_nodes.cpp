// Words that streams write and wait for, and nodes that do.
#include <bit>

#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/graph_nodes.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/streams.hpp"

namespace tnr::cuda {

// What cuda.h allows. It is looked at before the array is.
static constexpr unsigned operations_max = 256;

static CUresult note_captured(CUstream in) {
    StreamRef stream;
    if (resolve_stream(in, stream) == CUDA_SUCCESS && is_captured(stream)) add_needs(stream, meeting_others());
    return CUDA_SUCCESS;
}

CUresult check_cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams*, unsigned) {
    return count <= operations_max ? note_captured(stream) : CUDA_ERROR_INVALID_VALUE;
}
CUresult check_cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams*, unsigned) {
    return count <= operations_max ? note_captured(stream) : CUDA_ERROR_INVALID_VALUE;
}
CUresult check_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr, cuuint32_t, unsigned) {
    return note_captured(stream);
}
CUresult check_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr, cuuint64_t, unsigned) {
    return note_captured(stream);
}
CUresult check_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr, cuuint32_t, unsigned) {
    return note_captured(stream);
}
CUresult check_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr, cuuint64_t, unsigned) {
    return note_captured(stream);
}

// Pinned memory that no kernel has been given is the GPU's, too, from here on.
static CUresult share_word(CUstream in, CUdeviceptr& address, size_t bytes) {
    if (leaves_pinned(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    Context* context = nullptr;
    if (auto result = resolve_stream(in, stream); result != CUDA_SUCCESS) return result;
    if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
    uint64_t device = 0;
    auto result = find_elsewhere(*context, address, device);
    address = device;
    return result;
}
template <class Value>
static CUresult with_shared_word(CUresult(CUDAAPI* call)(CUstream, CUdeviceptr, Value, unsigned), CUstream stream,
                                 CUdeviceptr address, Value value, unsigned flags) {
    auto result = share_word(stream, address, sizeof(Value));
    return result == CUDA_SUCCESS ? call(stream, address, value, flags) : result;
}
CUresult pinned_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    return with_shared_word(cuStreamWriteValue32_v2, stream, address, value, flags);
}
CUresult pinned_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    return with_shared_word(cuStreamWriteValue64_v2, stream, address, value, flags);
}
CUresult pinned_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    return with_shared_word(cuStreamWaitValue32_v2, stream, address, value, flags);
}
CUresult pinned_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    return with_shared_word(cuStreamWaitValue64_v2, stream, address, value, flags);
}

// Words of a stream that is not captured: whoever writes flags, or waits for them, does so between launches.
static bool is_plain_word(CUstream in, CUdeviceptr address, size_t bytes, unsigned flags, bool write) {
    StreamRef stream;
    Context* context = nullptr;
    if (resolve_stream(in, stream) != CUDA_SUCCESS || context_of_stream(stream, context) != CUDA_SUCCESS) return false;
    auto* device = find_device(context->device);
    const bool can =
        bytes == sizeof(uint32_t) || device->attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) == 1;
    const bool nor =
        flags == CU_STREAM_WAIT_VALUE_NOR && device->attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR) == 1;
    const bool known = write ? flags == CU_STREAM_WRITE_VALUE_DEFAULT : flags <= CU_STREAM_WAIT_VALUE_AND || nor;
    return can && known && address % bytes == 0 && is_allocated(address, bytes) && !is_elsewhere(address) &&
           !is_captured(stream);
}
bool plain_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t, unsigned flags) {
    return is_plain_word(stream, address, sizeof(cuuint32_t), flags, true);
}
bool plain_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t, unsigned flags) {
    return is_plain_word(stream, address, sizeof(cuuint64_t), flags, true);
}
bool plain_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t, unsigned flags) {
    return is_plain_word(stream, address, sizeof(cuuint32_t), flags, false);
}
bool plain_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t, unsigned flags) {
    return is_plain_word(stream, address, sizeof(cuuint64_t), flags, false);
}

namespace {

CUresult read_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS* given, wire::BatchWork<>& work) {
    if (!given || (given->count != 0 && !given->paramArray) || given->count > operations_max)
        return CUDA_ERROR_INVALID_VALUE;
    using Operation = decltype(work.operations)::value_type;
    for (unsigned i = 0; i < given->count; ++i)
        work.operations.push_back(std::bit_cast<Operation>(given->paramArray[i]));
    work.flags = given->flags;
    return number_of(given->ctx, work.context);
}

CUresult show_batch(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TableCall call(wire::GetBatchNode<>::op, wire::GetBatchNode<>::way);
    call.handle(handle);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::GetBatchNode<>::Reply work;
    if (auto result = call.take(work); result != CUDA_SUCCESS) return result;
    auto shown = std::make_shared<std::vector<CUstreamBatchMemOpParams>>();
    for (auto& operation : work.operations) shown->push_back(std::bit_cast<CUstreamBatchMemOpParams>(operation));
    auto* context = contexts().at(work.context - 1);
    *out = {handle_of<CUcontext>(context ? context->handle : 0), static_cast<unsigned>(shown->size()), shown->data(),
            work.flags};
    if (auto* node = find_graph_node(handle)) node->batch = std::move(shown);
    return CUDA_SUCCESS;
}

}  // namespace

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuGraphAddBatchMemOpNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                          size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
    return guarded("cuGraphAddBatchMemOpNode", [&]() -> CUresult {
        wire::BatchWork<> work;
        if (auto result = read_batch(given, work); result != CUDA_SUCCESS) return result;
        add_needs(graph, meeting_others());
        return add_node(wire::AddBatchNode<>::op, {out, graph, dependencies, count}, work);
    });
}
CUresult CUDAAPI cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
    return guarded("cuGraphBatchMemOpNodeGetParams", [&] { return show_batch(node, out); });
}
CUresult CUDAAPI cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
    return guarded("cuGraphBatchMemOpNodeSetParams", [&]() -> CUresult {
        wire::BatchWork<> work;
        if (auto result = read_batch(given, work); result != CUDA_SUCCESS) return result;
        return set_node(wire::SetBatchNode<>::op, node, work);
    });
}
CUresult CUDAAPI cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
    return guarded("cuGraphExecBatchMemOpNodeSetParams", [&]() -> CUresult {
        wire::BatchWork<> work;
        if (auto result = read_batch(given, work); result != CUDA_SUCCESS) return result;
        return set_exec_node(wire::SetExecBatchNode<>::op, exec, node, work);
    });
}

}  // extern "C"
