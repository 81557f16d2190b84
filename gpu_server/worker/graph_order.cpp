// See graph_order.hpp.
#include "gpu_server/worker/graph_order.hpp"

#include <algorithm>
#include <unordered_map>

#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

// These bound what the dispatcher does for one record. PyTorch's largest captures have some 10,000 nodes.
static constexpr size_t steps_max = size_t{1} << 18;
static constexpr size_t set_words_max = size_t{8} << 20;
static constexpr size_t listed_max = size_t{1} << 20;  // in the answer, by all functions together

static bool has_bit(const StepSet& set, int bit) {
    return bit >= 0 && (set[static_cast<size_t>(bit) / 64] >> (bit % 64) & 1) != 0;
}
static void set_bit(StepSet& set, int bit) {
    if (bit >= 0) set[static_cast<size_t>(bit) / 64] |= uint64_t{1} << (bit % 64);
}

// ---- the graph's steps ----

static CUresult read_nodes(CUgraph graph, std::vector<CUgraphNode>& nodes) {
    size_t count = 0;
    auto result = driver().cuGraphGetNodes(graph, nullptr, &count);
    if (result != CUDA_SUCCESS || count == 0) return result;
    if (count > steps_max) return CUDA_ERROR_NOT_SUPPORTED;
    nodes.resize(count);
    return driver().cuGraphGetNodes(graph, nodes.data(), &count);
}

// With their data, which nobody needs: a driver refuses to leave it out.
static CUresult read_dependencies(CUgraphNode node, std::vector<CUgraphNode>& before) {
    auto& table = driver();
    std::vector<CUgraphEdgeData> data;
    auto ask = [&](CUgraphNode* nodes, size_t* count) {
        return table.cuGraphNodeGetDependencies_v2
                   ? table.cuGraphNodeGetDependencies_v2(node, nodes, nodes ? data.data() : nullptr, count)
                   : table.cuGraphNodeGetDependencies(node, nodes, count);
    };
    size_t count = 0;
    if (auto result = ask(nullptr, &count); result != CUDA_SUCCESS || count == 0) return result;
    before.resize(count);
    data.resize(count);
    return ask(before.data(), &count);
}

// A graph's nodes, and how many others of it each still waits for.
struct GraphOrder::Nodes {
    std::vector<CUgraphNode> all;
    std::unordered_map<CUgraphNode, std::vector<CUgraphNode>> before, after;
    std::unordered_map<CUgraphNode, size_t> waits_for;
    std::vector<CUgraphNode> ready;

    CUresult read(CUgraph graph) {
        auto result = read_nodes(graph, all);
        for (size_t i = 0; i < all.size() && result == CUDA_SUCCESS; ++i) {
            auto& those = before[all[i]];
            result = read_dependencies(all[i], those);
            for (auto one : those) after[one].push_back(all[i]);
            waits_for[all[i]] = those.size();
            if (those.empty()) ready.push_back(all[i]);
        }
        return result;
    }
    void passed(CUgraphNode node) {
        for (auto next : after[node])
            if (--waits_for[next] == 0) ready.push_back(next);
    }
};

// `entry`: the step of the node that it is inside of; -1: none.
CUresult GraphOrder::add_graph(CUgraph graph, int entry) {
    Nodes nodes;
    if (auto result = nodes.read(graph); result != CUDA_SUCCESS) return result;
    std::unordered_map<CUgraphNode, uint32_t> ends;
    while (!nodes.ready.empty()) {
        auto node = nodes.ready.back();
        nodes.ready.pop_back();
        std::vector<uint32_t> before;
        for (auto one : nodes.before[node]) before.push_back(ends[one]);
        if (before.empty() && entry >= 0) before.push_back(static_cast<uint32_t>(entry));
        if (auto result = add_node(node, before, ends[node]); result != CUDA_SUCCESS) return result;
        nodes.passed(node);
    }
    return CUDA_SUCCESS;
}

CUresult GraphOrder::add_node(CUgraphNode node, const std::vector<uint32_t>& before, uint32_t& end) {
    auto type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (auto result = driver().cuGraphNodeGetType(node, &type); result != CUDA_SUCCESS) return result;
    auto first = static_cast<uint32_t>(steps_.size());
    if (first >= steps_max) return CUDA_ERROR_NOT_SUPPORTED;
    end = first;
    steps_.push_back({.before = before});
    auto inside = book_.graphs_in(node);
    CUgraph child = nullptr;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && driver().cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
        inside = {child};
    if (inside.empty()) return describe(node, type, steps_[first]);
    for (auto graph : inside)
        if (auto result = add_graph(graph, static_cast<int>(first)); result != CUDA_SUCCESS) return result;
    Step last;
    end = static_cast<uint32_t>(steps_.size());
    for (auto step = first; step < end; ++step) last.before.push_back(step);
    steps_.push_back(std::move(last));
    return CUDA_SUCCESS;
}

