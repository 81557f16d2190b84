// Nodes of graphs: kernels, copies, words, graphs and conditions.
#include <bit>
#include <set>

#include "gpu_client/protocol/code_records.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/graph_calls.hpp"

namespace tnr::worker {

// ---- what comes before a node ----

static CUresult add_dependencies(CUgraphNode node, std::vector<CUgraphNode>& all) {
    auto ask = [&](CUgraphNode* nodes, size_t* count) {
        return driver().cuGraphNodeGetDependencies_v2
                   ? driver().cuGraphNodeGetDependencies_v2(node, nodes, nullptr, count)
                   : driver().cuGraphNodeGetDependencies(node, nodes, count);
    };
    size_t count = 0;
    if (auto result = ask(nullptr, &count); result != CUDA_SUCCESS || count == 0) return result;
    auto before = all.size();
    all.resize(before + count);
    return ask(all.data() + before, &count);
}

static CUresult add_nodes(CUgraph graph, std::vector<CUgraphNode>& all) {
    size_t count = 0;
    if (auto result = driver().cuGraphGetNodes(graph, nullptr, &count); result != CUDA_SUCCESS || count == 0)
        return result;
    auto before = all.size();
    all.resize(before + count);
    return driver().cuGraphGetNodes(graph, all.data() + before, &count);
}

CUresult Ancestors::find(const std::vector<CUgraphNode>& before) {
    auto& table = driver();
    bool can = (table.cuGraphNodeGetDependencies || table.cuGraphNodeGetDependencies_v2) && table.cuGraphGetNodes;
    if (!can) return CUDA_ERROR_NOT_SUPPORTED;
    std::set<CUgraphNode> known(before.begin(), before.end());
    std::vector<CUgraphNode> left(known.begin(), known.end());
    while (!left.empty()) {
        auto node = left.back();
        left.pop_back();
        auto type = CU_GRAPH_NODE_TYPE_EMPTY;
        if (auto result = table.cuGraphNodeGetType(node, &type); result != CUDA_SUCCESS) return result;
        functions |= type == CU_GRAPH_NODE_TYPE_HOST;
        CUDA_MEMCPY3D copy{};
        if (type == CU_GRAPH_NODE_TYPE_MEMCPY && table.cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS)
            written.push_back(copy.dstDevice);
        std::vector<CUgraphNode> more;
        CUgraph child = nullptr;
        if (type == CU_GRAPH_NODE_TYPE_GRAPH && table.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
            if (auto result = add_nodes(child, more); result != CUDA_SUCCESS) return result;
        if (auto result = add_dependencies(node, more); result != CUDA_SUCCESS) return result;
        for (auto next : more)
            if (known.insert(next).second) left.push_back(next);
    }
    return CUDA_SUCCESS;
}

// ---- kernels ----

namespace {

// The driver's description, and what it points to.
class KernelNode {
public:
    KernelNode(const wire::KernelWork<Resolved>& work, CUcontext context)
        : bytes_(work.parameters.size()),
          // The driver's interface is not const-correct; it only reads.
          extra_{CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(work.parameters.data()),
                 CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes_, CU_LAUNCH_PARAM_END} {
        params_.kern = work.kernel.handle;
        params_.ctx = context;
        params_.gridDimX = work.grid[0], params_.gridDimY = work.grid[1], params_.gridDimZ = work.grid[2];
        params_.blockDimX = work.block[0], params_.blockDimY = work.block[1], params_.blockDimZ = work.block[2];
        params_.sharedMemBytes = work.shared_bytes;
        bool one_by_one = !work.as_buffer && point_to_each(work);
        if (bytes_ == 0) return;
        params_.kernelParams = one_by_one ? pointers_.data() : nullptr;
        params_.extra = one_by_one ? nullptr : extra_;
    }
    KernelNode(const KernelNode&) = delete;
    KernelNode& operator=(const KernelNode&) = delete;
    const CUDA_KERNEL_NODE_PARAMS* params() const { return &params_; }

private:
    // False with a driver that does not tell where the parameters are.
    bool point_to_each(const wire::KernelWork<Resolved>& work) {
        if (!driver().cuKernelGetParamInfo) return false;
        size_t offset = 0, size = 0;
        for (size_t i = 0; driver().cuKernelGetParamInfo(work.kernel.handle, i, &offset, &size) == CUDA_SUCCESS; ++i) {
            if (offset > bytes_ || size > bytes_ - offset) return false;
            pointers_.push_back(const_cast<std::byte*>(work.parameters.data()) + offset);
        }
        return true;
    }

    size_t bytes_;
    void* extra_[5];
    std::vector<void*> pointers_;
    CUDA_KERNEL_NODE_PARAMS params_{};
};

bool is_sound(const wire::KernelWork<Resolved>& work) {
    return work.parameters.size() <= wire::parameter_bytes_max;
}

}  // namespace

static Answer add_kernel(WorkerSession& session, Call& call, const wire::AddKernelNode<Resolved>& wanted) {
    if (!driver().cuGraphAddKernelNode_v2) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto room = call.in.room_for<CUgraphNode>(wanted.node); room != CUDA_SUCCESS) return room;
    if (!is_sound(wanted.work)) return CUDA_ERROR_INVALID_VALUE;
    KernelNode node(wanted.work, session.current());
    auto after = handles_of(wanted.spot.dependencies);
    CUgraphNode made = nullptr;
    auto result =
        driver().cuGraphAddKernelNode_v2(&made, wanted.spot.graph.handle, after.data(), after.size(), node.params());
    if (result != CUDA_SUCCESS) return result;
    return call.in.enter(wanted.node, made) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static Answer set_kernel(WorkerSession& session, Call&, const wire::SetKernelNode<Resolved>& wanted) {
    if (!driver().cuGraphKernelNodeSetParams_v2) return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_sound(wanted.work)) return CUDA_ERROR_INVALID_VALUE;
    KernelNode node(wanted.work, session.current());
    return driver().cuGraphKernelNodeSetParams_v2(wanted.node.handle, node.params());
}

static Answer set_exec_kernel(WorkerSession& session, Call&, const wire::SetExecKernelNode<Resolved>& wanted) {
    if (!driver().cuGraphExecKernelNodeSetParams_v2) return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_sound(wanted.work)) return CUDA_ERROR_INVALID_VALUE;
    KernelNode node(wanted.work, session.current());
    return driver().cuGraphExecKernelNodeSetParams_v2(wanted.exec.handle, wanted.node.handle, node.params());
}

