// Who has which page of the memory that shared_pages.hpp is about: the GPU or the program, by turns; or both while a kernel
// runs (live_pages.hpp), for which a thread of ours carries over what changes. So it does with the ends of registered memory
// (shared_edges.hpp), which are the program's all the time. Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/page_faults.hpp"
#include "gpu_client/cuda/page_transfers.hpp"
#include "gpu_client/cuda/shared_edges.hpp"
#include "gpu_client/cuda/shared_range.hpp"

namespace tnr::cuda {

class PageTurns {
public:
    // `show` gives the range its pages. That is not done where another range is: a page cannot belong to two.
    CUresult add(std::shared_ptr<SharedRange> range, const std::function<CUresult(SharedRange&)>& show)
        TNR_EXCLUDES(mutex_);
    bool remove(uint64_t host, bool fetch) TNR_EXCLUDES(mutex_);
    void forget_work_of(uint64_t context) TNR_EXCLUDES(mutex_);
    CUresult attach(uint64_t host, uint64_t stream, bool from_host_only) TNR_EXCLUDES(mutex_);

    void expect(uint64_t host, uint64_t bytes, bool soon) TNR_EXCLUDES(mutex_);

    // `stream`: handle; 0: a default stream's work.
    void give(uint64_t stream) TNR_EXCLUDES(mutex_);
    void given(const Work* work) TNR_EXCLUDES(mutex_);
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
    // The program is told that work is complete: what both use is nobody's afterwards, so that it finds what that has written
    // last.
    void told_complete() TNR_EXCLUDES(mutex_);
    // What both use is nobody's afterwards, so that the function finds what the GPU has by then.
    void host_function_begins() TNR_EXCLUDES(mutex_);
    // Adds what has moved pages to the GPU since.
    void host_function_ended(std::vector<Transfers>& used) TNR_EXCLUDES(mutex_);

    // ---- ends of registered memory, in edge_turns.cpp ----
    void add_edge(SharedEdge edge) TNR_EXCLUDES(mutex_);
    // Of the memory that begins there. What the GPU has changed comes back first if `fetch`.
    void remove_edges(uint64_t memory, bool fetch) TNR_EXCLUDES(mutex_);
    bool has_edges() const { return edge_count_.load(std::memory_order_relaxed) != 0; }
    // What the GPU has changed by now comes here, unless it is here. Blocks.
    void fetch_edges() TNR_EXCLUDES(mutex_);

    static constexpr uint64_t every_stream = UINT64_MAX;
    // Work that goes on for longer is met while it does: a touch of memory that it may use waits so long for it, and then
    // both have the page.
    static constexpr std::chrono::milliseconds live_patience{5};

private:
    using Range = std::shared_ptr<SharedRange>;
    struct Change {
        Range range;
        SharedRange::Taken taken;
    };
    Range range_at(uint64_t address) const TNR_REQUIRES(mutex_);
    Range range_from(uint64_t host) const TNR_REQUIRES(mutex_);
    void forget(const Range& range) TNR_REQUIRES(mutex_);
    bool settle(const Range& range) TNR_REQUIRES(mutex_);
    static bool used_by(const SharedRange& range, uint64_t stream);
    std::vector<Change> take_from_program(uint64_t stream) TNR_REQUIRES(mutex_);
    void forget_complete_work() TNR_REQUIRES(mutex_);
    Work* work_on(const SharedRange& range) TNR_REQUIRES(mutex_);
    Waited finish(Work work, std::chrono::milliseconds timeout) TNR_REQUIRES(mutex_);
    bool settle_for_touch(const Range& range, size_t page) TNR_REQUIRES(mutex_);
    enum class Step : uint8_t {
        done,  // the access can be made
        again,
        failed,  // the system lets us do nothing here; it may next time
    };
    Step step(const PageFault& fault, const Range& range) TNR_REQUIRES(mutex_);
    Step bring(const PageFault& fault, const Range& range, PageRun run) TNR_REQUIRES(mutex_);
    bool let(const Range& range, PageRun run, bool write) TNR_REQUIRES(mutex_);
    void send(const std::vector<Change>& changes) TNR_REQUIRES(mutex_);

