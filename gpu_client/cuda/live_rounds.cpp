// Pages that the program and a running kernel use at once: see live_pages.hpp for what is promised, and page_turns.hpp.
//
// A thread carries over what changes, in rounds: what the program has written since is sent, then the GPU's pages are looked
// at, and what is new there is shown to the program. A page is part of that for a moment after the program has touched it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu_client/cuda/background_thread.hpp"
#include "gpu_client/cuda/page_turns.hpp"

namespace tnr::cuda {

using Clock = std::chrono::steady_clock;

// A page that is not touched again ends; whoever polls it notices nothing but one more wait.
constexpr std::chrono::milliseconds live_for{100};
constexpr size_t live_pages_max = 1024;
// What the program may write ahead of what has been sent: one piece is a page at most.
constexpr size_t unsent_pieces_max = 4096;
// A kernel that changes its pages all the time is not waited for.
constexpr int looks_max = 4;
// Between rounds, so that they take a part of the line only.
constexpr std::chrono::microseconds round_pause_min{100}, round_pause_max{10'000};
constexpr size_t looked_bytes_per_us = 100;

struct PageTurns::Looked {
    Range range;
    size_t page = 0;
    bool wanted = false;  // the program does not have it yet
    Looks looks;
    bool settled = false;
};

void PageTurns::want_live(const Range& range, PageRun run) {
    wishes_.push_back({range, run});
    if (!std::exchange(carries_, true)) start_background_thread([this] { carry_live(); });
    live_wanted_.notify_one();
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
        unsent_.push_back({range, page, run.first, PageBytes(from, from + static_cast<ptrdiff_t>(run.count))});
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

void PageTurns::send_live(const std::vector<LivePiece>& pieces) {
    for (auto& [range, page, first, bytes] : pieces)
        give_bytes({range->context, range->transfers}, range->device + page * page_bytes() + first, bytes.data(),
                   bytes.size());
}

void PageTurns::note_sent(const std::vector<LivePiece>& pieces) {
    for (auto& [range, page, first, bytes] : pieces)
        if (auto live = range->live.find(page); live != range->live.end())
            std::memcpy(&live->second.theirs[first], bytes.data(), bytes.size());
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
        for (auto& [page, known] : range->live) pages.push_back({range, page, false, Looks(known.theirs)});
    for (auto& wish : wishes) {
        const auto& range = wish.range;
        for (size_t page = wish.run.first; page < wish.run.end() && pages.size() < live_pages_max; ++page) {
            auto same = [&](const Looked& other) { return other.range == range && other.page == page; };
            if (can_go_live(range, page) && std::none_of(pages.begin(), pages.end(), same))
                pages.push_back({range, page, true, Looks({})});
        }
    }
    return pages;
}

// At all of them, without the lock; one round trip for those of a GPU. False if there is no answer.
bool PageTurns::look(std::vector<Looked>& pages) {
    std::map<Transfers, std::vector<WantedBytes>> wanted;
    std::vector<PageBytes> seen(pages.size());
    for (size_t i = 0; i < pages.size(); ++i) {
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
        auto live = page.range->live.find(page.page);
        return page.wanted ? !can_go_live(page.range, page.page)
                           : live == page.range->live.end() || live->second.theirs == page.looks.seen();
    });
    // The program sees all of it or nothing.
    for (auto& page : pages) {
        if (!page.wanted) close_live(page.range, page.page);
        (void)page.range->view->protect({page.page, 1}, PageAccess::none);
    }
    for (auto& [range, page, wanted, looks, settled] : pages) {
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

// Returns how many bytes of the GPU's were looked at.
size_t PageTurns::live_round() {
    if (giving_ > 0 || in_host_function_) {
        changed_.wait_for(mutex_, round_pause_max, [] { return false; });
        return 0;
    }
    const auto turn = turns_;
    if (!anything_at_work()) end_live_everywhere();  // what is touched now is fetched
    close_live();
    send({});
    while (giving_ > 0) changed_.wait(mutex_);  // what another thread sends is not to be looked at half-way
    std::vector<Looked> pages;
    if (turn == turns_ && anything_at_work()) pages = live_and_wanted(wishes_);
    wishes_.clear();
    const auto sends = sends_;
    const size_t bytes = pages.size() * page_bytes();
    const bool sound = pages.empty() || look_until_settled(pages);
    // What was taken or sent meanwhile was not seen here: whoever waits asks again.
    if (!sound)
        end_live_everywhere();
    else if (turn == turns_ && sends == sends_ && !in_host_function_)
        show_live(pages);
    forget_untouched();
    changed_.notify_all();
    return bytes;
}

void PageTurns::carry_live() {
    mutex_.lock();
    while (true) {
        while (live_.empty() && wishes_.empty() && unsent_.empty()) live_wanted_.wait(mutex_);
        const std::chrono::microseconds pause(live_round() / looked_bytes_per_us);
        live_wanted_.wait_for(mutex_, std::clamp(pause, round_pause_min, round_pause_max),
                              [&]() TNR_REQUIRES(mutex_) { return !wishes_.empty(); });
    }
}

}  // namespace tnr::cuda
