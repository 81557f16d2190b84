// Pages that the program and a running kernel use at once: see live_pages.hpp for what is promised, and page_turns.hpp.
//
// A thread carries over what changes, in rounds: what the program has written since is sent, then the GPU's pages are looked
// at, and what is new there is shown to the program. A page is part of that for a moment after the program has touched it.
//
// So are the ends of registered memory (shared_edges.hpp), whoever touches them: nothing tells us. They take part in the
// rounds of pages, and have rounds of their own while work goes on for long. Those come ever less often while nothing
// changes. The program's pages and ends stay in the order in which it wrote them:
// * Before it may write to a page, what it has changed in ends is noted; so data there comes before a flag in the page.
// * When ends are looked at, no page can be written; so data in pages comes before a flag in an end.
#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu_client/cuda/background_thread.hpp"
#include "gpu_client/cuda/page_turns.hpp"
#include "gpu_client/cuda/remote_call.hpp"

namespace tnr::cuda {

using Clock = std::chrono::steady_clock;

// A page that is not touched again ends; whoever polls it notices nothing but one more wait.
constexpr std::chrono::milliseconds live_for{100};
constexpr size_t live_pages_max = 1024;
// What the program may write ahead of what has been sent: one piece is a page at most.
constexpr size_t unsent_pieces_max = 4096;
// A kernel that changes its pages all the time is not waited for.
constexpr int looks_max = 4;
constexpr int outdated_rounds_max = 4;
// Between rounds, so that they take a part of the line only.
constexpr std::chrono::microseconds round_pause_min{100}, round_pause_max{10'000};
constexpr size_t looked_bytes_per_us = 100;
// Of rounds that nobody seems to need, for ends of registered memory only.
constexpr std::chrono::microseconds idle_pause_max{10'000};
constexpr size_t idle_bytes_per_us = 1;

// A page, or an end of registered memory.
struct PageTurns::Looked {
    Range range;
    std::shared_ptr<SharedEdge> edge;
    size_t page = 0;
    bool wanted = false;  // the program does not have it yet
    Looks looks;
    bool settled = false;
};

void PageTurns::want_live(const Range& range, PageRun run) {
    wishes_.push_back({range, run});
    start_carrying();
    live_wanted_.notify_one();
}

void PageTurns::start_carrying() {
    if (!std::exchange(carries_, true)) start_background_thread([this] { carry_live(); });
    if (std::exchange(sleeps_, false)) live_wanted_.notify_one();
}

// ---- from the program to the GPU ----

// One page at a time can be written: what was written to another before is noted first.
bool PageTurns::open_live(const PageFault& fault, const Range& range, size_t page) {
    if (range->live[page].open) return true;
    if (unsent_.size() >= unsent_pieces_max) {
        changed_.wait(mutex_);
        return false;
    }
    close_live();
    if (!fetching_edges_) note_edges();
    if (!range->open_live(page, fault.address % page_bytes())) {
        send(take_from_program(every_stream));
        return false;
    }
    range->live[page].since = Clock::now();
    return true;
}

void PageTurns::close_live() {
    for (auto& range : live_)
        for (auto& [page, live] : range->live)
            if (live.open) close_live(range, page);
}

void PageTurns::close_live(const Range& range, size_t page) {
    for (auto run : range->close_live(page)) {
        const auto from = range->live[page].known.begin() + static_cast<ptrdiff_t>(run.first);
        unsent_.push_back({{range->context, range->transfers},
                           range->device + page * page_bytes() + run.first,
                           PageBytes(from, from + static_cast<ptrdiff_t>(run.count)),
                           range,
                           page,
                           run.first});
    }
}

void PageTurns::end_live(const Range& range) {
    for (auto& [page, live] : range->live) {
        close_live(range, page);
        (void)range->view->protect({page, 1}, PageAccess::none);
        range->states[page] = PageState::stale;
    }
    range->live.clear();
    std::erase(live_, range);
}

void PageTurns::end_live_everywhere() {
    for (auto ranges = live_; auto& range : ranges) end_live(range);
}

// Nothing new has completed where the same is asked again.
void PageTurns::told_complete() {
    LockGuard lock(mutex_);
    const auto heard = completions_heard();
    if (std::exchange(told_, heard) != heard) end_live_everywhere();
}

void PageTurns::send_live(const std::vector<LivePiece>& pieces) {
    for (auto& piece : pieces) give_bytes(piece.by, piece.device, piece.bytes.data(), piece.bytes.size());
}

void PageTurns::note_sent(const std::vector<LivePiece>& pieces) {
    for (auto& piece : pieces) {
        if (!piece.range) continue;
        if (auto live = piece.range->live.find(piece.page); live != piece.range->live.end())
            std::memcpy(&live->second.theirs[piece.first], piece.bytes.data(), piece.bytes.size());
    }
}

// ---- from the GPU to the program ----

// Nobody has it here, nor is it on its way to somebody, nor has the memory gone meanwhile.
bool PageTurns::can_go_live(const Range& range, size_t page) {
    return range_at(range->address) == range && range->view && range->states[page] == PageState::stale &&
           !range->arriving[page];
}

std::vector<PageTurns::Looked> PageTurns::live_and_wanted(std::vector<LiveWish> wishes) {
    size_t wanted = 0, live = 0;
    for (auto& wish : wishes) wanted += wish.run.count;
    for (auto& range : live_) live += range->live.size();
    if (live + wanted > live_pages_max) end_live_everywhere();
    std::vector<Looked> pages;
    for (auto& range : live_)
        for (auto& [page, known] : range->live) pages.push_back({range, nullptr, page, false, Looks(known.theirs)});
    for (auto& wish : wishes) {
        const auto& range = wish.range;
        for (size_t page = wish.run.first; page < wish.run.end() && pages.size() < live_pages_max; ++page) {
            auto same = [&](const Looked& other) { return other.range == range && other.page == page; };
            if (can_go_live(range, page) && std::none_of(pages.begin(), pages.end(), same))
                pages.push_back({range, nullptr, page, true, Looks({})});
        }
    }
    return pages;
}

// At all of them, without the lock; one round trip for those of a GPU. False if there is no answer.
bool PageTurns::look(std::vector<Looked>& pages) {
    std::map<Transfers, std::vector<WantedBytes>> wanted;
    std::vector<PageBytes> seen(pages.size());
    for (size_t i = 0; i < pages.size(); ++i) {
        if (const auto* edge = pages[i].edge.get()) {
            wanted[{edge->context, edge->transfers}].push_back(content_of(*edge, seen[i]));
            continue;
        }
        auto& range = *pages[i].range;
        seen[i].resize(range.live_bytes(pages[i].page));
        wanted[{range.context, range.transfers}].push_back(
            {range.device + pages[i].page * page_bytes(), seen[i].size(), seen[i].data()});
    }
    for (auto& [by, pieces] : wanted)
        if (!fetch_bytes(by, pieces)) return false;
    for (size_t i = 0; i < pages.size(); ++i) pages[i].settled = pages[i].looks.add(std::move(seen[i]));
    return true;
}

bool PageTurns::look_until_settled(std::vector<Looked>& pages) {
    for (int looks = 1; looks <= looks_max; ++looks) {
        mutex_.unlock();
        const bool sound = look(pages);
        mutex_.lock();
        if (!sound) return false;
        auto is_known = [&](const Looked& page) {
            return looks == 1 ? !page.wanted && !page.looks.changed() : page.settled;
        };
        if (std::all_of(pages.begin(), pages.end(), is_known)) break;
    }
    return true;
}

void PageTurns::show_live(std::vector<Looked>& pages) {
    std::erase_if(pages, [&](const Looked& page) TNR_REQUIRES(mutex_) {
        if (page.edge) return page.edge->known == page.looks.seen();
        auto live = page.range->live.find(page.page);
        return page.wanted ? !can_go_live(page.range, page.page)
                           : live == page.range->live.end() || live->second.theirs == page.looks.seen();
    });
    // The program sees all of it or nothing. Ends it sees at any time: then it waits for what is in pages.
    for (auto& page : pages) {
        if (page.edge) continue;
        if (!page.wanted) close_live(page.range, page.page);
        (void)page.range->view->protect({page.page, 1}, PageAccess::none);
    }
    for (auto& page : pages) {
        if (!page.edge) continue;
        page.edge->take_in(page.looks.seen());
        ++edge_changes_;
    }
    std::erase_if(pages, [](const Looked& page) { return page.edge != nullptr; });
    show_pages(pages);
}

void PageTurns::show_pages(std::vector<Looked>& pages) {
    for (auto& [range, edge, page, wanted, looks, settled] : pages) {
        auto& live = range->live[page];
        if (wanted)
            live = {looks.seen(), looks.seen(), false, 0, Clock::now()};
        else
            live.take_in(looks.seen());
        if (std::find(live_.begin(), live_.end(), range) == live_.end()) live_.push_back(range);
        if (!range->held) held_.push_back(range);
        if (range->let_live(page)) continue;
        range->held = true;
        return send(take_from_program(every_stream));  // too many mappings
    }
}

void PageTurns::forget_untouched() {
    const auto before = Clock::now() - live_for;
    for (auto ranges = live_; auto& range : ranges) {
        std::erase_if(range->live, [&](auto& of_page) {
            auto& [page, live] = of_page;
            if (live.open || live.since > before || live.known != live.theirs) return false;
            (void)range->view->protect({page, 1}, PageAccess::none);
            range->states[page] = PageState::stale;
            return true;
        });
        if (range->live.empty()) std::erase(live_, range);
    }
}

bool PageTurns::anything_at_work() {
    auto has_work = [&](const Range& range) TNR_REQUIRES(mutex_) { return work_on(*range) != nullptr; };
    return submitting_ > 0 || std::any_of(live_.begin(), live_.end(), has_work) ||
           std::any_of(wishes_.begin(), wishes_.end(),
                       [&](auto& wish) TNR_REQUIRES(mutex_) { return has_work(wish.range); });
}

// Returns how long to wait before the next.
std::chrono::microseconds PageTurns::live_round() {
    if (!edges_can_move() || in_host_function_) {
        changed_.wait_for(mutex_, round_pause_max, [] { return false; });
        return round_pause_min;
    }
    const auto turn = turns_, edges_before = edge_changes_;
    if (!anything_at_work()) end_live_everywhere();  // what is touched now is fetched
    close_live();
    note_edges();
    const auto edges = edge_changes_;
    send({});
    while (giving_ > 0) changed_.wait(mutex_);  // what another thread sends is not to be looked at half-way
    std::vector<Looked> looked;
    if (turn == turns_ && anything_at_work()) looked = live_and_wanted(wishes_);
    wishes_.clear();
    const bool pages = !looked.empty();
    const bool due = edges_due(), done = all_is_done();
    if (pages || due)
        for (auto& edge : edges_) looked.push_back({nullptr, edge, 0, false, Looks(edge->known)});
    const auto sends = sends_, heard = completions_heard();
    size_t bytes = 0;
    for (auto& one : looked) bytes += one.edge ? one.edge->bytes : page_bytes();
    const bool sound = looked.empty() || look_until_settled(looked);
    // What was taken or sent meanwhile was not seen here: whoever waits asks again.
    if (!sound) {
        end_live_everywhere();
        for (auto& work : long_work()) (void)finish(work, std::chrono::milliseconds{0});  // a lost one is forgotten
    }
    // What has completed meanwhile may have written after the look. Where something always has, the page is shown all the same.
    const bool outdated = heard != completions_heard() && ++outdated_ < outdated_rounds_max;
    if (!outdated) outdated_ = 0;
    const bool pages_count = sound && !outdated && turn == turns_ && sends == sends_ && !in_host_function_;
    const bool edges_count = sound && edges == edge_changes_ && (pages_count || live_.empty());
    std::erase_if(looked, [&](auto& one) { return one.edge ? !edges_count : !pages_count; });
    show_live(looked);
    if (due && done && turn == turns_ && (edges_count || !sound)) edges_fetched_ = turn;
    forget_untouched();
    changed_.notify_all();
    const bool idle = !pages && edges_before == edge_changes_;
    const std::chrono::microseconds pause(bytes / looked_bytes_per_us), idle_pause(bytes / idle_bytes_per_us);
    edge_pause_ =
        idle ? std::clamp(edge_pause_ * 2, round_pause_min, std::max(idle_pause, idle_pause_max)) : round_pause_min;
    return idle ? edge_pause_ : std::clamp(pause, round_pause_min, round_pause_max);
}

// Until there is something to carry over.
void PageTurns::wait_for_live() {
    while (live_.empty() && wishes_.empty() && unsent_.empty() && !edges_due()) {
        const auto turn = turns_;
        if (!edges_.empty()) {
            const auto now = Clock::now();
            auto next = now + live_patience;
            for (auto& work : works_) next = std::min(next, work.since + live_patience);
            live_wanted_.wait_until(mutex_, next);
        }
        // A program that goes on working need not wake us each time.
        if (!wishes_.empty() || (!edges_.empty() && (turn != turns_ || edges_given_ > edges_fetched_))) continue;
        sleeps_ = true;
        live_wanted_.wait(mutex_);
        sleeps_ = false;
    }
}

void PageTurns::carry_live() {
    mutex_.lock();
    while (true) {
        wait_for_live();
        if (!edges_.empty()) ask_for_long_work();
        const auto pause = live_round();
        live_wanted_.wait_for(mutex_, pause, [&]() TNR_REQUIRES(mutex_) { return !wishes_.empty(); });
    }
}

}  // namespace tnr::cuda