    // ---- pages that both use, in live_rounds.cpp ----
    struct LivePiece {
        Transfers by;
        uint64_t device = 0;
        PageBytes bytes;
        Range range;                 // null: of an end of registered memory
        size_t page = 0, first = 0;  // bytes of the page
    };
    struct LiveWish {
        Range range;
        PageRun run;
    };
    struct Looked;
    void want_live(const Range& range, PageRun run) TNR_REQUIRES(mutex_);
    bool open_live(const PageFault& fault, const Range& range, size_t page) TNR_REQUIRES(mutex_);
    void close_live() TNR_REQUIRES(mutex_);
    void close_live(const Range& range, size_t page) TNR_REQUIRES(mutex_);
    void end_live(const Range& range) TNR_REQUIRES(mutex_);
    void end_live_everywhere() TNR_REQUIRES(mutex_);
    static void send_live(const std::vector<LivePiece>& pieces);
    void note_sent(const std::vector<LivePiece>& pieces) TNR_REQUIRES(mutex_);
    bool can_go_live(const Range& range, size_t page) TNR_REQUIRES(mutex_);
    std::vector<Looked> live_and_wanted(std::vector<LiveWish> wishes) TNR_REQUIRES(mutex_);
    static bool look(std::vector<Looked>& pages);
    bool look_until_settled(std::vector<Looked>& pages) TNR_REQUIRES(mutex_);
    void show_live(std::vector<Looked>& pages) TNR_REQUIRES(mutex_);
    void show_pages(std::vector<Looked>& pages) TNR_REQUIRES(mutex_);
    void forget_untouched() TNR_REQUIRES(mutex_);
    std::chrono::microseconds live_round() TNR_REQUIRES(mutex_);
    bool anything_at_work() TNR_REQUIRES(mutex_);
    void start_carrying() TNR_REQUIRES(mutex_);
    void wait_for_live() TNR_REQUIRES(mutex_);
    void carry_live() TNR_EXCLUDES(mutex_);

    bool edges_can_move() const TNR_REQUIRES(mutex_) { return giving_ == 0 && !fetching_edges_; }
    void note_edges() TNR_REQUIRES(mutex_);
    static WantedBytes content_of(const SharedEdge& edge, PageBytes& seen);
    void fetch_edges(const Edges& edges) TNR_REQUIRES(mutex_);
    std::vector<Work> long_work() TNR_REQUIRES(mutex_);
    bool all_is_done() const TNR_REQUIRES(mutex_) { return works_.empty() && submitting_ == 0; }
    bool edges_due() TNR_REQUIRES(mutex_);
    void ask_for_long_work() TNR_REQUIRES(mutex_);

    Mutex mutex_;  // held for moments: nothing is sent, nothing waited for
    Condition changed_;
    std::map<uint64_t, Range> ranges_ TNR_GUARDED_BY(mutex_);  // by address here
    std::vector<Range> held_ TNR_GUARDED_BY(mutex_);           // of which the program has pages
    std::vector<Work> works_ TNR_GUARDED_BY(mutex_);           // that may still be going on: the last of each stream
    int giving_ TNR_GUARDED_BY(mutex_) = 0;                    // threads that send what the program has changed
    bool pieces_travel_ TNR_GUARDED_BY(mutex_) = false;        // one of them does; the others wait
    int submitting_ TNR_GUARDED_BY(mutex_) = 0;                // between give() and given()
    int impatient_ TNR_GUARDED_BY(mutex_) = 0;                 // faults that have waited long enough
    uint64_t turns_ TNR_GUARDED_BY(mutex_) = 0;                // of the GPU so far
    // Of the function of the program that runs for a stream.
    bool in_host_function_ TNR_GUARDED_BY(mutex_) = false, touched_ TNR_GUARDED_BY(mutex_) = false;
    std::vector<Transfers> given_meanwhile_ TNR_GUARDED_BY(mutex_), edges_given_meanwhile_ TNR_GUARDED_BY(mutex_);
    // Pages that both use.
    Condition live_wanted_;
    std::vector<Range> live_ TNR_GUARDED_BY(mutex_);        // with such pages
    std::vector<LiveWish> wishes_ TNR_GUARDED_BY(mutex_);   // what threads of the program wait for
    std::vector<LivePiece> unsent_ TNR_GUARDED_BY(mutex_);  // what the program has changed, in its order
    uint64_t sends_ TNR_GUARDED_BY(mutex_) = 0;             // of such
    uint64_t told_ TNR_GUARDED_BY(mutex_) = 0;              // completions heard when the program was told last
    int outdated_ TNR_GUARDED_BY(mutex_) = 0;               // rounds in a row that may have looked too early
    bool carries_ TNR_GUARDED_BY(mutex_) = false;           // the thread is there
    bool sleeps_ TNR_GUARDED_BY(mutex_) = false;            // it does, until somebody notifies it
    // Ends of registered memory.
    Edges edges_ TNR_GUARDED_BY(mutex_);  // by address here
    std::atomic<size_t> edge_count_{0};
    uint64_t edges_given_ TNR_GUARDED_BY(mutex_) = 0;    // the GPU's last turn that may change them
    uint64_t edges_fetched_ TNR_GUARDED_BY(mutex_) = 0;  // the last turn of which everything is here
    std::chrono::steady_clock::time_point last_given_ TNR_GUARDED_BY(mutex_){};
    uint64_t edge_changes_ TNR_GUARDED_BY(mutex_) = 0;  // how often what is known of them has changed
    bool fetching_edges_ TNR_GUARDED_BY(mutex_) = false;
    std::chrono::microseconds edge_pause_ TNR_GUARDED_BY(mutex_){0};  // between rounds that nobody seems to need
};

}  // namespace tnr::cuda
