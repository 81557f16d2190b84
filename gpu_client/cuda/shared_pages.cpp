// See shared_pages.hpp.
#include "gpu_client/cuda/shared_pages.hpp"

#include <pthread.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/page_faults.hpp"
#include "gpu_client/cuda/page_transfers.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/shared_edges.hpp"
#include "gpu_client/cuda/shared_range.hpp"
#include "gpu_client/cuda/stats.hpp"

namespace tnr::cuda {

namespace {

// A thread whose page is taken away again so often before it has it stops new work for a moment.
constexpr int patient_tries = 16;
// New work waits so long at most: what the thread waits for may need it.
constexpr std::chrono::seconds politeness{1};
// An access that cannot be made after so many tries has another reason: the program has unmapped what it registered.
constexpr int tries_max = 10'000;

class SharedPages {
public:
    // `show` gives the range its pages. That is not done where another range is: a page cannot belong to two.
    CUresult add(std::shared_ptr<SharedRange> range, const std::function<CUresult(SharedRange&)>& show)
        TNR_EXCLUDES(mutex_);
    bool remove(uint64_t host, bool fetch) TNR_EXCLUDES(mutex_);
    void forget_work_of(uint64_t context) TNR_EXCLUDES(mutex_);
    CUresult attach(uint64_t host, uint64_t stream, bool from_host_only) TNR_EXCLUDES(mutex_);

    void expect(uint64_t host, uint64_t bytes, bool soon) TNR_EXCLUDES(mutex_);

    // `stream`: handle; 0: a default stream's work.
    uint64_t give(uint64_t stream) TNR_EXCLUDES(mutex_);
    void given(const Work* work) TNR_EXCLUDES(mutex_);
    // The last of the GPU's turns if everything that was given is complete; else 0.
    uint64_t finished_turn() TNR_EXCLUDES(mutex_);
    bool serve(const PageFault& fault) TNR_EXCLUDES(mutex_);
    // The child of a fork finds its own copy of registered memory as the program had it; managed and mapped memory is
    // not there, as with a local GPU. Between before_fork() and the other two the lock is held, so nothing is half
    // done.
    void before_fork() TNR_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
    void after_fork() TNR_NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }
    void begin_in_child() TNR_NO_THREAD_SAFETY_ANALYSIS {
        for (auto& [address, range] : ranges_)
            if (range->view && range->view->read_in_place())
                (void)range->view->protect({0, range->states.size()}, PageAccess::write);
        mutex_.unlock();
    }
    void host_function_begins() TNR_EXCLUDES(mutex_);
    // Adds what has moved pages to the GPU since.
    void host_function_ended(std::vector<Transfers>& used) TNR_EXCLUDES(mutex_);

    static constexpr uint64_t every_stream = UINT64_MAX;

private:
    using Range = std::shared_ptr<SharedRange>;
    struct Change {
        Range range;
        SharedRange::Taken taken;
    };
    Range range_at(uint64_t address) const TNR_REQUIRES(mutex_);
    Range range_from(uint64_t host) const TNR_REQUIRES(mutex_);
    void forget(const Range& range) TNR_REQUIRES(mutex_);
    bool settle(const SharedRange& range) TNR_REQUIRES(mutex_);
    static bool used_by(const SharedRange& range, uint64_t stream);
    std::vector<Change> take_from_program(uint64_t stream) TNR_REQUIRES(mutex_);
    bool finish_work(const SharedRange& range) TNR_REQUIRES(mutex_);
    bool step(const PageFault& fault, const Range& range) TNR_REQUIRES(mutex_);
    bool bring(const PageFault& fault, const Range& range, PageRun run) TNR_REQUIRES(mutex_);
    bool let(const Range& range, PageRun run, bool write) TNR_REQUIRES(mutex_);
    void send(const std::vector<Change>& changes) TNR_REQUIRES(mutex_);

