// What a graph's node does: the operations of streams, and what only graphs have. A node's work never changes; giving a
// node other parameters gives it other work, so launches that are under way keep what they began with.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "gpu_server/emulated_gpu/driver/copy.hpp"
#include "gpu_server/emulated_gpu/driver/event.hpp"
#include "gpu_server/emulated_gpu/driver/launch.hpp"

namespace tnr::emulated {

class Graph;
class GraphAllocation;

using Attributes = std::map<int, CUlaunchAttributeValue>;

struct KernelWork {
    KernelLaunch launch;
    bool as_buffer = false;  // the parameters came as one buffer, and are shown so
    Attributes attributes;

    Context& context() const;
    // In the words of cuda.h, with pointers into this.
    void show(CUDA_KERNEL_NODE_PARAMS& out) const;

private:
    mutable std::vector<void*> shown_;
    mutable size_t shown_bytes_ = 0;
};

struct CopyWork {
    Context* context = nullptr;
    CUDA_MEMCPY3D given{};  // as it is shown
    Copy copy;
    Side destination = Side::device, source = Side::device;  // `device`: known to the driver, checked at each launch
};

struct FillWork {
    Context* context = nullptr;
    CUDA_MEMSET_NODE_PARAMS given{};  // as it is shown
    Fill fill;
};

struct HostWork {
    Context* context = nullptr;  // whose fault keeps it from being called; null: of the stream that it is launched in
    HostCall call;
};

struct ChildWork {
    std::shared_ptr<Graph> graph;  // the node's own
    CUgraphChildGraphNodeOwnership ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
};

struct EmptyWork {};

struct WaitWork {
    std::shared_ptr<Event> event;
};

struct RecordWork {
    std::shared_ptr<Event> event;
};

struct ValueWork {
    Context* context = nullptr;
    unsigned flags = 0;
    ValueOperations operations;
};

struct AllocWork {
    std::shared_ptr<GraphAllocation> allocation;
    CUDA_MEM_ALLOC_NODE_PARAMS given{};  // as it is shown, but for the list of rights
    std::vector<CUmemAccessDesc> access;
};

struct FreeWork {
    std::shared_ptr<GraphAllocation> allocation;
};

// What a conditional node looks at and kernels set.
class GraphCondition : public Object {
public:
    static constexpr Kind kind_of = Kind::condition;
    GraphCondition(Context& where, unsigned initial, unsigned with_flags)
        : Object(kind_of), context(where), initial_value(initial), flags(with_flags) {}

    Context& context;
    const unsigned initial_value, flags;
    std::atomic<unsigned> value{0};
    std::weak_ptr<void> node;  // its work: of one node only
};

struct ConditionalWork {
    std::shared_ptr<GraphCondition> condition;
    CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
    std::vector<std::shared_ptr<Graph>> bodies;  // the node's own
    std::vector<CUgraph> shown;                  // their handles
};

using NodeWork = std::variant<EmptyWork, KernelWork, CopyWork, FillWork, HostWork, ChildWork, WaitWork, RecordWork,
                              ValueWork, AllocWork, FreeWork, ConditionalWork>;
using Work = std::shared_ptr<const NodeWork>;

CUgraphNodeType type_of(const NodeWork& work);
// Of the attributes of launches: those that kernel nodes keep.
bool is_node_attribute(int id);
ptx::Dim3 cluster_of(const Attributes& attributes);  // all zero: they say nothing of it

// From the structures of cuda.h, checked. A null context means the current one. What is written back into them (the
// address of an allocation) is what they are not const for.
CUresult make_work(Graph& graph, CUgraphNodeParams& given, Work& work);
// Other parameters of the same type for work that there is; kernels keep their attributes and what changes them.
CUresult changed_work(Graph& graph, const NodeWork& old, CUgraphNodeParams& given, Work& work);
CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS_v3& given, Attributes attributes, Work& work,
                     std::shared_ptr<UpdatableNode> updatable = nullptr);

// For memory that a node of `graph` allocates or frees.
CUresult alloc_work(const Graph& graph, CUDA_MEM_ALLOC_NODE_PARAMS_v2& given, Work& work);
CUresult free_work(const Graph& graph, CUdeviceptr address, Work& work);
// For a node that holds graphs of its own and runs one of them.
CUresult conditional_work(Graph& graph, CUDA_CONDITIONAL_NODE_PARAMS& given, Work& work);
// Sets a condition, as kernels do. Without effect for a handle that is none.
void set_condition(uint64_t handle, uint32_t value);

// From what a stream would have done.
Work captured_work(Stream& stream, const Operation& operation);

}  // namespace tnr::emulated
