// Functions of the client in graphs. Launches reach them any number of times, on threads of the driver. What the graph
// has copied to the host before one, the client must have by the time that it runs it.
#include <algorithm>
#include <map>
#include <memory>

#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/graph_calls.hpp"
#include "gpu_server/worker/graph_order.hpp"
#include "gpu_server/worker/own_stream.hpp"

namespace tnr::worker {

namespace {

struct GraphFunction {
    WorkerSession& session;
    CUcontext context;
    uint64_t ticket;
};

// Sends what is in the mirrors that a function sees.
class SeenSender {
public:
    SeenSender(const GraphFunction& function, CUstream own) : function_(function), own_(own) {}

    CUresult send(const SeenPart& part) {
        auto result = CUDA_SUCCESS;
        for (uint64_t at = 0; at < part.bytes && result == CUDA_SUCCESS; at += wire::piece_bytes_max) {
            const SeenPart piece{part.address + at, std::min<uint64_t>(part.bytes - at, wire::piece_bytes_max),
                                 part.offset + at, nullptr};
            result = piece.bytes > wire::inline_copy_bytes_max ? send_block(piece) : gather(piece);
        }
        return result;
    }
    // What has been gathered.
    CUresult send_rest() {
        auto result = pieces_.empty() ? CUDA_SUCCESS : driver().cuStreamSynchronize(own_);
        const auto* data = block_.get();
        for (auto& piece : pieces_) {
            if (result != CUDA_SUCCESS) break;
            tell(piece, zmq::message_t(data, piece.bytes));
            data += piece.bytes;
        }
        pieces_.clear();
        gathered_ = 0;
        return result;
    }

private:
    CUresult send_block(const SeenPart& piece) {
        // What lies in one place of the program's memory arrives in the graph's order.
        if (auto result = send_rest(); result != CUDA_SUCCESS) return result;
        auto block = function_.session.staging.take_download();
        auto result = driver().cuMemcpyDtoHAsync_v2(block.get(), piece.address, piece.bytes, own_);
        if (result == CUDA_SUCCESS) result = driver().cuStreamSynchronize(own_);
        if (result == CUDA_SUCCESS) tell(piece, as_message(std::move(block), piece.bytes));
        return result;
    }
    // Small ones share a block, which stays here. One each would not come back: it is given back when the client says that
    // it has received the data, which it does not for so little.
    CUresult gather(const SeenPart& piece) {
        auto result = gathered_ + piece.bytes > wire::piece_bytes_max ? send_rest() : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS) return result;
        if (!block_) block_ = function_.session.staging.take_download();
        pieces_.push_back(piece);
        auto* to = block_.get() + std::exchange(gathered_, gathered_ + piece.bytes);
        return driver().cuMemcpyDtoHAsync_v2(to, piece.address, piece.bytes, own_);
    }
    void tell(const SeenPart& piece, zmq::message_t&& data) {
        function_.session.outbox.piece(wire::graph_function_data + function_.ticket, piece.offset, std::move(data));
    }