    Mutex mutex_;  // held for moments: nothing is sent, nothing waited for
    Condition changed_;
    std::map<uint64_t, Range> ranges_ TNR_GUARDED_BY(mutex_);  // by address here
    std::vector<Range> held_ TNR_GUARDED_BY(mutex_);           // of which the program has pages
    std::vector<Work> works_ TNR_GUARDED_BY(mutex_);           // that may still be going on: the last of each stream
    int giving_ TNR_GUARDED_BY(mutex_) = 0;                    // threads that send what the program has changed
    int submitting_ TNR_GUARDED_BY(mutex_) = 0;                // between give() and given()
    int impatient_ TNR_GUARDED_BY(mutex_) = 0;                 // faults that have waited long enough
    uint64_t turns_ TNR_GUARDED_BY(mutex_) = 0;                // of the GPU so far
    // Of the function of the program that runs for a stream.
    bool in_host_function_ TNR_GUARDED_BY(mutex_) = false, touched_ TNR_GUARDED_BY(mutex_) = false;
    std::vector<Transfers> given_meanwhile_ TNR_GUARDED_BY(mutex_);
};

SharedPages& pages() {
    static auto* all = new SharedPages;
    return *all;
}

// ---- what there is ----

CUresult SharedPages::add(Range range, const std::function<CUresult(SharedRange&)>& show) {
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

SharedPages::Range SharedPages::range_at(uint64_t address) const {
    auto next = ranges_.upper_bound(address);
    if (next == ranges_.begin()) return nullptr;
    auto& range = std::prev(next)->second;
    return range->contains(address) ? range : nullptr;
}

SharedPages::Range SharedPages::range_from(uint64_t host) const {
    auto range = range_at(host);
    return range && range->address + range->lead == host ? range : nullptr;
}

void SharedPages::forget(const Range& range) {
    std::erase(held_, range);
    ranges_.erase(range->address);
}

bool SharedPages::settle(const SharedRange& range) {
    bool arriving = std::find(range.arriving.begin(), range.arriving.end(), true) != range.arriving.end();
    if (giving_ == 0 && submitting_ == 0 && !arriving) return finish_work(range);
    changed_.wait(mutex_);
    return false;
}

// Only the memory's own part of the pages: what lies beside it has been the program's all the time.
bool SharedPages::remove(uint64_t host, bool fetch) {
    std::unique_ptr<PageView> view;
    mutex_.lock();
    auto range = range_from(host);
    while (range && !settle(*range)) range = range_from(host);
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

void SharedPages::forget_work_of(uint64_t context) {
    LockGuard lock(mutex_);
    std::erase_if(works_, [&](auto& work) { return work.context == context; });
}

CUresult SharedPages::attach(uint64_t host, uint64_t stream, bool from_host_only) {
    mutex_.lock();
    auto range = range_from(host);
    // What may still use it now must not be forgotten when it is no longer asked for.
    while (range && !settle(*range)) range = range_from(host);
    if (range) {
        range->stream = stream;
        range->from_host_only = from_host_only;
    }
    mutex_.unlock();
    return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void SharedPages::expect(uint64_t host, uint64_t bytes, bool soon) {
    LockGuard lock(mutex_);
    auto range = range_at(host);
    if (!range) return;
    const size_t first = range->page_of(host), last = range->page_of(host + bytes - 1);
    range->expected = soon ? PageRun{first, last + 1 - first} : PageRun{};
}

// ---- from the program to the GPU ----

bool SharedPages::used_by(const SharedRange& range, uint64_t stream) {
    if (stream == every_stream) return true;
    if (range.from_host_only) return false;
    return range.stream == 0 || range.stream == stream || !streams().find(range.stream);
}

std::vector<SharedPages::Change> SharedPages::take_from_program(uint64_t stream) {
    std::vector<Change> changes;
    if (!held_.empty()) keep_serving();  // before another thread can fault
    std::erase_if(held_, [&](const Range& range) {
        if (!used_by(*range, stream)) return false;
        auto taken = range->take();
        if (!taken.changed.empty()) changes.push_back({range, std::move(taken)});
        return true;
    });
    return changes;
}

void SharedPages::send(const std::vector<Change>& changes) {
    if (changes.empty()) return;
    ++giving_;
    for (auto& change : changes)
        if (in_host_function_) given_meanwhile_.push_back({change.range->context, change.range->transfers});
    mutex_.unlock();
    for (auto& change : changes)
        for (auto run : change.taken.changed) give_pages(*change.range, run);
    mutex_.lock();
    for (auto& change : changes) change.range->hide(change.taken);
    --giving_;
    changed_.notify_all();
}

uint64_t SharedPages::give(uint64_t stream) {
    mutex_.lock();
    if (stream != every_stream)
        changed_.wait_for(mutex_, politeness, [&]() TNR_REQUIRES(mutex_) { return impatient_ == 0; });
    while (giving_ > 0) changed_.wait(mutex_);
    ++submitting_;
    const uint64_t turn = ++turns_;
    stats().pages.begin_turn();
    send(take_from_program(stream));
    mutex_.unlock();
    return turn;
}

void SharedPages::host_function_begins() {
    LockGuard lock(mutex_);
    in_host_function_ = true;
}

void SharedPages::host_function_ended(std::vector<Transfers>& used) {
    bool touched = false;
    {
        LockGuard lock(mutex_);
        touched = std::exchange(touched_, false);
    }
    if (touched) {
        give(every_stream);
        given(nullptr);
    }
    LockGuard lock(mutex_);
    if (touched) used.insert(used.end(), given_meanwhile_.begin(), given_meanwhile_.end());
    given_meanwhile_.clear();
    in_host_function_ = false;
}

uint64_t SharedPages::finished_turn() {
    LockGuard lock(mutex_);
    std::erase_if(works_, [](const Work& work) { return is_complete(work); });
    return works_.empty() && submitting_ == 0 ? turns_ : 0;
}

void SharedPages::given(const Work* work) {
    LockGuard lock(mutex_);
    --submitting_;
    changed_.notify_all();
    if (!work) return;
    auto same = [&](const Work& other) { return other.context == work->context && other.stream == work->stream; };
    auto found = std::find_if(works_.begin(), works_.end(), same);
    if (found == works_.end())
        works_.push_back(*work);
    else
        found->position = std::max(found->position, work->position);
}

// ---- from the GPU to the program ----

// True if no work that may change the memory is going on. Otherwise has waited for some, without the lock.
bool SharedPages::finish_work(const SharedRange& range) {
    std::erase_if(works_, [](const Work& work) { return is_complete(work); });
    auto concerns = [&](const Work& work) { return used_by(range, work.stream); };
    auto found = std::find_if(works_.begin(), works_.end(), concerns);
    if (found == works_.end()) return true;
    const Work work = *found;
    mutex_.unlock();
    bool sound = wait_for(work);
    mutex_.lock();
    // A GPU that has failed does not complete anything; the program's next call says so.
    if (!sound) std::erase_if(works_, [&](auto& other) { return other.context == work.context; });
    return false;
}

// Where the process has too many mappings, the program gives back everything first, and the access is made again.
bool SharedPages::let(const Range& range, PageRun run, bool write) {
    bool held_before = range->held;
    bool done = write ? range->let_write(run) : range->let_read(run);
    if (done && !held_before) held_.push_back(range);
    if (!done) send(take_from_program(every_stream));
    return done;
}

bool SharedPages::bring(const PageFault& fault, const Range& range, PageRun run) {
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
    if (turn != turns_ && !fault.in_host_function) return false;  // the GPU may have changed it since
    if (fetched && !range->view->show(run, room)) return false;
    return let(range, run, false);
}

// One step towards the access; true when it can be made.
bool SharedPages::step(const PageFault& fault, const Range& range) {
    const size_t page = range->page_of(fault.address);
    const PageState state = range->states[page];
    if (state == PageState::dirty || state == PageState::fresh) return true;
    // Another thread may have brought it meanwhile.
    if (state == PageState::clean) return fault.attempt == Attempt::read || let(range, range->to_open(page), true);
    bool waits = !fault.in_host_function;  // what it would wait for may be waiting for the function
    if (giving_ > 0 || range->arriving[page] || (waits && submitting_ > 0)) {
        changed_.wait(mutex_);
        return false;
    }
    if (waits && !finish_work(*range)) return false;
    const PageRun run = range->to_bring(page);
    if (!bring(fault, range, run)) return false;
    if (fault.attempt != Attempt::write) return true;
    const bool long_run = run.count * page_bytes() > brought_bytes_min;
    return let(range, long_run ? PageRun{page, run.end() - page} : PageRun{page, 1}, true);
}

bool SharedPages::serve(const PageFault& fault) {
    bool done = false, impatient = false;
    mutex_.lock();
    for (int tries = 0; !done && tries < tries_max; ++tries) {
        auto range = range_at(fault.address);
        if (!range || !range->view) break;
        if (tries == 0) stats().pages.faults.fetch_add(1, Stats::relaxed);  // the program may go on before we do
        if (tries == patient_tries && !fault.in_host_function) {
            impatient = true;
            ++impatient_;
        }
        done = step(fault, range);
        // The kernel takes pages away for reasons of its own, too.
        if (done && fault.watched) range->let_again(range->page_of(fault.address));
    }
    if (impatient) --impatient_;
    if (impatient) changed_.notify_all();
    if (done && fault.in_host_function) touched_ = true;
    mutex_.unlock();
    return done;
}

bool serve_fault(const PageFault& fault) {
    return pages().serve(fault);
}

void watch_forks() {
    static auto* once = new std::once_flag;
    std::call_once(*once, [] {
        ::pthread_atfork([] { pages().before_fork(); }, [] { pages().after_fork(); }, [] { pages().begin_in_child(); });
    });
}

void waited_for_work() {
    if (shared_edges != 0) fetch_edges(pages().finished_turn());
}

}  // namespace

namespace {

// The whole pages of [host, host + bytes).
PageRun whole_pages(uint64_t host, uint64_t bytes) {
    const uint64_t begin = (host + page_bytes() - 1) / page_bytes(), end = (host + bytes) / page_bytes();
    return {begin, end > begin ? end - begin : 0};
}

CUresult share_pages(const Context& context, const SharedMemory& memory, uint64_t transfers) {
    auto range = std::make_shared<SharedRange>();
    range->address = memory.host / page_bytes() * page_bytes();
    range->lead = memory.host - range->address;
    range->device = memory.device - range->lead;
    range->bytes = memory.bytes;
    range->context = context.handle;
    range->transfers = transfers;
    const size_t count = (range->lead + memory.bytes + page_bytes() - 1) / page_bytes();
    const uint64_t all = count * page_bytes();
    range->states.assign(count, PageState::fresh);
    range->arriving.assign(count, false);
    range->held = true;
    serve_faults(serve_fault);
    expect_faults(range->address, all);
    const bool variable = memory.kind == SharedKind::variable, own = memory.kind == SharedKind::registered;
    if (variable) keep_serving();
    return pages().add(std::move(range), [&](SharedRange& made) -> CUresult {
        made.view = own ? view_of_program_pages(made.address, all) : view_of_fresh_pages(made.address, all);
        if (!made.view) return own ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_OUT_OF_MEMORY;
        // A variable has a value before anybody touches it: from here on other threads can fault.
        if (variable) (void)made.take();
        return CUDA_SUCCESS;
    });
}

// The program's own memory: whole pages, and what is left at either end.
CUresult share_registered(const Context& context, const SharedMemory& memory, uint64_t transfers) {
    const auto inner = whole_pages(memory.host, memory.bytes);
    const uint64_t end = memory.host + memory.bytes;
    const uint64_t inner_begin = inner.count == 0 ? end : inner.first * page_bytes();
    const uint64_t inner_end = inner.count == 0 ? end : inner.end() * page_bytes();
    auto there = [&](uint64_t host) { return memory.device + (host - memory.host); };
    if (inner.count != 0) {
        auto result =
            share_pages(context, {memory.kind, inner_begin, there(inner_begin), inner_end - inner_begin, 0}, transfers);
        if (result != CUDA_SUCCESS) return result;
    }
    for (auto [from, to] : {std::pair(memory.host, inner_begin), std::pair(inner_end, end)})
        if (from < to) add_edge({from, there(from), to - from, memory.host, context.handle, transfers, {}});
    when_told_complete(waited_for_work);
    watch_forks();
    return CUDA_SUCCESS;
}

}  // namespace

CUresult share_memory(Context& context, const SharedMemory& memory) {
    uint64_t transfers = 0;
    if (auto result = open_transfers(context, transfers); result != CUDA_SUCCESS) return result;
    SharedMemory whole = memory;
    whole.context = context.handle;
    auto result = memory.kind == SharedKind::registered ? share_registered(context, memory, transfers)
                                                        : share_pages(context, memory, transfers);
    if (result == CUDA_SUCCESS) note_shared(whole);
    return result;
}

bool unshare_memory(uint64_t host, bool fetch) {
    SharedMemory memory;
    if (!find_shared(host, memory) || memory.host != host) return false;
    bool own = memory.kind == SharedKind::registered;
    (void)pages().remove(own ? whole_pages(host, memory.bytes).first * page_bytes() : host, fetch);
    if (own) remove_edges(host, fetch);
    forget_shared(host);
    return true;
}

void unshare_memory_of(const Context& context) {
    if (!anything_shared()) return;
    pages().forget_work_of(context.handle);
    // Memory of the program's own, which another context has registered, stays.
    for (auto& memory : shared_memory_of(context.handle))
        (void)unshare_memory(memory.host, memory.kind == SharedKind::registered);
}

void expect_touches(uint64_t host, uint64_t bytes, bool soon) {
    pages().expect(host, bytes, soon);
}

CUresult attach_shared(uint64_t host, uint64_t stream, bool from_host_only) {
    return pages().attach(host, stream, from_host_only);
}

void GpuTurn::begin_slowly(Context& context, const StreamRef& stream) {
    context_ = &context;
    stream_ = stream;
    give_edges(pages().give(stream.object ? stream.object->handle : 0));
}

void GpuTurn::end() {
    const Work work = work_of(*context_, stream_);
    pages().given(&work);
}

void host_function_begins() {
    if (!anything_shared()) return;
    pages().host_function_begins();
    lend_edges();
}

void host_function_ended(std::vector<Transfers>& used) {
    if (!anything_shared()) return;
    return_edges(used);
    pages().host_function_ended(used);
}

}  // namespace tnr::cuda
