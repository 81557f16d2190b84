// See page_turns.hpp.
#include "gpu_client/cuda/page_turns.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/stats.hpp"
#include "gpu_client/cuda/streams.hpp"

namespace tnr::cuda {

// A thread whose page is taken away again so often before it has it stops new work for a moment.
constexpr int patient_tries = 16;
// New work waits so long at most: what the thread waits for may need it.
constexpr std::chrono::seconds politeness{1};
// Managed memory waits for the kernel first: beside one that does not wait for the program, all is exact then.
constexpr std::chrono::seconds managed_patience{2};
// An access that fails so often has another reason than too many mappings: the program has unmapped what it registered.
constexpr int failures_max = 100;

// ---- what there is ----

CUresult PageTurns::add(Range range, const std::function<CUresult(SharedRange&)>& show) {
    LockGuard lock(mutex_);
    auto next = ranges_.lower_bound(range->address);
    const uint64_t end = range->address + range->states.size() * page_bytes();
    bool overlaps = next != ranges_.end() && next->first < end;
    if (next != ranges_.begin()) overlaps |= std::prev(next)->second->contains(range->address);
    if (overlaps) return CUDA_ERROR_ALREADY_MAPPED;
    if (auto result = show(*range); result != CUDA_SUCCESS) return result;
    held_.push_back(range);
    ranges_[range->address] = std::move(range);
    return CUDA_SUCCESS;
}

PageTurns::Range PageTurns::range_at(uint64_t address) const {
    auto next = ranges_.upper_bound(address);
    if (next == ranges_.begin()) return nullptr;
    auto& range = std::prev(next)->second;
    return range->contains(address) ? range : nullptr;
}

PageTurns::Range PageTurns::range_from(uint64_t host) const {
    auto range = range_at(host);
    return range && range->address + range->lead == host ? range : nullptr;
}

void PageTurns::forget(const Range& range) {
    std::erase(held_, range);
    ranges_.erase(range->address);
}

bool PageTurns::settle(const Range& range) {
    bool arriving = std::find(range->arriving.begin(), range->arriving.end(), true) != range->arriving.end();
    if (giving_ > 0 || submitting_ > 0 || arriving) {
        changed_.wait(mutex_);
        return false;
    }
    if (const auto* work = work_on(*range)) {
        (void)finish(*work, std::chrono::hours(24));
        return false;
    }
    end_live(range);
    if (unsent_.empty()) return true;
    send({});
    return false;
}

// Only the memory's own part of the pages: what lies beside it has been the program's all the time.
bool PageTurns::remove(uint64_t host, bool fetch) {
    std::unique_ptr<PageView> view;
    mutex_.lock();
    auto range = range_from(host);
    while (range && !settle(range)) range = range_from(host);
    if (range) {
        forget(range);
        view = std::move(range->view);
    }
    mutex_.unlock();
    if (!range) return false;
    for (size_t page = 0; fetch && page < range->states.size(); ++page) {
        if (range->states[page] != PageState::stale) continue;
        PageRun run{page, 1};
        while (run.end() < range->states.size() && range->states[run.end()] == PageState::stale) ++run.count;
        std::vector<std::byte> room;
        if (fetch_pages(*range, run, view->hidden(run, room))) (void)view->show(run, room);
        page = run.end();
    }
    return true;
}

void PageTurns::forget_work_of(uint64_t context) {
    LockGuard lock(mutex_);
    std::erase_if(works_, [&](auto& work) { return work.context == context; });
}

CUresult PageTurns::attach(uint64_t host, uint64_t stream, bool from_host_only) {
    mutex_.lock();
    auto range = range_from(host);
    // What may still use it now must not be forgotten when it is no longer asked for.
    while (range && !settle(range)) range = range_from(host);
    if (range) {
        range->stream = stream;
        range->from_host_only = from_host_only;
    }
    mutex_.unlock();
    return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void PageTurns::expect(uint64_t host, uint64_t bytes, bool soon) {
    LockGuard lock(mutex_);
    auto range = range_at(host);
    if (!range) return;
    const size_t first = range->page_of(host), last = range->page_of(host + bytes - 1);
    range->expected = soon ? PageRun{first, last + 1 - first} : PageRun{};
}

// ---- from the program to the GPU ----

bool PageTurns::used_by(const SharedRange& range, uint64_t stream) {
    if (stream == every_stream) return true;
    if (range.from_host_only) return false;
    return range.stream == 0 || range.stream == stream || !streams().find(range.stream);
}

std::vector<PageTurns::Change> PageTurns::take_from_program(uint64_t stream) {
    std::vector<Change> changes;
    if (!held_.empty()) keep_serving();  // before another thread can fault
    std::erase_if(held_, [&](const Range& range) TNR_REQUIRES(mutex_) {
        if (!used_by(*range, stream)) return false;
        end_live(range);
        auto taken = range->take();
        if (!taken.changed.empty()) changes.push_back({range, std::move(taken)});
        return true;
    });
    return changes;
}

// Pieces stay in their order, whoever sends them. Until all is sent, nobody brings a page of what has been taken.
void PageTurns::send(const std::vector<Change>& changes) {
    if (changes.empty() && unsent_.empty()) return;
    ++giving_;
    ++sends_;
    while (pieces_travel_) changed_.wait(mutex_);
    pieces_travel_ = true;
    const auto pieces = std::exchange(unsent_, {});
    if (in_host_function_) {
        for (auto& piece : pieces) (piece.range ? given_meanwhile_ : edges_given_meanwhile_).push_back(piece.by);
        for (auto& [range, taken] : changes) given_meanwhile_.push_back({range->context, range->transfers});
    }
    mutex_.unlock();
    send_live(pieces);
    for (auto& change : changes)
        for (auto run : change.taken.changed) give_pages(*change.range, run);
    mutex_.lock();
    for (auto& change : changes) change.range->hide(change.taken);
    note_sent(pieces);
    pieces_travel_ = false;
    --giving_;
    changed_.notify_all();
}

void PageTurns::give(uint64_t stream) {
    mutex_.lock();
    if (stream != every_stream)
        changed_.wait_for(mutex_, politeness, [&]() TNR_REQUIRES(mutex_) { return impatient_ == 0; });
    while (!edges_can_move()) changed_.wait(mutex_);
    ++submitting_;
    ++turns_;
    if (!edges_.empty()) edges_given_ = turns_;
    stats().pages.begin_turn();
    const auto changes = take_from_program(stream);
    note_edges();
    send(changes);
    mutex_.unlock();
}

void PageTurns::host_function_begins() {
    mutex_.lock();
    end_live_everywhere();
    send({});
    in_host_function_ = true;
    mutex_.unlock();
    fetch_edges();
}

void PageTurns::host_function_ended(std::vector<Transfers>& used) {
    mutex_.lock();
    while (!edges_can_move()) changed_.wait(mutex_);
    note_edges();
    send({});
    const bool touched = std::exchange(touched_, false) || !live_.empty();
    mutex_.unlock();
    if (touched) {
        give(every_stream);
        given(nullptr);
    }
    LockGuard lock(mutex_);
    if (touched) used.insert(used.end(), given_meanwhile_.begin(), given_meanwhile_.end());
    used.insert(used.end(), edges_given_meanwhile_.begin(), edges_given_meanwhile_.end());
    given_meanwhile_.clear();
    edges_given_meanwhile_.clear();
    in_host_function_ = false;
}

void PageTurns::given(const Work* given) {
    LockGuard lock(mutex_);
    --submitting_;
    changed_.notify_all();
    if (!given) return;
    Work work = *given;
    work.since = last_given_ = std::chrono::steady_clock::now();
    auto same = [&](const Work& other) { return other.context == work.context && other.stream == work.stream; };
    auto found = std::find_if(works_.begin(), works_.end(), same);
    if (found == works_.end())
        works_.push_back(work);
    else if (found->position < work.position)
        *found = work;
    if (!edges_.empty()) start_carrying();
}

// ---- from the GPU to the program ----

void PageTurns::forget_complete_work() {
    std::erase_if(works_, [](const Work& work) { return is_complete(work); });
}

// Some that may change the memory and is still going on.
Work* PageTurns::work_on(const SharedRange& range) {
    forget_complete_work();
    auto concerns = [&](const Work& work) { return used_by(range, work.stream); };
    auto found = std::find_if(works_.begin(), works_.end(), concerns);
    return found == works_.end() ? nullptr : &*found;
}

// Waits for it without the lock.
Waited PageTurns::finish(Work work, std::chrono::milliseconds timeout) {
    mutex_.unlock();
    const auto waited = wait_for(work, timeout);
    mutex_.lock();
    for (auto& same : works_)
        if (same.context == work.context && same.stream == work.stream && same.position == work.position) same = work;
    // A GPU that has failed does not complete anything; the program's next call says so.
    if (waited == Waited::failed) std::erase_if(works_, [&](auto& other) { return other.context == work.context; });
    return waited;
}

// True if the page can be fetched now. Otherwise has done something towards that, or seen to it that both sides have it.
bool PageTurns::settle_for_touch(const Range& range, size_t page) {
    const auto* work = work_on(*range);
    if (!work) return true;
    if (!range->used_by_both) {
        const auto left = managed_patience - (std::chrono::steady_clock::now() - work->since);
        range->used_by_both = left <= left.zero();
        if (!range->used_by_both) {
            (void)finish(*work, std::chrono::ceil<std::chrono::milliseconds>(left));
            return false;
        }
        log_once(LogLevel::warning,
                 "the program touches managed memory that a kernel has been using for 2 s: from now on both use it at "
                 "once. Mapped memory (cudaHostAlloc) is both sides' sooner");
    }
    const auto patience = work->asked ? std::chrono::milliseconds{0} : live_patience;
    if (live_.empty() && finish(*work, patience) != Waited::going_on) return false;
    want_live(range, range->to_bring(page, page_bytes()));
    changed_.wait(mutex_);
    return false;
}

// Where the process has too many mappings, the program gives back everything first, and the access is made again.
bool PageTurns::let(const Range& range, PageRun run, bool write) {
    bool held_before = range->held;
    bool done = write ? range->let_write(run) : range->let_read(run);
    if (done && !held_before) held_.push_back(range);
    if (!done) send(take_from_program(every_stream));
    return done;
}

PageTurns::Step PageTurns::bring(const PageFault& fault, const Range& range, PageRun run) {
    const uint64_t turn = turns_;
    for (size_t page = run.first; page < run.end(); ++page) range->arriving[page] = true;
    auto* view = range->view.get();
    mutex_.unlock();
    std::vector<std::byte> room;
    auto* to = view->hidden(run, room);
    bool fetched = fetch_pages(*range, run, to);
    mutex_.lock();
    for (size_t page = run.first; page < run.end(); ++page) range->arriving[page] = false;
    changed_.notify_all();
    if (!fetched)
        log_once(LogLevel::warning,
                 "memory that the GPU has changed cannot be fetched: the program sees what it had there before");
    if (turn != turns_ && !fault.in_host_function) return Step::again;  // the GPU may have changed it since
    if (fetched && !range->view->show(run, room)) return Step::failed;
    return let(range, run, false) ? Step::done : Step::failed;
}

// One step towards the access.
PageTurns::Step PageTurns::step(const PageFault& fault, const Range& range) {
    const size_t page = range->page_of(fault.address);
    const PageState state = range->states[page];
    const bool reads = fault.attempt == Attempt::read;
    if (state == PageState::dirty || state == PageState::fresh) return Step::done;
    // Another thread may have brought it meanwhile.
    if (state == PageState::live) return reads || open_live(fault, range, page) ? Step::done : Step::again;
    if (state == PageState::clean) return reads || let(range, range->to_open(page), true) ? Step::done : Step::failed;
    bool waits = !fault.in_host_function;  // what it would wait for may be waiting for the function
    if (giving_ > 0 || range->arriving[page] || (waits && submitting_ > 0)) {
        changed_.wait(mutex_);
        return Step::again;
    }
    if (waits && !settle_for_touch(range, page)) return Step::again;
    if (!unsent_.empty()) {
        send({});
        return Step::again;
    }
    const PageRun run = range->to_bring(page);
    if (auto brought = bring(fault, range, run); brought != Step::done || fault.attempt != Attempt::write)
        return brought;
    const bool long_run = run.count * page_bytes() > brought_bytes_min;
    const PageRun opened = long_run ? PageRun{page, run.end() - page} : PageRun{page, 1};
    return let(range, opened, true) ? Step::done : Step::failed;
}

bool PageTurns::serve(const PageFault& fault) {
    bool done = false, impatient = false;
    mutex_.lock();
    for (int tries = 0, failures = 0; !done && failures < failures_max; ++tries) {
        auto range = range_at(fault.address);
        if (!range || !range->view) break;
        if (tries == 0) stats().pages.faults.fetch_add(1, Stats::relaxed);  // the program may go on before we do
        if (tries == patient_tries && !fault.in_host_function) {
            impatient = true;
            ++impatient_;
        }
        const auto result = step(fault, range);
        done = result == Step::done;
        failures += result == Step::failed;
        // The kernel takes pages away for reasons of its own, too.
        if (done && fault.watched) range->let_again(range->page_of(fault.address));
    }
    if (impatient) --impatient_;
    if (impatient) changed_.notify_all();
    if (done && fault.in_host_function) touched_ = true;
    mutex_.unlock();
    return done;
}

}  // namespace tnr::cuda
