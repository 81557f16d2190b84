// One piece of memory that the program and the GPU both address: who has the newest content of each page. Knows nothing
// of the network. Not for several threads at once.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "gpu_client/cuda/live_pages.hpp"
#include "gpu_client/cuda/page_view.hpp"

namespace tnr::cuda {

// How many pages one access of the program brings over at most, and how many one that nothing led up to. A program that
// goes through its memory is met with twice as many each time.
inline constexpr uint64_t brought_bytes_min = uint64_t{16} << 10;
inline constexpr uint64_t brought_bytes_max = uint64_t{2} << 20;

enum class PageState : uint8_t {
    fresh,  // the GPU has never had it; the program reads and writes it, and nobody keeps count of that
    stale,  // the GPU may have something newer; the program cannot touch it
    clean,  // both have the same; the program can read it
    dirty,  // the program may have something newer; it can read and write it
    live,   // both use it while a kernel runs; the program can read it, and write it where `live` says that it is open
};

// Guesses how far a thread will go on from where it is: further each time that it goes on where it stopped. Several
// threads go through memory at once.
class Strides {
public:
    // The number of pages to take from `page` on, at least `least`.
    size_t next(size_t page, size_t least, size_t most);
    // So many have been taken.
    void taken(PageRun run);

private:
    static constexpr size_t followed = 32;
    struct Stride {
        size_t end = SIZE_MAX, count = 0;
    };
    std::array<Stride, followed> strides_;
    size_t oldest_ = 0;
};

struct SharedRange {
    uint64_t address = 0;         // of the first page here; page-aligned
    uint64_t device = 0;          // of the same byte for the GPU
    uint64_t bytes = 0;           // that belong to the memory; the last page may go on behind them
    uint64_t lead = 0;            // bytes of the first page that do not belong to it
    uint64_t context = 0;         // handle of the one that moves its content
    uint64_t transfers = 0;       // handle of the stream that does
    uint64_t stream = 0;          // handle: only work of this stream uses it; 0: all work does
    bool from_host_only = false;  // no work uses it
    bool used_by_both =
        false;  // by the program and running kernels at once, once one has run for a moment (live_pages.hpp)
    std::unique_ptr<PageView> view;
    std::vector<PageState> states;
    std::vector<bool> arriving;  // a fetch is under way
    Strides reads, writes;
    PageRun expected;   // the program says that it will touch these
    bool held = false;  // some page is not stale
    LivePages live;

    size_t page_of(uint64_t at) const { return (at - address) / page_bytes(); }
    bool contains(uint64_t at) const { return at - address < states.size() * page_bytes(); }
    // The part of the run that belongs to the memory: distance from `address`, and length.
    std::pair<uint64_t, uint64_t> part(PageRun run) const;

    struct Taken {
        std::vector<PageRun> changed;   // what the GPU must get before it works with the memory
        std::vector<PageRun> readable;  // what the program may read until that is sent, as it is read in place
    };
    // Takes all pages from the program.
    Taken take();
    // What take() has left readable is taken as well.
    void hide(const Taken& taken);
    // Which stale pages around this one to bring over in one go.
    PageRun to_bring(size_t page, uint64_t bytes_min = brought_bytes_min);
    // The program may read the pages, or write them as well. False: too many mappings; nothing has changed.
    bool let_read(PageRun run);
    bool let_write(PageRun run);
    // The page, which the program cannot touch just now, is both sides' from now on; here with what is `known` of it.
    bool let_live(size_t page);
    // The program may write to a live page; `at`: where it is about to, in bytes of the page.
    bool open_live(size_t page, size_t at);
    // It may no longer, and what it has changed is noted. Returns the changes in their order; adds nothing to `theirs`.
    std::vector<ByteRun> close_live(size_t page);
    // How many bytes of the page belong to the memory.
    size_t live_bytes(size_t page) const { return part({page, 1}).second; }
    // The page is the program's as far as its state says, whatever the kernel has done with it meanwhile.
    void let_again(size_t page);
    // Which clean pages from this one on it probably writes next.
    PageRun to_open(size_t page);

private:
    template <class Wanted>
    std::vector<PageRun> runs_of(Wanted wanted) const;
    bool set(PageRun run, PageAccess access, PageState state);
};

}  // namespace tnr::cuda