CUresult GraphOrder::describe(CUgraphNode node, CUgraphNodeType type, Step& step) {
    if (type == CU_GRAPH_NODE_TYPE_HOST) {
        CUDA_HOST_NODE_PARAMS params{};
        auto result = driver().cuGraphHostNodeGetParams(node, &params);
        if (result == CUDA_SUCCESS) step.ticket = ticket_of_(params);
        return result;
    }
    step.has_words = type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    step.waits = step.has_words || type == CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    step.tells = step.has_words || type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    if (type != CU_GRAPH_NODE_TYPE_MEMCPY) return CUDA_SUCCESS;
    CUDA_MEMCPY3D copy{};
    auto result = driver().cuGraphMemcpyNodeGetParams(node, &copy);
    if (result != CUDA_SUCCESS) return result;
    auto span = [&](size_t pitch, size_t height) {
        return ((copy.Depth - 1) * height + copy.Height - 1) * pitch + copy.WidthInBytes;
    };
    if (copy.srcMemoryType != CU_MEMORYTYPE_ARRAY)
        step.reads = mirror_at(copy.srcDevice, span(copy.srcPitch, copy.srcHeight));
    if (copy.dstMemoryType != CU_MEMORYTYPE_ARRAY)
        step.writes = mirror_at(copy.dstDevice, span(copy.dstPitch, copy.dstHeight));
    return CUDA_SUCCESS;
}

// Parts of one may begin at one place, and then differ in size.
int GraphOrder::mirror_at(uint64_t address, uint64_t bytes) const {
    auto known = mirrors_at_.find(address);
    if (known == mirrors_at_.end()) return -1;
    auto& there = known->second;
    auto found = std::find_if(there.begin(), there.end(),
                              [&](int mirror) { return mirrors_[static_cast<size_t>(mirror)].bytes == bytes; });
    return found != there.end() ? *found : there.front();
}

// ---- what comes before each ----

void GraphOrder::count_bits() {
    int bits = 0;
    for (uint32_t i = 0; i < steps_.size(); ++i) {
        if (steps_[i].ticket != 0) steps_[i].function_bit = bits++, functions_.push_back(i);
        if (steps_[i].writes >= 0) steps_[i].write_bit = bits++, writers_.push_back(i);
        if (steps_[i].waits) steps_[i].wait_bit = bits++, waits_.push_back(i);
    }
    const auto words = (static_cast<size_t>(bits) + 63) / 64;
    if (words * steps_.size() <= set_words_max) sets_.assign(steps_.size(), StepSet(words));
}

void GraphOrder::find_sets() {
    for (size_t i = 0; i < steps_.size(); ++i)
        for (auto step : steps_[i].before) {
            auto& known = sets_[step];
            for (size_t word = 0; word < known.size(); ++word) sets_[i][word] |= known[word];
            set_bit(sets_[i], steps_[step].function_bit);
            set_bit(sets_[i], steps_[step].write_bit);
            set_bit(sets_[i], steps_[step].wait_bit);
        }
}

bool GraphOrder::overlap(int one, int other) const {
    auto &a = mirrors_[static_cast<size_t>(one)], &b = mirrors_[static_cast<size_t>(other)];
    return a.host < b.host + b.host_bytes && b.host < a.host + a.host_bytes;
}

// Whether what a copy writes into the one a copy reads from the other: they may be parts of one.
bool GraphOrder::hands_on(int from, int to) const {
    auto &a = mirrors_[static_cast<size_t>(from)], &b = mirrors_[static_cast<size_t>(to)];
    return a.device < b.device + b.bytes && b.device < a.device + a.bytes;
}

// Whether what a copy from the host reads may lack what a copy before it has put there. A function fills the mirror again
// with what it has seen; one that runs beside the copy has not, and fills the mirror all the same.
bool GraphOrder::tangled(uint32_t reader) const {
    auto& known = sets_[reader];
    const int mirror = steps_[reader].reads;
    return std::any_of(writers_.begin(), writers_.end(), [&](uint32_t writer) {
        auto& write = steps_[writer];
        if (!has_bit(known, write.write_bit) || !overlap(write.writes, mirror)) return false;
        const bool by_itself = hands_on(write.writes, mirror);
        bool handed_on = by_itself;
        for (auto function : functions_) {
            auto bit = steps_[function].function_bit;
            if (!has_bit(known, bit)) continue;
            bool saw = has_bit(sets_[function], write.write_bit), earlier = has_bit(sets_[writer], bit);
            if (by_itself && !saw && !earlier) return true;
            handed_on |= saw;
        }
        return !handed_on;
    });
}

// A function between the two steps, which has them exchange mirrors and the program's memory.
bool GraphOrder::is_heard(uint32_t step, int bit) const {
    return std::any_of(functions_.begin(), functions_.end(), [&](uint32_t function) {
        return has_bit(sets_[step], steps_[function].function_bit) && has_bit(sets_[function], bit);
    });
}

