// The records of captures and graphs that the table cannot express. record.hpp explains `Side`.
#pragma once

#include "gpu_client/protocol/call_records.hpp"
#include "gpu_client/protocol/ops.hpp"

namespace tnr::wire {

using EdgeData = std::array<std::byte, 8>;  // CUgraphEdgeData
template <class Node>
using NodeList = List<Node, list_items_max>;
using EdgeList = List<EdgeData, list_items_max>;

// In relaxed mode, always: what the program's mode forbids, the client refuses.
template <class Side = Numbers>
using BeginCapture = Names<op_cuStreamBeginCapture_v2, CallWay::async_, typename Side::Stream>;

template <class Side = Numbers>
struct BeginCaptureToGraph {
    static constexpr uint16_t op = op_cuStreamBeginCaptureToGraph;
    static constexpr auto way = CallWay::sync;
    typename Side::Stream stream{};
    typename Side::Graph graph{};
    NodeList<typename Side::GraphNode> dependencies;
    EdgeList data;  // of each, or nothing
    auto fields() { return std::tie(stream, graph, dependencies, data); }
};

// Answered with the graph's number: `graph`, unless it has one already.
template <class Side = Numbers>
struct EndCapture {
    static constexpr uint16_t op = op_cuStreamEndCapture;
    static constexpr auto way = CallWay::sync;
    typename Side::Stream stream{};
    NewNumber graph = 0;
    // Nobody is to have a graph that it has made: the capture is spoilt, or the program takes none.
    uint8_t discard = 0;
    auto fields() { return std::tie(stream, graph, discard); }
    struct Reply {
        uint64_t graph = 0;
        auto fields() { return std::tie(graph); }
    };
};

// Of a stream that is being captured.
template <class Side = Numbers>
struct GetCaptureInfo {
    static constexpr uint16_t op = op_cuStreamGetCaptureInfo_v3;
    static constexpr auto way = CallWay::sync;
    typename Side::Stream stream{};
    uint8_t with_data = 0;
    auto fields() { return std::tie(stream, with_data); }
    struct Reply {
        uint64_t graph = 0;
        NodeList<uint64_t> dependencies;
        EdgeList data;  // of each, if it was asked for
        auto fields() { return std::tie(graph, dependencies, data); }
    };
};

// What graphs have taken of a device's grant since the client heard of it last (less than nothing: given back), and how
// much more the worker has been granted for them.
struct GraphMemoryChange {
    uint32_t device = 0;
    int64_t taken = 0;
    uint64_t granted = 0;
    auto fields() { return std::tie(device, taken, granted); }
};
using GraphMemoryChanges = List<GraphMemoryChange, 64>;  // GPUs of a session

template <class Side = Numbers>
struct LaunchGraph {
    static constexpr uint16_t op = op_cuGraphLaunch;
    static constexpr auto way = CallWay::async_;
    typename Side::GraphExec exec{};
    typename Side::Stream stream{};
    auto fields() { return std::tie(exec, stream); }
    // Of a launch that allocates and is waited for, whether it has failed or not.
    struct Reply {
        GraphMemoryChanges changes;
        auto fields() { return std::tie(changes); }
    };
};
template <class Side = Numbers>
struct UploadGraph {
    static constexpr uint16_t op = op_cuGraphUpload;
    static constexpr auto way = CallWay::async_;
    typename Side::GraphExec exec{};
    typename Side::Stream stream{};
    auto fields() { return std::tie(exec, stream); }
};

// Memory of the GPU that a function in a graph sees a copy of on the client's side.
struct SeenMemory {
    uint64_t address = 0, bytes = 0;
    auto fields() { return std::tie(address, bytes); }
};
inline constexpr uint32_t seen_memory_max = 1024;  // copies to the host before one function of a graph

// Of each copy to the host: does the function come after it? Only then is it sent. (For clients that do not ask for the
// order of a graph.)
struct SeenReply {
    List<uint8_t, seen_memory_max> seen;
    auto fields() { return std::tie(seen); }
};

// Each time that a launch of the graph reaches the function, the worker sends what is in the mirrors that it sees
// (OrderGraph; BulkDown, as parts of one copy of all, with the call number graph_function_data + ticket), and then
// RunGraphFunction. `seen` is empty, except from clients that do not ask for the order: they name the mirrors of all copies
// to the host that the graph has by then.
template <class Side = Numbers>
struct CaptureHostFunction {
    static constexpr uint16_t op = op_capture_host_function;
    static constexpr auto way = CallWay::async_;
    typename Side::Stream stream{};
    uint64_t ticket = 0;
    List<SeenMemory, seen_memory_max> seen;
    auto fields() { return std::tie(stream, ticket, seen); }
    using Reply = SeenReply;  // if it is asked for
};
inline constexpr uint64_t graph_function_data = uint64_t{1} << 63;

// Device memory that stands for memory of the program in a graph, and that memory.
struct GraphMirror {
    uint64_t device = 0, bytes = 0;
    uint64_t host = 0, host_bytes = 0;
    auto fields() { return std::tie(device, bytes, host, host_bytes); }
};
// Of one graph. A program that captures a training step copies some thousands of times at most.
inline constexpr uint32_t graph_mirrors_max = 16'384;
// Indices of mirrors.
using MirrorList = List<uint32_t, graph_mirrors_max>;
struct FunctionOrder {
    uint64_t ticket = 0;
    // It comes after copies into these, and no function before it has seen them: it gets their content, one behind the other.
    MirrorList seen;
    MirrorList brings;  // copies out of these come after it: the client fills them again when it has run
    auto fields() { return std::tie(ticket, seen, brings); }
};
inline constexpr uint32_t ordered_functions_max = 1024;  // functions of a graph with copies from or to the host

// In which order a graph reaches functions and copies of the client, those of graphs inside it, too. Asked before it is
// instantiated: from then on its functions get what they see.
template <class Side = Numbers>
struct OrderGraph {
    // What `tangled` is when all of it is that events are recorded after copies to the host, in a graph that has no
    // functions and neither waits for words nor writes any.
    static constexpr uint8_t events_too_early = 2;
    static constexpr uint16_t op = op_order_graph;
    static constexpr auto way = CallWay::sync;
    typename Side::Graph graph{};
    List<GraphMirror, graph_mirrors_max> mirrors;
    auto fields() { return std::tie(graph, mirrors); }
    struct Reply {
        List<FunctionOrder, ordered_functions_max> functions;
        // Of each mirror: the place among the graph's steps, from 1, of the last copy into it that no function has seen;
        // 0: none. That is the order in which the client fetches them when the graph is done.
        List<uint32_t, graph_mirrors_max> unseen;
        // A copy from the host comes after one to overlapping memory there, with nobody between them that could carry the
        // one mirror's content to the other; or after one and a function beside that, which would undo it. Or a copy from
        // the host comes after a wait for others (an event, a word), or others are told after a copy to the host, with no
        // function between the two.
        uint8_t tangled = 0;  // 0: none of it
        auto fields() { return std::tie(functions, unseen, tangled); }
    };
};

// From now on a function of an instance sees these mirrors, one behind the other, and not those that its graph's function
// does: a copy of the instance has another.
template <class Side = Numbers>
struct FunctionSees {
    static constexpr uint16_t op = op_function_sees;
    static constexpr auto way = CallWay::async_;
    typename Side::GraphExec exec{};
    uint64_t ticket = 0;
    List<SeenMemory, graph_mirrors_max> seen;
    auto fields() { return std::tie(exec, ticket, seen); }
};

// ---- nodes. Adding one, changing one and changing one in an instance travel with the same description.

template <class Side>
struct NodeSpot {
    typename Side::Graph graph{};
    NodeList<typename Side::GraphNode> dependencies;
    auto fields() { return std::tie(graph, dependencies); }
};

template <uint16_t Op, class Side, class Work>
struct AddNode {
    static constexpr uint16_t op = Op;
    static constexpr auto way = CallWay::sync;
    NewNumber node = 0;
    NodeSpot<Side> spot;
    Work work;
    auto fields() { return std::tie(node, spot, work); }
};
template <uint16_t Op, class Side, class Work>
struct SetNode {
    static constexpr uint16_t op = Op;
    static constexpr auto way = CallWay::sync;
    typename Side::GraphNode node{};
    Work work;
    auto fields() { return std::tie(node, work); }
};
template <uint16_t Op, class Side, class Work>
struct SetExecNode {
    static constexpr uint16_t op = Op;
    static constexpr auto way = CallWay::sync;
    typename Side::GraphExec exec{};
    typename Side::GraphNode node{};
    Work work;
    auto fields() { return std::tie(exec, node, work); }
};
template <uint16_t Op, class Side, class Work>
struct GetNode {
    static constexpr uint16_t op = Op;
    static constexpr auto way = CallWay::sync;
    typename Side::GraphNode named{};
    auto fields() { return std::tie(named); }
    using Reply = Work;
};

template <class Side = Numbers>
struct KernelWork {
    typename Side::Kernel kernel{};
    std::array<uint32_t, 3> grid{}, block{};
    uint32_t shared_bytes = 0;
    Data parameters;        // at most parameter_bytes_max
    uint8_t as_buffer = 0;  // given as CU_LAUNCH_PARAM_BUFFER_POINTER, and so shown
    auto fields() { return std::tie(kernel, grid, block, shared_bytes, parameters, as_buffer); }
};
template <class Side = Numbers>
using AddKernelNode = AddNode<op_cuGraphAddKernelNode_v2, Side, KernelWork<Side>>;
template <class Side = Numbers>
using SetKernelNode = SetNode<op_cuGraphKernelNodeSetParams_v2, Side, KernelWork<Side>>;
template <class Side = Numbers>
using SetExecKernelNode = SetExecNode<op_cuGraphExecKernelNodeSetParams_v2, Side, KernelWork<Side>>;
template <class Side = Numbers>
using GetKernelNode = GetNode<op_cuGraphKernelNodeGetParams_v2, Side, KernelWork<Numbers>>;

// In device memory on both sides; what is the host's has a mirror there.
template <class Side = Numbers>
struct CopyWork {
    uint64_t to = 0, to_pitch = 0, to_rows = 0;  // the last: from one slice to the next
    uint64_t from = 0, from_pitch = 0, from_rows = 0;
    uint64_t row_bytes = 0, rows = 0, slices = 0;
    typename Side::Context context{};
    // `from` is such a mirror, and the client fills it before launches only: so the copy cannot come after a function of the
    // program, which may change what it mirrors.
    uint8_t from_host = 0;
    auto fields() {
        return std::tie(to, to_pitch, to_rows, from, from_pitch, from_rows, row_bytes, rows, slices, context,
                        from_host);
    }
};
// Follows such a record where a side is an array: where in it the box begins. The side's address is 0 then.
template <class Side = Numbers>
struct CopyArrays {
    typename Side::Array to{}, from{};                 // 0: memory
    std::array<uint64_t, 3> to_place{}, from_place{};  // x in bytes, y, z
    auto fields() { return std::tie(to, from, to_place, from_place); }
};
template <class Side = Numbers>
struct AddCopyNode : AddNode<op_cuGraphAddMemcpyNode, Side, CopyWork<Side>> {
    static constexpr bool open_end = true;
};
template <class Side = Numbers>
struct SetCopyNode : SetNode<op_cuGraphMemcpyNodeSetParams, Side, CopyWork<Side>> {
    static constexpr bool open_end = true;
};
template <class Side = Numbers>
struct SetExecCopyNode : SetExecNode<op_cuGraphExecMemcpyNodeSetParams, Side, CopyWork<Side>> {
    static constexpr bool open_end = true;
};
// A context's number is not asked for.
template <class Side = Numbers>
using GetCopyNode = GetNode<op_cuGraphMemcpyNodeGetParams, Side, CopyWork<Numbers>>;

template <class Side = Numbers>
struct ConditionalWork {
    uint64_t handle = 0;  // CUgraphConditionalHandle: kernels know it
    uint32_t type = 0;
    uint32_t size = 0;
    typename Side::Context context{};
    auto fields() { return std::tie(handle, type, size, context); }
};
struct ConditionalReply {
    NodeList<uint64_t> bodies;
    auto fields() { return std::tie(bodies); }
};
template <class Side = Numbers>
struct AddConditionalNode : AddNode<op_cuGraphAddNode_v2, Side, ConditionalWork<Side>> {
    using Reply = ConditionalReply;
};

// A graph becomes part of another one, with all that it is.
template <class Side>
struct ChildWork {
    typename Side::Graph child{};
    auto fields() { return std::tie(child); }
};
template <class Side = Numbers>
using MoveChildGraph = AddNode<op_cuGraphAddNode, Side, ChildWork<Side>>;
// The node gets a copy of the graph, and the one that it has goes.
template <class Side = Numbers>
using SetChildGraph = SetNode<op_cuGraphNodeSetParams, Side, ChildWork<Side>>;

inline constexpr uint32_t batch_words_max = 1024;  // CUDA allows 256
template <class Side = Numbers>
struct BatchWork {
    typename Side::Context context{};
    List<std::array<std::byte, 48>, batch_words_max> operations;  // CUstreamBatchMemOpParams
    uint32_t flags = 0;
    auto fields() { return std::tie(context, operations, flags); }
};
template <class Side = Numbers>
using AddBatchNode = AddNode<op_cuGraphAddBatchMemOpNode, Side, BatchWork<Side>>;
template <class Side = Numbers>
using SetBatchNode = SetNode<op_cuGraphBatchMemOpNodeSetParams, Side, BatchWork<Side>>;
template <class Side = Numbers>
using SetExecBatchNode = SetExecNode<op_cuGraphExecBatchMemOpNodeSetParams, Side, BatchWork<Side>>;
template <class Side = Numbers>
using GetBatchNode = GetNode<op_cuGraphBatchMemOpNodeGetParams, Side, BatchWork<Numbers>>;

// What became of it is answered although the call fails.
template <class Side = Numbers>
struct InstantiateGraph {
    static constexpr uint16_t op = op_cuGraphInstantiateWithParams;
    static constexpr auto way = CallWay::sync;
    NewNumber exec = 0;
    typename Side::Graph graph{};
    uint64_t flags = 0;
    typename Side::Stream upload{};
    auto fields() { return std::tie(exec, graph, flags, upload); }
    struct Reply {
        int32_t result = 0;  // CUgraphInstantiateResult
        uint64_t blamed = 0;
        auto fields() { return std::tie(result, blamed); }
    };
};

// What kernels call an instance that they may launch.
template <class Side = Numbers>
struct GraphForKernels {
    static constexpr uint16_t op = op_graph_for_kernels;
    static constexpr auto way = CallWay::sync;
    typename Side::GraphExec exec{};
    auto fields() { return std::tie(exec); }
    struct Reply {
        uint64_t name = 0;  // the driver's handle
        auto fields() { return std::tie(name); }
    };
};

// As CaptureHostFunction.
template <class Side = Numbers>
struct AddHostNode {
    static constexpr uint16_t op = op_cuGraphAddHostNode;
    static constexpr auto way = CallWay::sync;
    NewNumber node = 0;
    NodeSpot<Side> spot;
    uint64_t ticket = 0;
    List<SeenMemory, seen_memory_max> seen;
    auto fields() { return std::tie(node, spot, ticket, seen); }
    using Reply = SeenReply;
};
template <class Side = Numbers>
struct SetHostNode {
    static constexpr uint16_t op = op_cuGraphHostNodeSetParams;
    static constexpr auto way = CallWay::sync;
    typename Side::GraphNode node{};
    uint64_t ticket = 0;
    List<SeenMemory, seen_memory_max> seen;
    auto fields() { return std::tie(node, ticket, seen); }
    using Reply = SeenReply;
};
template <class Side = Numbers>
struct SetExecHostNode {
    static constexpr uint16_t op = op_cuGraphExecHostNodeSetParams;
    static constexpr auto way = CallWay::sync;
    typename Side::GraphExec exec{};
    typename Side::GraphNode node{};
    uint64_t ticket = 0;
    List<SeenMemory, seen_memory_max> seen;
    auto fields() { return std::tie(exec, node, ticket, seen); }
    using Reply = SeenReply;
};
struct HostWork {
    uint64_t ticket = 0;
    auto fields() { return std::tie(ticket); }
};
template <class Side = Numbers>
using GetHostNode = GetNode<op_cuGraphHostNodeGetParams, Side, HostWork>;

struct CreateUserObject {
    static constexpr uint16_t op = op_cuUserObjectCreate;
    static constexpr auto way = CallWay::sync;
    NewNumber object = 0;
    uint32_t references = 0;
    auto fields() { return std::tie(object, references); }
};

struct ReleaseUserObject {
    static constexpr uint16_t op = op_cuUserObjectRelease;
    static constexpr auto way = CallWay::sync;
    uint64_t object = 0;
    uint32_t references = 0;
    auto fields() { return std::tie(object, references); }
};

// As the driver would write it into a file.
template <class Side = Numbers>
struct PrintGraph {
    static constexpr uint16_t op = op_cuGraphDebugDotPrint;
    static constexpr auto way = CallWay::sync;
    typename Side::Graph graph{};
    uint32_t flags = 0;
    auto fields() { return std::tie(graph, flags); }
    struct Reply {
        Data text;
        auto fields() { return std::tie(text); }
    };
};

// ---- worker → client ----

// The last reference is gone: the client destroys what the object stands for.
struct UserObjectGone {
    static constexpr uint16_t op = op_user_object_gone;
    uint64_t object = 0;
    auto fields() { return std::tie(object); }
};

// A launch of a graph has reached the function with this ticket. `run` is the HostFunctionDone's ticket: a function may
// be reached by two instances at once.
struct RunGraphFunction {
    static constexpr uint16_t op = op_run_graph_function;
    uint64_t ticket = 0, run = 0;
    auto fields() { return std::tie(ticket, run); }
};

}  // namespace tnr::wire
