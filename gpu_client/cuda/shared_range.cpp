// See shared_range.hpp.
#include "gpu_client/cuda/shared_range.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tnr::cuda {

size_t Strides::next(size_t page, size_t least, size_t most) {
    for (auto& stride : strides_)
        if (stride.end == page) return std::clamp(stride.count * 2, least, most);
    return least;
}

void Strides::taken(PageRun run) {
    for (auto& stride : strides_)
        if (stride.end == run.first) {
            stride = {run.end(), run.count};
            return;
        }
    strides_[oldest_] = {run.end(), run.count};
    oldest_ = (oldest_ + 1) % followed;
}

std::pair<uint64_t, uint64_t> SharedRange::part(PageRun run) const {
    uint64_t begin = std::max(run.first * page_bytes(), lead);
    uint64_t end = std::min(run.end() * page_bytes(), lead + bytes);
    return {begin, end > begin ? end - begin : 0};
}

template <class Wanted>
std::vector<PageRun> SharedRange::runs_of(Wanted wanted) const {
    std::vector<PageRun> runs;
    for (size_t page = 0; page < states.size(); ++page) {
        if (!wanted(states[page])) continue;
        if (runs.empty() || runs.back().end() != page) runs.push_back({page, 0});
        ++runs.back().count;
    }
    return runs;
}

// Taking access away merges mappings, so it cannot fail for want of them.
SharedRange::Taken SharedRange::take() {
    const bool fresh = states.front() == PageState::fresh;  // all pages are, or none
    Taken taken;
    taken.changed = runs_of([](PageState state) { return state == PageState::dirty; });
    if (view->read_in_place() && (fresh || !taken.changed.empty())) {
        // Not the stale ones: there the GPU has something newer.
        taken.readable = runs_of([](PageState state) { return state != PageState::stale; });
        for (auto run : taken.readable) (void)view->protect(run, PageAccess::read);
    } else {
        (void)view->protect({0, states.size()}, PageAccess::none);
    }
    if (fresh) taken.changed = view->touched();  // only now: until here the program could touch more
    std::fill(states.begin(), states.end(), PageState::stale);
    live.clear();
    held = false;
    return taken;
}

void SharedRange::hide(const Taken& taken) {
    for (auto run : taken.readable) (void)view->protect(run, PageAccess::none);
}

PageRun SharedRange::to_bring(size_t page, uint64_t bytes_min) {
    const size_t least = std::max<uint64_t>(bytes_min / page_bytes(), 1);
    bool is_expected = page >= expected.first && page < expected.end();
    size_t most = brought_bytes_max / page_bytes();
    size_t wanted = is_expected ? most : reads.next(page, least, most);
    size_t begin = wanted == least ? page / least * least : page;
    size_t limit = std::min(begin + wanted, states.size());
    auto free = [&](size_t at) { return states[at] == PageState::stale && !arriving[at]; };
    PageRun run{page, 1};
    while (run.first > begin && free(run.first - 1)) --run.first, ++run.count;
    while (run.end() < limit && free(run.end())) ++run.count;
    reads.taken(run);
    return run;
}

PageRun SharedRange::to_open(size_t page) {
    size_t limit = std::min(page + writes.next(page, 1, brought_bytes_max / page_bytes()), states.size());
    PageRun run{page, 1};
    while (run.end() < limit && states[run.end()] == PageState::clean) ++run.count;
    writes.taken(run);
    return run;
}

bool SharedRange::set(PageRun run, PageAccess access, PageState state) {
    auto granted = view->protect(run, access);
    if (!granted) return false;
    if (*granted == PageAccess::write) state = PageState::dirty;
    std::fill_n(states.begin() + static_cast<ptrdiff_t>(run.first), run.count, state);
    held = true;
    return true;
}

bool SharedRange::let_read(PageRun run) {
    return set(run, PageAccess::read, PageState::clean);
}

bool SharedRange::let_write(PageRun run) {
    return set(run, PageAccess::write, PageState::dirty);
}

bool SharedRange::let_live(size_t page) {
    const PageRun run{page, 1};
    auto& shown = live[page];
    std::vector<std::byte> room;
    std::memcpy(view->hidden(run, room), shown.known.data(), shown.known.size());
    if (!view->show(run, room)) return false;
    const auto granted = view->protect(run, PageAccess::read);
    if (!granted) return false;
    shown.open = *granted == PageAccess::write;
    shown.first_write = 0;
    states[page] = PageState::live;
    held = true;
    return true;
}

bool SharedRange::open_live(size_t page, size_t at) {
    auto& opened = live[page];
    if (!opened.open) opened.first_write = at;
    opened.open = view->protect({page, 1}, PageAccess::write).has_value();
    return opened.open;
}

std::vector<ByteRun> SharedRange::close_live(size_t page) {
    auto& closed = live[page];
    if (!closed.open) return {};
    const auto granted = view->protect({page, 1}, PageAccess::read);
    closed.open = granted != PageAccess::read;
    const auto* content = view->content(page);
    PageBytes now(content, content + closed.known.size());
    auto changes = changed_words(closed.known, now, std::exchange(closed.first_write, 0));
    closed.known = std::move(now);
    return changes;
}

void SharedRange::let_again(size_t page) {
    if (states[page] == PageState::live)
        (void)view->protect({page, 1}, live[page].open ? PageAccess::write : PageAccess::read);
    if (states[page] == PageState::clean) (void)let_read({page, 1});
    if (states[page] == PageState::dirty) (void)let_write({page, 1});
}

}  // namespace tnr::cuda