// Mirrors are filled before a launch and fetched after it. Would this one have to be filled when others have done something?
bool GraphOrder::reads_too_early(uint32_t step) const {
    return steps_[step].reads >= 0 && std::any_of(waits_.begin(), waits_.end(), [&](uint32_t wait) {
               const int bit = steps_[wait].wait_bit;
               return has_bit(sets_[step], bit) && !is_heard(step, bit);
           });
}

// Would one have to be fetched before others are told?
bool GraphOrder::tells_too_early(uint32_t step) const {
    return steps_[step].tells && std::any_of(writers_.begin(), writers_.end(), [&](uint32_t writer) {
               const int bit = steps_[writer].write_bit;
               return has_bit(sets_[step], bit) && !is_heard(step, bit);
           });
}

uint8_t GraphOrder::find_tangles() const {
    constexpr uint8_t tangled_up = 1;
    bool told_early = false, may_be_told = functions_.empty();
    for (uint32_t i = 0; i < steps_.size(); ++i) {
        if ((steps_[i].reads >= 0 && tangled(i)) || reads_too_early(i)) return tangled_up;
        told_early |= tells_too_early(i);
        may_be_told &= !steps_[i].has_words;
    }
    if (!told_early) return 0;
    return may_be_told ? wire::OrderGraph<>::events_too_early : tangled_up;
}

// ---- the answer ----

// Mirrors, each once, and the last step that was given for each.
class MirrorSet {
public:
    MirrorSet(wire::MirrorList& list, size_t mirrors) : list_(list), places_(mirrors) {}
    void add(int mirror, uint32_t step) {
        auto& place = places_[static_cast<size_t>(mirror)];
        if (place == 0) {
            list_.push_back(static_cast<uint32_t>(mirror));
            last_.push_back(step);
            place = last_.size();
        }
        last_[place - 1] = step;
    }
    std::vector<uint32_t> take_last() { return std::move(last_); }

private:
    wire::MirrorList& list_;
    std::vector<size_t> places_;  // in the list, from 1; 0: not there
    std::vector<uint32_t> last_;
};

// What functions before this one have seen: the program's memory has it by then, and they may have changed it there.
StepSet GraphOrder::heard_before(uint32_t function) const {
    StepSet heard(sets_[function].size());
    auto last = std::lower_bound(functions_.begin(), functions_.end(), function);
    while (last != functions_.begin()) {
        auto before = *--last;
        auto bit = steps_[before].function_bit;
        if (!has_bit(sets_[function], bit) || has_bit(heard, bit)) continue;  // what is known of one, it has heard
        for (size_t word = 0; word < heard.size(); ++word) heard[word] |= sets_[before][word];
    }
    return heard;
}

wire::FunctionOrder GraphOrder::order_of(uint32_t function) {
    wire::FunctionOrder order{steps_[function].ticket, {}, {}};
    const auto heard = heard_before(function);
    MirrorSet seen(order.seen, mirrors_.size()), brings(order.brings, mirrors_.size());
    for (auto writer : writers_) {
        auto bit = steps_[writer].write_bit;
        if (has_bit(sets_[function], bit) && !has_bit(heard, bit)) seen.add(steps_[writer].writes, writer);
    }
    for (uint32_t i = 0; i < steps_.size(); ++i)
        if (steps_[i].reads >= 0 && has_bit(sets_[i], steps_[function].function_bit)) brings.add(steps_[i].reads, i);
    copies_seen_.push_back(seen.take_last());
    return order;
}

CUresult GraphOrder::answer(wire::OrderGraph<>::Reply& order) {
    order.unseen.assign(mirrors_.size(), 0);
    size_t listed = 0;
    for (auto function : functions_) {
        order.functions.push_back(order_of(function));
        listed += order.functions.back().seen.size() + order.functions.back().brings.size();
        if (listed > listed_max) return CUDA_ERROR_NOT_SUPPORTED;
    }
    order.tangled = find_tangles();
    for (auto writer : writers_) {
        bool seen = std::any_of(functions_.begin(), functions_.end(),
                                [&](uint32_t function) { return has_bit(sets_[function], steps_[writer].write_bit); });
        if (!seen) order.unseen[static_cast<size_t>(steps_[writer].writes)] = writer + 1;
    }
    return CUDA_SUCCESS;
}

CUresult GraphOrder::find(CUgraph graph, wire::OrderGraph<>::Reply& order) {
    auto& table = driver();
    bool can = (table.cuGraphNodeGetDependencies || table.cuGraphNodeGetDependencies_v2) && table.cuGraphGetNodes &&
               table.cuGraphHostNodeGetParams && table.cuGraphMemcpyNodeGetParams;
    if (!can) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto result = add_graph(graph, -1); result != CUDA_SUCCESS) return result;
    count_bits();
    if (sets_.size() != steps_.size() || functions_.size() > wire::ordered_functions_max)
        return CUDA_ERROR_NOT_SUPPORTED;
    find_sets();
    return answer(order);
}

}  // namespace tnr::worker
