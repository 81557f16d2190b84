// When the ends of registered memory are compared and carried over: see shared_edges.hpp, and page_turns.hpp. What the
// program has changed travels with what it has changed in pages, in the order of PageTurns::unsent_.
#include <algorithm>
#include <utility>

#include "gpu_client/cuda/page_turns.hpp"

namespace tnr::cuda {

void PageTurns::add_edge(SharedEdge edge) {
    edge.known = edge.here();
    give_bytes({edge.context, edge.transfers}, edge.device, &edge.known[edge.lead()], edge.bytes);
    LockGuard lock(mutex_);
    auto before = [](const auto& one, const auto& other) { return one->host < other->host; };
    auto added = std::make_shared<SharedEdge>(std::move(edge));
    edges_.insert(std::upper_bound(edges_.begin(), edges_.end(), added, before), added);
    edge_count_ = edges_.size();
}

void PageTurns::remove_edges(uint64_t memory, bool fetch) {
    if (!has_edges()) return;
    mutex_.lock();
    Edges removed;
    for (auto& edge : edges_)
        if (edge->memory == memory) removed.push_back(edge);
    if (fetch && !removed.empty() && edges_given_ > edges_fetched_) fetch_edges(removed);
    std::erase_if(edges_, [&](auto& edge) { return edge->memory == memory; });
    edge_count_ = edges_.size();
    ++edge_changes_;
    mutex_.unlock();
}

// The GPU gets it with what is sent next.
void PageTurns::note_edges() {
    auto changed = [](auto& edge) { return edge->changed_here(); };
    if (std::none_of(edges_.begin(), edges_.end(), changed)) return;
    auto content = settled_content(edges_);
    for (size_t i = 0; i < edges_.size(); ++i) {
        auto& edge = *edges_[i];
        for (auto run : edge.changed_to(std::move(content[i]))) {
            const auto from = edge.known.begin() + static_cast<ptrdiff_t>(run.first);
            unsent_.push_back({{edge.context, edge.transfers},
                               edge.device + run.first - edge.lead(),
                               PageBytes(from, from + static_cast<ptrdiff_t>(run.count)),
                               nullptr,
                               0,
                               0});
        }
    }
    ++edge_changes_;
}

// The GPU's, which is to come to `seen`.
WantedBytes PageTurns::content_of(const SharedEdge& edge, PageBytes& seen) {
    seen.resize(edge.lead() + edge.bytes);
    return {edge.device, edge.bytes, &seen[edge.lead()]};
}

// Without the lock while it waits, once for all of a context. Nobody else moves edges meanwhile, but rounds of their own,
// which notice it.
void PageTurns::fetch_edges(const Edges& edges) {
    while (!edges_can_move() || !unsent_.empty())
        if (edges_can_move())
            send({});
        else
            changed_.wait(mutex_);
    fetching_edges_ = true;
    std::vector<PageBytes> seen(edges.size());
    std::map<Transfers, std::pair<std::vector<WantedBytes>, Edges>> wanted;
    for (size_t i = 0; i < edges.size(); ++i) {
        auto& edge = *edges[i];
        auto& [pieces, of] = wanted[{edge.context, edge.transfers}];
        pieces.push_back(content_of(edge, seen[i]));
        of.push_back(edges[i]);
    }
    mutex_.unlock();
    std::vector<SharedEdge*> lost;
    for (auto& [by, batch] : wanted)
        if (!fetch_bytes(by, batch.first))
            for (auto& edge : batch.second) lost.push_back(edge.get());
    mutex_.lock();
    for (size_t i = 0; i < edges.size(); ++i)
        if (std::find(lost.begin(), lost.end(), edges[i].get()) == lost.end()) edges[i]->take_in(std::move(seen[i]));
    ++edge_changes_;
    fetching_edges_ = false;
    changed_.notify_all();
}

void PageTurns::fetch_edges() {
    if (!has_edges()) return;
    mutex_.lock();
    while (!edges_can_move()) changed_.wait(mutex_);
    if (edges_given_ > edges_fetched_) {
        forget_complete_work();
        const uint64_t finished = all_is_done() ? turns_ : 0;
        fetch_edges(Edges(edges_));
        edges_fetched_ = std::max(edges_fetched_, finished);
    }
    mutex_.unlock();
}

// ---- work that goes on for long: the program and it may talk ----

std::vector<Work> PageTurns::long_work() {
    forget_complete_work();
    std::vector<Work> found;
    const auto before = std::chrono::steady_clock::now() - live_patience;
    for (auto& work : works_)
        if (work.since <= before) found.push_back(work);
    return found;
}

// Something may be new there that nobody else will look at soon. When all is done, that is so until somebody has looked: the
// program may poll the last word of a kernel, and never wait for it.
bool PageTurns::edges_due() {
    if (edges_.empty() || edges_given_ <= edges_fetched_) return false;
    if (!long_work().empty()) return true;
    return all_is_done() && last_given_ + live_patience <= std::chrono::steady_clock::now();
}

// Whether it is over: perhaps nobody else asks. An answer that comes soon spares the rounds.
void PageTurns::ask_for_long_work() {
    auto asked = long_work();
    std::erase_if(asked, [](const Work& work) { return work.asked != nullptr; });
    for (auto& work : asked) {
        const bool last = &work == &asked.back();
        (void)finish(work, last && live_.empty() ? live_patience : std::chrono::milliseconds{0});
    }
}

}  // namespace tnr::cuda
