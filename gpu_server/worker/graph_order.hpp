// In which order a graph reaches functions of the client, and copies between the GPU and mirrors of the client's memory
// (gpu_client/cuda/graph_needs.hpp). The client cannot know: a captured graph is the driver's, and graphs are inside graphs.
#pragma once

#include <functional>
#include <unordered_map>

#include "gpu_client/protocol/graph_records.hpp"
#include "gpu_server/worker/graphs.hpp"

namespace tnr::worker {

// What is known before each step of a graph: a bit for each function, for each copy into a mirror, and for each wait for others.
using StepSet = std::vector<uint64_t>;

class GraphOrder {
public:
    using Mirrors = std::vector<wire::GraphMirror>;
    // The client's ticket of a function; 0: none of the client's.
    using TicketOf = std::function<uint64_t(const CUDA_HOST_NODE_PARAMS&)>;
    GraphOrder(GraphBook& book, const Mirrors& mirrors, TicketOf ticket_of)
        : book_(book), mirrors_(mirrors), ticket_of_(std::move(ticket_of)) {
        for (size_t i = 0; i < mirrors.size(); ++i) mirrors_at_[mirrors[i].device].push_back(static_cast<int>(i));
    }

    // CUDA_ERROR_NOT_SUPPORTED for a driver that cannot tell, and for more than can be ordered in a moment.
    CUresult find(CUgraph graph, wire::OrderGraph<>::Reply& order);
    // After that: of each function, for each mirror that it sees, the step of the copy that it sees there.
    const std::vector<std::vector<uint32_t>>& copies_seen() const { return copies_seen_; }

private:
    // A node, or the end of one that has graphs inside.
    struct Step {
        std::vector<uint32_t> before;       // it comes directly after these
        int reads = -1, writes = -1;        // mirrors
        uint64_t ticket = 0;                // of a function
        bool waits = false, tells = false;  // others: for their work, of what came before
        bool has_words = false;             // by words of memory; without: by events
        int function_bit = -1, write_bit = -1, wait_bit = -1;
    };
    struct Nodes;

    CUresult add_graph(CUgraph graph, int entry);
    CUresult add_node(CUgraphNode node, const std::vector<uint32_t>& before, uint32_t& end);
    CUresult describe(CUgraphNode node, CUgraphNodeType type, Step& step);
    int mirror_at(uint64_t address, uint64_t bytes) const;
    bool overlap(int one, int other) const;
    bool hands_on(int from, int to) const;
    void count_bits();
    void find_sets();
    bool tangled(uint32_t reader) const;
    bool is_heard(uint32_t step, int bit) const;
    bool reads_too_early(uint32_t step) const;
    bool tells_too_early(uint32_t step) const;
    uint8_t find_tangles() const;
    StepSet heard_before(uint32_t function) const;
    wire::FunctionOrder order_of(uint32_t function);
    CUresult answer(wire::OrderGraph<>::Reply& order);

    GraphBook& book_;
    const Mirrors& mirrors_;
    std::unordered_map<uint64_t, std::vector<int>> mirrors_at_;  // by address
    TicketOf ticket_of_;
    std::vector<Step> steps_;                            // each behind all that it comes after
    std::vector<uint32_t> functions_, writers_, waits_;  // steps
    std::vector<StepSet> sets_;
    std::vector<std::vector<uint32_t>> copies_seen_;
};

}  // namespace tnr::worker
