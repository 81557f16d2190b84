#include "gpu_server/emulated_gpu/driver/graph_update.hpp"

#include <unordered_map>

namespace tnr::emulated {
namespace {

constexpr auto fine = CU_GRAPH_EXEC_UPDATE_SUCCESS;
constexpr auto changed_too_much = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;

CUgraphExecUpdateResult when(bool may) {
    return may ? fine : changed_too_much;
}

// Memory of the same kind, device and context.
bool same_home(uint64_t one, uint64_t other) {
    auto first = driver().addresses.find(one), second = driver().addresses.find(other);
    if (!first || !second) return !first && !second;
    return first->is_host() == second->is_host() && first->device == second->device &&
           first->context == second->context;
}

struct Change {
    CUgraphExecUpdateResult operator()(const KernelWork& from, const KernelWork& to) const {
        if (&from.context() != &to.context()) return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
        return from.launch.cooperative == to.launch.cooperative ? fine : CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    }
    CUgraphExecUpdateResult operator()(const CopyWork& from, const CopyWork& to) const {
        return when(from.given.srcMemoryType == to.given.srcMemoryType &&
                    from.given.dstMemoryType == to.given.dstMemoryType && same_home(from.copy.source, to.copy.source) &&
                    same_home(from.copy.destination, to.copy.destination));
    }
    CUgraphExecUpdateResult operator()(const FillWork& from, const FillWork& to) const {
        bool flat = from.fill.height == 1 && to.fill.height == 1;
        bool same_shape = from.fill.height == to.fill.height && from.fill.width == to.fill.width &&
                          from.fill.element == to.fill.element && from.fill.pitch == to.fill.pitch;
        return when((flat || same_shape) && same_home(from.fill.destination, to.fill.destination));
    }
    CUgraphExecUpdateResult operator()(const ValueWork& from, const ValueWork& to) const {
        const auto &old = from.operations.list, &fresh = to.operations.list;
        bool same = from.context == to.context && old.size() == fresh.size();
        for (size_t i = 0; same && i < old.size(); ++i) same = old[i].operation == fresh[i].operation;
        return when(same);
    }
    CUgraphExecUpdateResult operator()(const AllocWork& from, const AllocWork& to) const {
        return when(from.allocation == to.allocation);
    }
    CUgraphExecUpdateResult operator()(const FreeWork& from, const FreeWork& to) const {
        return when(from.allocation == to.allocation);
    }
    CUgraphExecUpdateResult operator()(const ConditionalWork& from, const ConditionalWork& to) const {
        return when(from.type == to.type && from.bodies.size() == to.bodies.size() &&
                    &from.condition->context == &to.condition->context);
    }
    // Host functions and events: whatever they are. Children are compared node by node.
    template <class Same>
    CUgraphExecUpdateResult operator()(const Same&, const Same&) const {
        return fine;
    }
    template <class From, class To>
    CUgraphExecUpdateResult operator()(const From&, const To&) const {
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    }
};

// Which node is whose counterpart. Nodes that nothing depends on are paired by their order, all others by the order of
// edges, as cuda.h describes it.
class Pairing {
public:
    explicit Pairing(CUgraphExecUpdateResultInfo& report) : report_(report) {}

    bool pair(Graph& mine, const Graph& theirs) {
        if (mine.nodes.size() != theirs.nodes.size()) return topology(nullptr, nullptr);
        graphs_.emplace_back(&mine, &theirs);
        auto my_exits = exits_of(mine), their_exits = exits_of(theirs);
        if (my_exits.size() != their_exits.size())
            return topology(their_exits.size() > my_exits.size() ? their_exits.back() : nullptr, nullptr);
        for (size_t i = 0; i < my_exits.size(); ++i) add(*my_exits[i], *their_exits[i]);
        while (!to_visit_.empty()) {
            auto [my_node, their_node] = to_visit_.back();
            to_visit_.pop_back();
            if (!pair_dependencies(*my_node, *their_node)) return false;
        }
        return true;
    }