// A driver may name a kernel in either of two ways.
static bool is_kernel(const Kernel& known, const CUDA_KERNEL_NODE_PARAMS& params) {
    if (params.kern) return known.handle == params.kern;
    if (reinterpret_cast<CUfunction>(known.handle) == params.func) return true;
    CUfunction function = nullptr;
    return driver().cuKernelGetFunction(&function, known.handle) == CUDA_SUCCESS && function == params.func;
}

static const Kernel* find_kernel(WorkerSession& session, const CUDA_KERNEL_NODE_PARAMS& params, uint64_t& number) {
    for (auto& [library, code] : session.handles.libraries)
        for (size_t index = 0; index < code.kernels.size(); ++index) {
            if (!is_kernel(code.kernels[index], params)) continue;
            number = wire::function_number(library, index);
            return &code.kernels[index];
        }
    return nullptr;
}

// As one piece, whichever way the driver shows them.
static CUresult read_parameters(const Kernel& kernel, const CUDA_KERNEL_NODE_PARAMS& params, wire::Bytes& bytes) {
    if (params.extra) {
        const void* buffer = nullptr;
        size_t size = 0;
        for (void** item = params.extra; *item != CU_LAUNCH_PARAM_END; item += 2) {
            if (*item == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = item[1];
            if (*item == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<size_t*>(item[1]);
        }
        bytes.resize(size);
        if (size != 0) std::memcpy(bytes.data(), buffer, size);
        return CUDA_SUCCESS;
    }
    if (!params.kernelParams) return CUDA_SUCCESS;
    if (!driver().cuKernelGetParamInfo) return CUDA_ERROR_NOT_SUPPORTED;
    size_t offset = 0, size = 0;
    for (size_t i = 0; driver().cuKernelGetParamInfo(kernel.handle, i, &offset, &size) == CUDA_SUCCESS; ++i) {
        bytes.resize(std::max(bytes.size(), offset + size));
        std::memcpy(bytes.data() + offset, params.kernelParams[i], size);
    }
    return CUDA_SUCCESS;
}

static Answer get_kernel(WorkerSession& session, Call& call, const wire::GetKernelNode<Resolved>& wanted) {
    if (!driver().cuGraphKernelNodeGetParams_v2) return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_KERNEL_NODE_PARAMS params{};
    auto result = driver().cuGraphKernelNodeGetParams_v2(wanted.named.handle, &params);
    if (result != CUDA_SUCCESS) return result;
    wire::GetKernelNode<>::Reply reply;
    auto* kernel = find_kernel(session, params, reply.kernel);
    if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
    wire::Bytes bytes;
    if (result = read_parameters(*kernel, params, bytes); result != CUDA_SUCCESS) return result;
    reply.grid = {params.gridDimX, params.gridDimY, params.gridDimZ};
    reply.block = {params.blockDimX, params.blockDimY, params.blockDimZ};
    reply.shared_bytes = params.sharedMemBytes;
    reply.parameters = bytes;
    reply.as_buffer = params.extra != nullptr;
    call.reply(reply);
    return result;
}

// ---- copies ----

// The record's end: arrays, if there are any.
static CUresult read_copy(Call& call, const wire::CopyWork<Resolved>& work, CUDA_MEMCPY3D& copy) {
    wire::CopyArrays<Resolved> arrays;
    auto status = call.in.left() != 0 ? call.in.read(arrays) : call.in.status();
    if (status != CUDA_SUCCESS) return status;
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = work.from, copy.srcPitch = work.from_pitch, copy.srcHeight = work.from_rows;
    copy.dstDevice = work.to, copy.dstPitch = work.to_pitch, copy.dstHeight = work.to_rows;
    copy.WidthInBytes = work.row_bytes, copy.Height = work.rows, copy.Depth = work.slices;
    if (arrays.from.handle) {
        copy.srcMemoryType = CU_MEMORYTYPE_ARRAY, copy.srcArray = arrays.from.handle;
        copy.srcXInBytes = arrays.from_place[0], copy.srcY = arrays.from_place[1], copy.srcZ = arrays.from_place[2];
    }
    if (arrays.to.handle) {
        copy.dstMemoryType = CU_MEMORYTYPE_ARRAY, copy.dstArray = arrays.to.handle;
        copy.dstXInBytes = arrays.to_place[0], copy.dstY = arrays.to_place[1], copy.dstZ = arrays.to_place[2];
    }
    return CUDA_SUCCESS;
}

static CUresult check_place(const wire::CopyWork<Resolved>& work, const std::vector<CUgraphNode>& before) {
    if (!work.from_host) return CUDA_SUCCESS;
    Ancestors ancestors;
    auto result = ancestors.find(before);
    return result == CUDA_SUCCESS && ancestors.functions ? CUDA_ERROR_NOT_SUPPORTED : result;
}

static Answer add_copy(WorkerSession&, Call& call, const wire::AddCopyNode<Resolved>& wanted) {
    if (!driver().cuGraphAddMemcpyNode) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto room = call.in.room_for<CUgraphNode>(wanted.node); room != CUDA_SUCCESS) return room;
    auto after = handles_of(wanted.spot.dependencies);
    if (auto refused = check_place(wanted.work, after); refused != CUDA_SUCCESS) return refused;
    CUDA_MEMCPY3D copy{};
    if (auto bad = read_copy(call, wanted.work, copy); bad != CUDA_SUCCESS) return bad;
    CUgraphNode made = nullptr;
    auto result = driver().cuGraphAddMemcpyNode(&made, wanted.spot.graph.handle, after.data(), after.size(), &copy,
                                                wanted.work.context.handle);
    if (result != CUDA_SUCCESS) return result;
    return call.in.enter(wanted.node, made) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static Answer set_copy(WorkerSession&, Call& call, const wire::SetCopyNode<Resolved>& wanted) {
    if (!driver().cuGraphMemcpyNodeSetParams) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto refused = check_place(wanted.work, {wanted.node.handle}); refused != CUDA_SUCCESS) return refused;
    CUDA_MEMCPY3D copy{};
    if (auto bad = read_copy(call, wanted.work, copy); bad != CUDA_SUCCESS) return bad;
    return driver().cuGraphMemcpyNodeSetParams(wanted.node.handle, &copy);
}

static Answer set_exec_copy(WorkerSession&, Call& call, const wire::SetExecCopyNode<Resolved>& wanted) {
    if (!driver().cuGraphExecMemcpyNodeSetParams) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto refused = check_place(wanted.work, {wanted.node.handle}); refused != CUDA_SUCCESS) return refused;
    CUDA_MEMCPY3D copy{};
    if (auto bad = read_copy(call, wanted.work, copy); bad != CUDA_SUCCESS) return bad;
    return driver().cuGraphExecMemcpyNodeSetParams(wanted.exec.handle, wanted.node.handle, &copy,
                                                   wanted.work.context.handle);
}

