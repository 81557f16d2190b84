// See shared_edges.hpp.
#include "gpu_client/cuda/shared_edges.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "api_client/base/mutex.hpp"
#include "api_client/base/turn.hpp"
#include "gpu_client/cuda/page_transfers.hpp"

namespace tnr::cuda {

std::atomic<size_t> shared_edges{0};

namespace {
struct Edges {
    Turn turn;  // held while bytes travel
    std::vector<SharedEdge> all TNR_GUARDED_BY(turn);
    uint64_t given TNR_GUARDED_BY(turn) = 0;    // the GPU's last turn
    uint64_t fetched TNR_GUARDED_BY(turn) = 0;  // the last turn of which everything is here
    bool lent TNR_GUARDED_BY(turn) = false;
    std::vector<Transfers> given_while_lent TNR_GUARDED_BY(turn);  // by any thread

    bool with_gpu() const TNR_REQUIRES(turn) { return given > fetched; }
};
Edges& edges() {
    static auto* all = new Edges;
    return *all;
}

// Another thread of the program may be writing beside what the GPU has changed: only that is taken over.
void take(SharedEdge& edge, std::vector<std::byte> now) {
    auto* here = reinterpret_cast<std::byte*>(edge.host);
    for (size_t i = 0; i < now.size(); ++i)
        if (now[i] != edge.known[i]) here[i] = now[i];
    edge.known = std::move(now);
}

// One wait for all of a context.
template <class Which>
void fetch(std::vector<SharedEdge>& edges, Which which) {
    struct Batch {
        std::vector<WantedBytes> wanted;
        std::vector<std::pair<SharedEdge*, std::vector<std::byte>>> into;
    };
    std::map<Transfers, Batch> all;
    for (auto& edge : edges) {
        if (!which(edge)) continue;
        auto& batch = all[Transfers{edge.context, edge.transfers}];
        auto& now = batch.into.emplace_back(&edge, std::vector<std::byte>(edge.bytes)).second;
        batch.wanted.push_back({edge.device, edge.bytes, now.data()});
    }
    for (auto& [by, batch] : all) {
        if (!fetch_bytes(by, batch.wanted)) continue;
        for (auto& [edge, now] : batch.into) take(*edge, std::move(now));
    }
}

// Only what the program has changed: the GPU may be changing what lies beside it.
void give(SharedEdge& edge) TNR_REQUIRES(edges().turn) {
    const auto* here = reinterpret_cast<const std::byte*>(edge.host);
    if (std::memcmp(here, edge.known.data(), edge.bytes) == 0) return;
    const Transfers by{edge.context, edge.transfers};
    for (uint64_t i = 0; i < edge.bytes; ++i) {
        const uint64_t first = i;
        for (; i < edge.bytes && here[i] != edge.known[i]; ++i) edge.known[i] = here[i];
        if (i != first) give_bytes(by, edge.device + first, edge.known.data() + first, i - first);
    }
    if (edges().lent) edges().given_while_lent.push_back(by);
}
}  // namespace

void add_edge(SharedEdge edge) {
    TakenTurn turn(edges().turn);
    const auto* here = reinterpret_cast<const std::byte*>(edge.host);
    edge.known.assign(here, here + edge.bytes);
    give_bytes({edge.context, edge.transfers}, edge.device, edge.known.data(), edge.bytes);
    edges().all.push_back(std::move(edge));
    shared_edges = edges().all.size();
}

void remove_edges(uint64_t memory, bool fetch_first) {
    if (shared_edges == 0) return;
    TakenTurn turn(edges().turn);
    if (fetch_first && edges().with_gpu()) fetch(edges().all, [&](auto& edge) { return edge.memory == memory; });
    std::erase_if(edges().all, [&](auto& edge) { return edge.memory == memory; });
    shared_edges = edges().all.size();
}

void remove_edges_of(uint64_t context) {
    if (shared_edges == 0) return;
    TakenTurn turn(edges().turn);
    std::erase_if(edges().all, [&](auto& edge) { return edge.context == context; });
    shared_edges = edges().all.size();
}

void give_edges(uint64_t number) {
    if (shared_edges == 0) return;
    TakenTurn turn(edges().turn);
    for (auto& edge : edges().all) give(edge);
    edges().given = std::max(edges().given, number);
}

void fetch_edges(uint64_t finished) {
    if (shared_edges == 0) return;
    TakenTurn turn(edges().turn);
    if (!edges().with_gpu()) return;
    fetch(edges().all, [](auto&) { return true; });
    edges().fetched = std::max(edges().fetched, finished);
}

void lend_edges() {
    if (shared_edges == 0) return;
    fetch_edges(0);  // of no turn it is known that it is complete
    TakenTurn turn(edges().turn);
    edges().lent = true;
}

void return_edges(std::vector<Transfers>& used) {
    if (shared_edges == 0) return;
    TakenTurn turn(edges().turn);
    for (auto& edge : edges().all) give(edge);
    auto& given = edges().given_while_lent;
    used.insert(used.end(), given.begin(), given.end());
    given.clear();
    edges().lent = false;
}

}  // namespace tnr::cuda