    bool check_and_pair_inner() {
        for (size_t i = 0; i < pairs_.size(); ++i) {  // grows while we look
            auto [mine, theirs] = pairs_[i];
            auto result = check_change(*mine->work, *theirs->work);
            if (result != fine) return fail(result, theirs, nullptr);
            if (auto* child = mine->work_as<ChildWork>())
                if (!pair(*child->graph, *theirs->work_as<ChildWork>()->graph)) return false;
            if (auto* conditional = mine->work_as<ConditionalWork>())
                for (size_t body = 0; body < conditional->bodies.size(); ++body)
                    if (!pair(*conditional->bodies[body], *theirs->work_as<ConditionalWork>()->bodies[body]))
                        return false;
        }
        return true;
    }

    void apply() {
        for (auto [mine, theirs] : pairs_) {
            if (mine->work_as<ChildWork>()) continue;
            if (auto* conditional = mine->work_as<ConditionalWork>()) {
                ConditionalWork fresh = *conditional;
                fresh.condition = theirs->work_as<ConditionalWork>()->condition;
                mine->work = std::make_shared<NodeWork>(std::move(fresh));
                continue;
            }
            mine->work = theirs->work;
        }
        for (auto [mine, theirs] : graphs_) mine->take_references_of(*theirs);
    }

private:
    static std::vector<GraphNode*> exits_of(const Graph& graph) {
        std::vector<GraphNode*> exits;
        for (const auto& node : graph.nodes)
            if (node->dependents.empty()) exits.push_back(node.get());
        return exits;
    }

    void add(GraphNode& mine, GraphNode& theirs) {
        mine_[&theirs] = &mine;
        theirs_[&mine] = &theirs;
        pairs_.emplace_back(&mine, &theirs);
        to_visit_.emplace_back(&mine, &theirs);
    }

    bool pair_dependencies(GraphNode& mine, GraphNode& theirs) {
        const Edges &my_edges = mine.dependencies, &their_edges = theirs.dependencies;
        if (my_edges.size() != their_edges.size()) return topology(&theirs, nullptr);
        for (size_t i = 0; i < my_edges.size(); ++i) {
            GraphNode &my_node = *my_edges[i].node, &their_node = *their_edges[i].node;
            auto paired_mine = theirs_.find(&my_node);
            auto paired_theirs = mine_.find(&their_node);
            bool both_new = paired_mine == theirs_.end() && paired_theirs == mine_.end();
            bool paired = paired_mine != theirs_.end() && paired_mine->second == &their_node;
            bool same_data = Edge{&my_node, my_edges[i].data} == Edge{&my_node, their_edges[i].data};
            if (!same_data || (!both_new && !paired)) return topology(&theirs, &their_node);
            if (both_new) add(my_node, their_node);
        }
        return true;
    }

    bool topology(const GraphNode* node, const GraphNode* from) {
        return fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node, from);
    }
    bool fail(CUgraphExecUpdateResult why, const GraphNode* node, const GraphNode* from) {
        report_ = {why, node ? node->as<CUgraphNode>() : nullptr, from ? from->as<CUgraphNode>() : nullptr};
        return false;
    }

    CUgraphExecUpdateResultInfo& report_;
    std::vector<std::pair<Graph*, const Graph*>> graphs_;
    std::vector<std::pair<GraphNode*, GraphNode*>> pairs_, to_visit_;
    std::unordered_map<const GraphNode*, GraphNode*> mine_, theirs_;
};

}  // namespace

CUgraphExecUpdateResult check_change(const NodeWork& from, const NodeWork& to) {
    return std::visit(Change{}, from, to);
}

CUresult update_graph(Graph& mine, const Graph& theirs, CUgraphExecUpdateResultInfo& report) {
    report = {fine, nullptr, nullptr};
    Pairing pairing(report);
    if (!pairing.pair(mine, theirs) || !pairing.check_and_pair_inner()) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    pairing.apply();
    return CUDA_SUCCESS;
}

}  // namespace tnr::emulated