    const GraphFunction& function_;
    CUstream own_;
    Staging::Block block_{nullptr, {}};
    std::vector<SeenPart> pieces_;  // gathered in the block, one behind the other
    uint64_t gathered_ = 0;         // bytes
};

CUresult send_seen(const GraphFunction& function, const std::vector<SeenPart>& seen) {
    if (seen.empty()) return CUDA_SUCCESS;
    CUstream own = nullptr;
    driver().cuCtxSetCurrent(function.context);
    auto result = make_own_stream(own);
    SeenSender sender(function, own);
    for (auto& part : seen) {
        const bool first = !part.together || part.together->is_first();
        if (result == CUDA_SUCCESS && first) result = sender.send(part);
    }
    if (result == CUDA_SUCCESS) result = sender.send_rest();
    if (own) driver().cuStreamDestroy_v2(own);
    return result;
}

// The function's copy is the thread's: the graph may be gone once the client has been told.
void reach(void* data) {
    auto& reached = *static_cast<GraphFunction*>(data);
    auto& all = reached.session;
    all.host_functions.run_again([&reached, &all](uint64_t run) {
        all.waiting.run(
            [function = reached, run, before = all.downloads.next(), use = all.context_uses.begin(reached.context)] {
                auto& session = function.session;
                session.finish_wait(before);
                auto result = send_seen(function, session.seen_by_functions.of(function.ticket));
                if (result != CUDA_SUCCESS)
                    session.outbox.failed(wire::op_cuGraphLaunch, result, "a copy to the host in a graph");
                session.outbox.tell(wire::RunGraphFunction{function.ticket, run});
            });
    });
}

void let_go(void* data) {
    std::unique_ptr<GraphFunction> function(static_cast<GraphFunction*>(data));
    function->session.seen_by_functions.set(function->ticket, {});
}

uint64_t ticket_of(const CUDA_HOST_NODE_PARAMS& params) {
    return params.fn == reach ? static_cast<GraphFunction*>(params.userData)->ticket : 0;
}

// Makes the graph own the function, which then goes with the last instance. A driver without user objects keeps it for
// as long as the session lasts, and so do instances whose functions are changed.
void give_to_graph(GraphFunction* function, CUgraph graph) {
    auto& table = driver();
    CUuserObject object = nullptr;
    bool can = table.cuUserObjectCreate && table.cuGraphRetainUserObject && table.cuUserObjectRelease && graph;
    if (!can ||
        table.cuUserObjectCreate(&object, function, let_go, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS)
        return;
    (void)table.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
}

using SeenList = wire::List<wire::SeenMemory, wire::seen_memory_max>;

// With what it sees of `seen`, coming after `before`, and the answer that says so.
CUresult make_function(WorkerSession& session, Call& call, uint64_t ticket, const SeenList& seen,
                       const std::vector<CUgraphNode>& before, std::unique_ptr<GraphFunction>& made) {
    session.understudy.stream_will_stand();
    made = std::make_unique<GraphFunction>(GraphFunction{session, session.current(), ticket});
    std::vector<SeenPart> parts;
    Ancestors ancestors;
    if (!seen.empty())
        if (auto result = ancestors.find(before); result != CUDA_SUCCESS) return result;
    wire::SeenReply reply;
    uint64_t offset = 0;
    for (auto& memory : seen) {
        bool sees = std::count(ancestors.written.begin(), ancestors.written.end(), memory.address) != 0;
        if (sees) parts.push_back({memory.address, memory.bytes, offset});
        reply.seen.push_back(sees);
        offset += memory.bytes;
    }
    session.seen_by_functions.set(ticket, std::move(parts));
    call.reply(reply);
    return CUDA_SUCCESS;
}

std::vector<CUgraphNode> frontier_of(CUstream stream) {
    auto status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode* nodes = nullptr;
    size_t count = 0;
    auto& table = driver();
    const CUgraphEdgeData* edges = nullptr;
    auto result = table.cuStreamGetCaptureInfo_v3
                      ? table.cuStreamGetCaptureInfo_v3(stream, &status, nullptr, nullptr, &nodes, &edges, &count)
                      : table.cuStreamGetCaptureInfo_v2(stream, &status, nullptr, nullptr, &nodes, &count);
    if (result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return {};
    return {nodes, nodes + count};
}

}  // namespace

static Answer capture_function(WorkerSession& session, Call& call, const wire::CaptureHostFunction<Resolved>& wanted) {
    std::unique_ptr<GraphFunction> function;
    auto before = wanted.seen.empty() ? std::vector<CUgraphNode>() : frontier_of(wanted.stream.handle);
    auto result = make_function(session, call, wanted.ticket, wanted.seen, before, function);
    if (result == CUDA_SUCCESS) result = driver().cuLaunchHostFunc(wanted.stream.handle, reach, function.get());
    if (result == CUDA_SUCCESS) give_to_graph(function.release(), graph_of_capture(wanted.stream.handle));
    return result;
}

static Answer add_function(WorkerSession& session, Call& call, const wire::AddHostNode<Resolved>& wanted) {
    if (!driver().cuGraphAddHostNode) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto room = call.in.room_for<CUgraphNode>(wanted.node); room != CUDA_SUCCESS) return room;
    std::unique_ptr<GraphFunction> function;
    auto after = handles_of(wanted.spot.dependencies);
    auto result = make_function(session, call, wanted.ticket, wanted.seen, after, function);
    if (result != CUDA_SUCCESS) return result;
    CUDA_HOST_NODE_PARAMS params{reach, function.get()};
    CUgraphNode made = nullptr;
    result = driver().cuGraphAddHostNode(&made, wanted.spot.graph.handle, after.data(), after.size(), &params);
    if (result != CUDA_SUCCESS) return result;
    give_to_graph(function.release(), wanted.spot.graph.handle);
    return call.in.enter(wanted.node, made) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static Answer set_function(WorkerSession& session, Call& call, const wire::SetHostNode<Resolved>& wanted) {
    if (!driver().cuGraphHostNodeSetParams) return CUDA_ERROR_NOT_SUPPORTED;
    std::unique_ptr<GraphFunction> function;
    auto result = make_function(session, call, wanted.ticket, wanted.seen, {wanted.node.handle}, function);
    if (result != CUDA_SUCCESS) return result;
    CUDA_HOST_NODE_PARAMS params{reach, function.get()};
    result = driver().cuGraphHostNodeSetParams(wanted.node.handle, &params);
    if (result == CUDA_SUCCESS)
        give_to_graph(function.release(), session.handles.graphs.find_graph(call.in.named_graph().graph));
    return result;
}

// The function takes the place of the one that the node has, and sees what that saw.
static Answer set_exec_function(WorkerSession& session, Call& call, const wire::SetExecHostNode<Resolved>& wanted) {
    if (!driver().cuGraphExecHostNodeSetParams || !driver().cuGraphHostNodeGetParams) return CUDA_ERROR_NOT_SUPPORTED;
    std::unique_ptr<GraphFunction> function;
    auto result = make_function(session, call, wanted.ticket, wanted.seen, {wanted.node.handle}, function);
    if (result != CUDA_SUCCESS) return result;
    CUDA_HOST_NODE_PARAMS old{};
    if (result = driver().cuGraphHostNodeGetParams(wanted.node.handle, &old); result != CUDA_SUCCESS) return result;
    if (wanted.seen.empty()) session.seen_by_functions.set(wanted.ticket, session.seen_by_functions.of(ticket_of(old)));
    CUDA_HOST_NODE_PARAMS params{reach, function.get()};
    result = driver().cuGraphExecHostNodeSetParams(wanted.exec.handle, wanted.node.handle, &params);
    if (result == CUDA_SUCCESS) (void)function.release();
    return result;
}

// Behind what is there.
static void append(std::vector<SeenPart>& parts, uint64_t address, uint64_t bytes,
                   std::shared_ptr<SeenTogether> together = nullptr) {
    const uint64_t end = parts.empty() ? 0 : parts.back().offset + parts.back().bytes;
    parts.push_back({address, bytes, end, std::move(together)});
}

static Answer set_seen(WorkerSession& session, Call&, const wire::FunctionSees<Resolved>& wanted) {
    std::vector<SeenPart> parts;
    for (auto& memory : wanted.seen) append(parts, memory.address, memory.bytes);
    session.seen_by_functions.set(wanted.ticket, std::move(parts));
    return CUDA_SUCCESS;
}

static Answer get_function(WorkerSession&, Call& call, const wire::GetHostNode<Resolved>& wanted) {
    if (!driver().cuGraphHostNodeGetParams) return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_HOST_NODE_PARAMS params{};
    auto result = driver().cuGraphHostNodeGetParams(wanted.named.handle, &params);
    if (result != CUDA_SUCCESS) return result;
    auto ticket = ticket_of(params);
    if (ticket == 0) return CUDA_ERROR_INVALID_VALUE;
    call.reply(wire::HostWork{ticket});
    return result;
}

static Answer order_graph(WorkerSession& session, Call& call, const wire::OrderGraph<Resolved>& asked) {
    wire::OrderGraph<>::Reply order;
    GraphOrder graph(session.handles.graphs, asked.mirrors, ticket_of);
    if (auto result = graph.find(asked.graph.handle, order); result != CUDA_SUCCESS) return result;
    std::map<std::pair<uint32_t, uint32_t>, std::shared_ptr<SeenTogether>> together;  // by mirror and copy
    auto& copies = graph.copies_seen();
    for (size_t i = 0; i < order.functions.size(); ++i)
        for (size_t at = 0; at < copies[i].size(); ++at) {
            auto& group = together[{order.functions[i].seen[at], copies[i][at]}];
            if (!group) group = std::make_shared<SeenTogether>();
            ++group->functions;
        }
    for (size_t i = 0; i < order.functions.size(); ++i) {
        auto& function = order.functions[i];
        std::vector<SeenPart> parts;
        for (size_t at = 0; at < function.seen.size(); ++at) {
            auto& mirror = asked.mirrors[function.seen[at]];
            append(parts, mirror.device, mirror.bytes, together[{function.seen[at], copies[i][at]}]);
        }
        session.seen_by_functions.set(function.ticket, std::move(parts));
    }
    call.reply(order);
    return CUDA_SUCCESS;
}

void add_graph_function_calls(HandlerTable& table) {
    table.add<capture_function>();
    table.add<add_function>();
    table.add<set_function>();
    table.add<set_exec_function>();
    table.add<set_seen>();
    table.add<get_function>();
    table.add<order_graph>();
}

}  // namespace tnr::worker