static Answer get_copy(WorkerSession&, Call& call, const wire::GetCopyNode<Resolved>& wanted) {
    if (!driver().cuGraphMemcpyNodeGetParams) return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_MEMCPY3D copy{};
    auto result = driver().cuGraphMemcpyNodeGetParams(wanted.named.handle, &copy);
    if (result != CUDA_SUCCESS) return result;
    auto start = [](uint64_t address, size_t x, size_t y, size_t z, size_t pitch, size_t height) {
        return address + x + (y + z * height) * pitch;
    };
    wire::GetCopyNode<>::Reply reply;
    reply.from = start(copy.srcDevice, copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcPitch, copy.srcHeight);
    reply.to = start(copy.dstDevice, copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstPitch, copy.dstHeight);
    reply.from_pitch = copy.srcPitch, reply.from_rows = copy.srcHeight;
    reply.to_pitch = copy.dstPitch, reply.to_rows = copy.dstHeight;
    reply.row_bytes = copy.WidthInBytes, reply.rows = copy.Height, reply.slices = copy.Depth;
    call.reply(reply);
    return result;
}

// ---- words ----

static std::vector<CUstreamBatchMemOpParams> operations_of(const wire::BatchWork<Resolved>& work) {
    std::vector<CUstreamBatchMemOpParams> operations;
    for (auto& operation : work.operations) operations.push_back(std::bit_cast<CUstreamBatchMemOpParams>(operation));
    return operations;
}

static CUDA_BATCH_MEM_OP_NODE_PARAMS batch_of(const wire::BatchWork<Resolved>& work,
                                              std::vector<CUstreamBatchMemOpParams>& operations) {
    return {work.context.handle, static_cast<unsigned>(operations.size()), operations.data(), work.flags};
}

static Answer add_batch(WorkerSession&, Call& call, const wire::AddBatchNode<Resolved>& wanted) {
    if (!driver().cuGraphAddBatchMemOpNode) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto room = call.in.room_for<CUgraphNode>(wanted.node); room != CUDA_SUCCESS) return room;
    auto after = handles_of(wanted.spot.dependencies);
    auto operations = operations_of(wanted.work);
    auto batch = batch_of(wanted.work, operations);
    CUgraphNode made = nullptr;
    auto result =
        driver().cuGraphAddBatchMemOpNode(&made, wanted.spot.graph.handle, after.data(), after.size(), &batch);
    if (result != CUDA_SUCCESS) return result;
    return call.in.enter(wanted.node, made) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static Answer set_batch(WorkerSession&, Call&, const wire::SetBatchNode<Resolved>& wanted) {
    if (!driver().cuGraphBatchMemOpNodeSetParams) return CUDA_ERROR_NOT_SUPPORTED;
    auto operations = operations_of(wanted.work);
    auto batch = batch_of(wanted.work, operations);
    return driver().cuGraphBatchMemOpNodeSetParams(wanted.node.handle, &batch);
}

static Answer set_exec_batch(WorkerSession&, Call&, const wire::SetExecBatchNode<Resolved>& wanted) {
    if (!driver().cuGraphExecBatchMemOpNodeSetParams) return CUDA_ERROR_NOT_SUPPORTED;
    auto operations = operations_of(wanted.work);
    auto batch = batch_of(wanted.work, operations);
    return driver().cuGraphExecBatchMemOpNodeSetParams(wanted.exec.handle, wanted.node.handle, &batch);
}

static Answer get_batch(WorkerSession& session, Call& call, const wire::GetBatchNode<Resolved>& wanted) {
    if (!driver().cuGraphBatchMemOpNodeGetParams) return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
    auto result = driver().cuGraphBatchMemOpNodeGetParams(wanted.named.handle, &batch);
    if (result != CUDA_SUCCESS) return result;
    if (batch.count > wire::batch_words_max) return CUDA_ERROR_NOT_SUPPORTED;
    wire::GetBatchNode<>::Reply reply;
    for (auto& [number, context] : session.handles.contexts)
        if (context == batch.ctx) reply.context = number;
    using Operation = decltype(reply.operations)::value_type;
    for (unsigned i = 0; i < batch.count; ++i)
        reply.operations.push_back(std::bit_cast<Operation>(batch.paramArray[i]));
    reply.flags = batch.flags;
    call.reply(reply);
    return result;
}

// ---- graphs ----

static Answer move_child(WorkerSession& session, Call& call, const wire::MoveChildGraph<Resolved>& wanted) {
    if (!driver().cuGraphAddNode_v2) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto room = call.in.room_for<CUgraphNode>(wanted.node); room != CUDA_SUCCESS) return room;
    auto after = handles_of(wanted.spot.dependencies);
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = wanted.work.child.handle;
    params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    CUgraphNode made = nullptr;
    auto result =
        driver().cuGraphAddNode_v2(&made, wanted.spot.graph.handle, after.data(), nullptr, after.size(), &params);
    if (result != CUDA_SUCCESS) return result;
    if (!call.in.enter(wanted.node, made)) return CUDA_ERROR_INVALID_VALUE;
    session.handles.graphs.moved_into(wanted.work.child.number, wanted.node);
    return CUDA_SUCCESS;
}

static Answer set_child(WorkerSession& session, Call&, const wire::SetChildGraph<Resolved>& wanted) {
    if (!driver().cuGraphNodeSetParams) return CUDA_ERROR_NOT_SUPPORTED;
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = wanted.work.child.handle;
    params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
    auto result = driver().cuGraphNodeSetParams(wanted.node.handle, &params);
    if (result == CUDA_SUCCESS) session.handles.graphs.forget_graphs_in(wanted.node.handle);
    return result;
}

// ---- conditions ----

static Answer add_conditional(WorkerSession& session, Call& call, const wire::AddConditionalNode<Resolved>& wanted) {
    if (!driver().cuGraphAddNode_v2) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto room = call.in.room_for<CUgraphNode>(wanted.node); room != CUDA_SUCCESS) return room;
    auto after = handles_of(wanted.spot.dependencies);
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = wanted.work.handle;
    params.conditional.type = static_cast<CUgraphConditionalNodeType>(wanted.work.type);
    params.conditional.size = wanted.work.size;
    params.conditional.ctx = wanted.work.context.handle;
    CUgraphNode made = nullptr;
    auto result =
        driver().cuGraphAddNode_v2(&made, wanted.spot.graph.handle, after.data(), nullptr, after.size(), &params);
    if (result != CUDA_SUCCESS) return result;
    if (!call.in.enter(wanted.node, made)) return CUDA_ERROR_INVALID_VALUE;
    wire::ConditionalReply reply;
    const NamedGraph holder{.graph = wanted.spot.graph.number, .node = wanted.node};
    for (uint32_t i = 0; i < wanted.work.size && i < wire::list_items_max; ++i)
        reply.bodies.push_back(session.handles.graphs.number_of(params.conditional.phGraph_out[i], holder));
    call.reply(reply);
    return result;
}

void add_graph_node_calls(HandlerTable& table) {
    table.add<add_kernel>();
    table.add<set_kernel>();
    table.add<set_exec_kernel>();
    table.add<get_kernel>();
    table.add<add_copy>();
    table.add<set_copy>();
    table.add<set_exec_copy>();
    table.add<get_copy>();
    table.add<add_conditional>();
    table.add<add_batch>();
    table.add<set_batch>();
    table.add<set_exec_batch>();
    table.add<get_batch>();
    table.add<move_child>();
    table.add<set_child>();
}

}  // namespace tnr::worker
